"""What a card's baseline says of the training rows, written down and read again for drift."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from attributary.schemas.card import Baseline, Digest, ModelCard, Reference
from attributary.workers.maths.grid import Grid
from attributary.workers.maths.tdigest import TDigests
from attributary.workers.maths.tdigest_exchange import from_centroid_dicts, to_centroid_dicts
from attributary.workers.maths.window import WindowScores, WindowState
from attributary.workers.stream.drift import Sample
from attributary.workers.stream.layout import Layout
from attributary.workers.stream.lightweight import Tally

#: Centroids of all columns together, so that the card of a wide model stays a message: 1 MiB or so.
_MOST_CENTROIDS = 32_768
_COMPRESSION, _LEAST_COMPRESSION = 200, 20


def baseline_of(grid: Grid, state: WindowState, scores: WindowScores) -> Baseline:
    """Return what a card keeps of rows that were counted on ``grid``.

    Digests become coarser where there are many columns: 200 up to about 160 columns and outputs, never
    below 20.
    """
    columns = state.columns + state.outputs
    compression = max(_LEAST_COMPRESSION, min(_COMPRESSION, _MOST_CENTROIDS // columns))
    found = scores.scores
    return Baseline(
        x_edges=grid.x_edges.tolist(),
        y_edges=grid.y_edges.tolist(),
        rows=int(state.rows),
        reference=Reference(
            x_digests=_written(state.x_digests, compression),
            y_digests=_written(state.y_digests, compression),
            scores=found.score.tolist(),
            stderr=[[_finite(value) for value in row] for row in found.stderr.tolist()],
            groups={name: block.tolist() for name, block in found.blocks.items()},
        ),
    )


def sample_of(baseline: Baseline) -> Sample | None:
    """Return the training rows as drift compares windows with them; None where only edges are there.

    ValueError: centroids that make no digest.
    """
    found = baseline.reference
    if found is None:
        return None
    shape = len(found.y_digests), len(found.x_digests)
    return Sample(
        Tally.of([(1.0, baseline.rows, 0)]),
        _read(found.x_digests),
        _read(found.y_digests),
        np.array(found.scores, dtype=np.float64).reshape(shape),
        np.array(found.stderr, dtype=np.float64).reshape(shape),
    )


class TrainingSamples:
    """The training rows of each model's newest card, read once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[ModelCard, Sample | None]] = {}

    def sample(self, card: ModelCard | None, layout: Layout) -> Sample | None:
        """Return the card's training rows; None where it has none, or none of the layout's columns."""
        if card is None or card.baseline is None:
            return None
        known = self._known.get(card.model)
        if known is None or known[0] is not card:
            known = self._known[card.model] = card, sample_of(card.baseline)
        found = known[1]
        shape = len(layout.outputs), len(layout.columns)
        return found if found is not None and found.score.shape == shape else None


def _written(digests: TDigests, compression: int) -> list[Digest]:
    listed = to_centroid_dicts(digests)
    if compression < digests.compression:
        listed = to_centroid_dicts(from_centroid_dicts(listed, compression))
    return [
        Digest(
            means=[centroid["m"] for centroid in column["centroids"]],
            weights=[centroid["c"] for centroid in column["centroids"]],
            atoms=column.get("atoms", []),
            low=column.get("min"),
            high=column.get("max"),
            values=column["values"],
            missing=column["nan"] + column["inf"],
        )
        for column in listed
    ]


def _read(columns: list[Digest]) -> TDigests:
    listed: list[Mapping[str, Any]] = []
    for column in columns:
        pairs = zip(column.means, column.weights, strict=True)
        ends = {} if column.low is None else {"min": column.low, "max": column.high}
        listed.append(
            {
                "centroids": [{"m": mean, "c": weight} for mean, weight in pairs],
                "atoms": column.atoms,
                "values": column.values,
                "nan": column.missing,
                **ends,
            }
        )
    return from_centroid_dicts(listed, _COMPRESSION)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
