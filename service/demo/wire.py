"""The demonstration's rows in the two forms that the bus takes: Arrow batches and JSON rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from attributary.schemas.arrow import ID, TIME, encode_arrow_rows
from attributary.schemas.card import ModelCard
from attributary.service.demo.dataset import Rows


def as_arrow(card: ModelCard, rows: Rows) -> bytes:
    """Return ``rows`` as one Arrow IPC message."""
    columns: dict[str, Any] = dict(rows.features)
    columns |= {name: rows.outputs[:, j] for j, name in enumerate(card.outputs)}
    columns[TIME] = pa.array(rows.times, type=pa.timestamp("ms", tz="UTC"))
    columns[ID] = pa.array(rows.ids, type=pa.string())
    return encode_arrow_rows(card.model, columns, card.outputs)


def as_json_columns(rows: Rows) -> dict[str, Any]:
    """Return ``rows`` as the arguments of ``Publisher.publish_batch``, which sends them as JSON."""
    return {
        "features": rows.features,
        "outputs": rows.outputs,
        "ids": rows.ids.tolist(),
        "times": (rows.times / 1000).tolist(),
    }
