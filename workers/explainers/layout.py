"""Where the elements of a sequence land when its units change slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Layout:
    """``runs``: the elements of every unit, in order; ``held``: the elements of none."""

    runs: tuple[Integers, ...]
    held: Integers

    @classmethod
    def of(cls, length: int, runs: Sequence[Integers]) -> Layout:
        """Return the layout of ``length`` elements, those of ``runs`` in units that move."""
        return cls(tuple(runs), np.setdiff1d(np.arange(length), np.concatenate(runs)))

    def place(
        self,
        content: npt.NDArray[Any],
        batch: npt.NDArray[Any],
        order: Integers,
        present: Booleans,
    ) -> None:
        """Write elements of ``content`` (d, ...) into ``batch`` (n, d, ...), which holds the mask.

        ``order`` (n, m) says which unit stands in each slot, ``present`` (n, m) which slots show
        theirs.
        """
        if len({len(run) for run in self.runs}) == 1:
            self._place_equal(content, batch, order, present)
        else:
            self._place_any(content, batch, order, present)

    def _place_equal(
        self,
        content: npt.NDArray[Any],
        batch: npt.NDArray[Any],
        order: Integers,
        present: Booleans,
    ) -> None:
        places, width = np.concatenate(self.runs), len(self.runs[0])
        units = content[places].reshape(len(self.runs), width, *content.shape[1:])
        moved = units[order].reshape(len(order), len(places), *content.shape[1:])
        shown = np.repeat(present, width, axis=1)
        shown = shown.reshape(*shown.shape, *[1] * (content.ndim - 1))
        batch[:, places] = np.where(shown, moved, batch[:, places])
        batch[:, self.held] = content[self.held]

    def _place_any(
        self,
        content: npt.NDArray[Any],
        batch: npt.NDArray[Any],
        order: Integers,
        present: Booleans,
    ) -> None:
        """Place runs of different lengths one behind the other, held elements between them."""
        lengths = np.array([len(run) for run in self.runs])
        first = np.array([run[0] for run in self.runs])
        rows = np.arange(len(order))
        slot = np.argsort(order, axis=1)
        ends = np.cumsum(lengths[order], axis=1)
        starts = ends - lengths[order]
        # A held element follows the slots that it followed, whatever they hold now.
        bounds = np.concatenate([np.zeros((len(order), 1), dtype=np.int64), ends], axis=1)
        for earlier, element in enumerate(self.held):
            batch[rows, bounds[:, (first < element).sum()] + earlier] = content[element]
        between = np.array([(self.held < start).sum() for start in first])
        for unit, run in enumerate(self.runs):
            at = slot[:, unit]
            shown = present[rows, at]
            start = (starts[rows, at] + between[at])[shown]
            for offset, element in enumerate(run):
                batch[rows[shown], start + offset] = content[element]
