"""What the demonstration streams: a model's card, and its rows in event-time order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from attributary.schemas.card import ModelCard

Numbers = npt.NDArray[np.float64]
Column = npt.NDArray[Any]


@dataclass(frozen=True)
class Rows:
    """Rows of one model, column by column.

    ``features`` maps each name to ``(n,)`` float64 (NaN: missing) or, for a categorical, ``(n,)`` str;
    ``outputs`` is ``(n, c)`` in the card's order, ``times`` ``(n,)`` event times in milliseconds,
    ``ids`` ``(n,)`` str.
    """

    features: Mapping[str, Column]
    outputs: Numbers
    times: npt.NDArray[np.int64]
    ids: Column

    def __len__(self) -> int:
        return len(self.times)

    def slice(self, start: int, stop: int) -> Rows:
        """Return the rows at [start, stop) as views."""
        part = slice(start, stop)
        return Rows(
            {name: values[part] for name, values in self.features.items()},
            self.outputs[part],
            self.times[part],
            self.ids[part],
        )

    def where(self, keep: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Rows:
        """Return the rows that ``keep`` (n,) marks, or whose positions it lists, in its order."""
        return Rows(
            {name: values[keep] for name, values in self.features.items()},
            self.outputs[keep],
            self.times[keep],
            self.ids[keep],
        )

    def at(self, moment: int) -> Rows:
        """Return the rows as if they happened at ``moment`` (milliseconds), with ids that say so."""
        ids = np.array([f"{name}@{moment}" for name in self.ids], dtype=object)
        return Rows(self.features, self.outputs, np.full(len(self), moment, dtype=np.int64), ids)


@dataclass(frozen=True)
class Dataset:
    """A stream to publish. ``rows`` are in the order in which they are sent.

    ``model``: the model itself as an XGBoost UBJ file, where it can be explained on request.
    """

    card: ModelCard
    rows: Rows
    unit: str
    description: str
    drift: str
    model: bytes | None = None

    def batches(self, size: int, stop: int | None = None) -> Iterator[Rows]:
        """Yield the first ``stop`` rows (default: all) in order, ``size`` at a time."""
        end = len(self.rows) if stop is None else min(stop, len(self.rows))
        for start in range(0, end, size):
            yield self.rows.slice(start, min(start + size, end))
