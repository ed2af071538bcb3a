"""The sequence as units that can change places and be masked, and the inputs built from them.

A unit is one element, or a run of elements such as a sentence. The units that can move stand in
slots 0..m-1, in the order of the sequence. An arrangement says which unit stands in each slot,
``order`` (n, m), and which slots show their unit, ``present`` (n, m); the others show the mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from attributary.workers.explainers.layout import Booleans, Integers, Layout
from attributary.workers.explainers.masks import Background


class Arrangement:
    """Builds inputs for arrangements of the units of ``x`` (d, ...).

    ``groups`` are runs of elements that move as one, in the order of the sequence; elements in no
    group stay where they are between their neighbours. Without groups every element is a unit.
    ``fixed`` elements never move and are never masked.
    """

    def __init__(
        self,
        x: npt.ArrayLike,
        mask: npt.ArrayLike | Background,
        fixed: Sequence[int] = (),
        groups: Sequence[Sequence[int]] | None = None,
    ) -> None:
        sequence = np.asarray(x)
        if sequence.ndim == 0 or not len(sequence):
            raise ValueError(f"expected a sequence (d, ...) with d >= 1, got {sequence.shape}")
        self.length = len(sequence)
        self.features = self.length if groups is None else len(groups)
        runs = _runs(self.length, groups)
        held = _held(self.length, fixed)
        self.units = _movable(runs, held)  # feature of each slot
        if not len(self.units):
            raise ValueError("every element is fixed: there is nothing to move or to mask")
        self._layout = Layout.of(self.length, [runs[i] for i in self.units])
        self.background: npt.NDArray[Any] | None = None
        if isinstance(mask, Background):
            self.background = mask.checked(sequence.shape)
            dtype = np.result_type(sequence, self.background)
        else:
            self._constant, dtype = _constant(mask, sequence)
        self._x = sequence.astype(dtype)
        self._codes = self._content_codes()

    @property
    def slots(self) -> int:
        """How many units can move."""
        return len(self.units)

    @property
    def draws(self) -> int:
        """How many backgrounds there are to draw from; 1 for a constant mask."""
        return 1 if self.background is None else len(self.background)

    def keys(self, order: Integers, present: Booleans, draw: Integers) -> npt.NDArray[Any]:
        """Return (n, d) or (n, d + 1) small integers: equal rows build equal inputs."""
        shown = np.full((len(order), self.length), -1, dtype=self._codes.dtype)
        self._layout.place(self._codes, shown, order, present)
        if self.background is None:
            return shown
        drawn = np.where(present.all(axis=1), -1, draw).astype(shown.dtype)
        return np.concatenate([shown, drawn[:, None]], axis=1)

    def build(self, order: Integers, present: Booleans, draw: Integers) -> npt.NDArray[Any]:
        """Return the inputs (n, d, ...) of arrangements; ``draw`` (n,) picks the backgrounds."""
        batch = np.empty((len(order), *self._x.shape), dtype=self._x.dtype)
        batch[:] = self._constant if self.background is None else self.background[draw]
        self._layout.place(self._x, batch, order, present)
        return batch

    def _content_codes(self) -> npt.NDArray[Any]:
        """Number the elements by content; one that looks like the mask has the mask's code, -1."""
        seen: dict[bytes, int] = {}
        if self.background is None:
            hidden = np.empty(self._x.shape[1:], dtype=self._x.dtype)
            hidden[...] = self._constant
            seen[hidden.tobytes()] = -1
        kind = np.int16 if max(self.length, self.draws) < 2**15 else np.int32
        return np.array(
            [seen.setdefault(element.tobytes(), len(seen)) for element in self._x], dtype=kind
        )


def _constant(
    mask: npt.ArrayLike, sequence: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], np.dtype[Any]]:
    value = np.asarray(mask)
    # A plain Python number takes the sequence's own type where it fits.
    weak = type(mask) in (int, float)
    dtype = np.result_type(sequence.dtype, mask) if weak else np.result_type(sequence, value)
    if value.shape not in ((), sequence.shape[1:]):
        raise ValueError(
            f"a mask is one token id or a vector of the elements' shape {sequence.shape[1:]} "
            f"(or a Background), got shape {value.shape}"
        )
    return value.astype(dtype), dtype


def _runs(length: int, groups: Sequence[Sequence[int]] | None) -> list[Integers]:
    if groups is None:
        return [np.array([i]) for i in range(length)]
    runs = [np.asarray(group, dtype=np.int64) for group in groups]
    last = -1
    for number, run in enumerate(runs):
        if not run.size or run.ndim != 1 or (np.diff(run) != 1).any():
            raise ValueError(f"group {number} is no run of consecutive elements: {run.tolist()}")
        if run[0] <= last or run[-1] >= length:
            raise ValueError(
                f"groups must be disjoint, in the order of the sequence and within 0..{length - 1}; "
                f"group {number} is {run[0]}..{run[-1]}"
            )
        last = int(run[-1])
    if not runs:
        raise ValueError("groups is empty: name at least one run of elements")
    return runs


def _held(length: int, fixed: Sequence[int]) -> Integers:
    held = np.asarray(fixed if len(fixed) else [], dtype=np.int64).ravel()
    held = np.where(held < 0, held + length, held)
    if ((held < 0) | (held >= length)).any() or len(set(held.tolist())) < len(held):
        raise ValueError(f"fixed must be distinct elements within 0..{length - 1}, got {fixed}")
    return held


def _movable(runs: list[Integers], held: Integers) -> Integers:
    inside = [int(np.isin(run, held).sum()) for run in runs]
    for number, run in enumerate(runs):
        if 0 < inside[number] < len(run):
            raise ValueError(f"group {number} is fixed in part: fix all of it or none")
    return np.array([i for i, count in enumerate(inside) if not count], dtype=np.int64)
