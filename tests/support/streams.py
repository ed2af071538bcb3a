"""Cards, epochs and records for the tests of the stream workers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from attributary.schemas.card import Feature, ModelCard
from attributary.schemas.grid import GridRecord
from attributary.schemas.row import Row
from attributary.workers.stream.decode import Record, Staged
from attributary.workers.stream.epoch import Epoch, propose_first
from attributary.workers.stream.layout import Layout
from attributary.workers.stream.options import IngestOptions

NOW = 1_700_000_000_000
OPTIONS = IngestOptions()


def card(*features: Feature | str, outputs: Sequence[str] = ("y",), **fields: Any) -> ModelCard:
    """Return a card of model ``m``; a bare name is a numeric feature."""
    named = [Feature(name=f) if isinstance(f, str) else f for f in features]
    return ModelCard(model="m", features=named, outputs=list(outputs), **fields)


def layout(of: ModelCard, values: Mapping[str, Sequence[Any]] | None = None) -> Layout:
    """Return the card's layout."""
    return Layout.learn(of, values or {}, of.outputs, max_levels=OPTIONS.max_levels)


def record(value: bytes | None, offset: int = 0, **fields: Any) -> Record:
    """Return a record of the rows topic."""
    return Record(offset, fields.pop("timestamp", NOW + offset), value, **fields)


def row_record(offset: int, features: Any, outputs: Any = 1.0, **fields: Any) -> Record:
    """Return a record with one JSON row of model ``m``."""
    row = {"model": "m", "features": features, "outputs": outputs, **fields}
    return record(json.dumps(row).encode(), offset)


def staged(rows: Sequence[Row]) -> list[Staged]:
    """Return rows as they wait to be counted, one a record."""
    return [Staged(record(b"", offset), row) for offset, row in enumerate(rows)]


def some_rows(names: Sequence[str], count: int = 40, outputs: int = 1, seed: int = 0) -> list[Row]:
    """Return Gaussian rows."""
    rng = np.random.default_rng(seed)
    return [
        Row(
            dict(zip(names, rng.standard_normal(len(names)).tolist(), strict=True)),
            rng.standard_normal(outputs).tolist(),
        )
        for _ in range(count)
    ]


def grid(
    of: ModelCard | None, rows: Sequence[Row], *, number: int = 0, options: IngestOptions = OPTIONS
) -> GridRecord:
    """Return the grid that these rows make; they must make one."""
    found = propose_first("m", of, number, staged(rows), options)
    assert isinstance(found, GridRecord), found
    return found


def epoch(of: ModelCard, **fields: Any) -> Epoch:
    """Return a first epoch of a card of numeric features."""
    rows = some_rows([f.name for f in of.features], outputs=len(of.outputs))
    return Epoch.from_record(grid(of, rows, **fields), strict=of.strict)


def arrow(
    columns: Mapping[str, Any], outputs: Sequence[str] = ("y",), model: str | None = "m"
) -> bytes:
    """Return any columns as an Arrow message, hostile ones included."""
    named = {b"attributary.outputs": json.dumps(list(outputs)).encode()}
    if model is not None:
        named[b"attributary.model"] = model.encode()
    table = pa.table(dict(columns)).replace_schema_metadata(named)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
