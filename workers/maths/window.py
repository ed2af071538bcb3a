"""Panes merged into a window, and what a window says: scores, profiles, quantiles, missing rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from attributary.workers.maths.binning import standardise
from attributary.workers.maths.block_overlap import BlockOverlap
from attributary.workers.maths.comovement import CoMovement
from attributary.workers.maths.groups import (
    Groups,
    Integers,
    Scale,
    block_estimates,
    checked_groups,
    checked_scale,
)
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.maths.quantiles import midhinge
from attributary.workers.maths.readings import Profile, mutual_information, profile
from attributary.workers.maths.sample import RowSample
from attributary.workers.maths.scores import CirScores, scores_from_sums
from attributary.workers.maths.streamed_effect import effects
from attributary.workers.maths.sums import CirSums
from attributary.workers.maths.tdigest import TDigests
from attributary.workers.maths.window_bytes import decode, encode

Floats = npt.NDArray[np.float64]

_QUARTILES = np.array([0.25, 0.5, 0.75])
# Below it, squares of weights come near the smallest numbers.
_LEAST_WEIGHT = 1e-60
#: Units that a member's centre may lie from the reference its block's overlap was measured at.
_NEAR = 0.25


@dataclass(frozen=True)
class WindowScores:
    """What a window says about c outputs and d features."""

    scores: CirScores
    x_quartiles: Floats
    """Q.25, Q.5, Q.75 of the features (3, d), NaN for one without values"""
    y_quartiles: Floats
    """the same of the outputs (3, c)"""
    missing: Floats
    """share of the rows without a finite value, per feature (d,); NaN without rows"""
    output_missing: Floats
    """the same per output (c,)"""
    mutual_information: Floats
    """binned I(x; y) in nats (c, d), on the grid of ``main_epoch``"""
    profile: Profile | None
    """dependence profile on the grid of ``main_epoch``; None without rows"""
    main_epoch: int | None
    """the epoch that holds the most weight, the newer of equals"""
    epochs: list[int]
    rows: float
    """rows, decayed where the window is"""


class WindowState:
    """The sum of any panes of d features and c outputs, on grids of any epochs.

    Each epoch keeps cells of its own; all are evaluated at the one centre that the merged digests
    give, and added. Windows are made by merging only, never by subtraction.

    ``seen`` holds the weight-free counts of finite, NaN and infinite entries per column,
    (3, d + c), decayed with the window.
    """

    def __init__(
        self, columns: int, outputs: int, *, compression: int = 200, sample_size: int = 0
    ) -> None:
        self.columns = columns
        self.outputs = outputs
        self.compression = compression
        self.sample_size = sample_size
        self.rows = 0.0
        self.weight = 0.0
        self.x_digests = TDigests(columns, compression)
        self.y_digests = TDigests(outputs, compression)
        self.seen = np.zeros((3, columns + outputs))
        self.epochs: dict[int, CoMovement] = {}
        self.overlaps: dict[int, BlockOverlap] = {}
        self.sample = RowSample(sample_size, columns, outputs) if sample_size else None

    def add(self, pane: PaneSketch) -> None:
        """Add a pane; ValueError where its columns, compression or sample size differ."""
        self.merge(WindowState.of(pane))

    @classmethod
    def of(cls, pane: PaneSketch) -> WindowState:
        """Return the window of one pane. It shares the pane's accumulators: read it, or merge it."""
        window = cls(
            pane.grid.columns,
            pane.grid.outputs,
            compression=pane.compression,
            sample_size=pane.sample_size,
        )
        state = pane.state()
        window.rows, window.weight = float(pane.rows), pane.weight
        window.x_digests, window.y_digests = state.x_digests, state.y_digests
        window.seen = np.concatenate(
            [
                np.stack([part.count, part.nan_count, part.inf_count])
                for part in (state.x_digests, state.y_digests)
            ],
            axis=1,
        ).astype(np.float64)
        window.epochs = {pane.grid.epoch: state.comovement}
        window.overlaps = {pane.grid.epoch: state.overlap}
        window.sample = state.sample
        return window

    def merge(self, other: WindowState) -> None:
        """Add another window; ValueError where its columns, compression or sample size differ."""
        if self._shape() != other._shape():
            raise ValueError(
                "cannot merge windows of (features, outputs, compression, sampled rows) "
                f"{other._shape()} into {self._shape()}"
            )
        for epoch, cells in other.epochs.items():
            if epoch not in self.epochs:
                self.epochs[epoch] = cells.empty()
                self.overlaps[epoch] = BlockOverlap(cells, other.overlaps[epoch].blocks)
            self._merge_overlap(epoch, other.overlaps[epoch], cells)
            self.epochs[epoch].merge(cells)
        self.x_digests.merge(other.x_digests)
        self.y_digests.merge(other.y_digests)
        self.seen = self.seen + other.seen
        self.rows += other.rows
        self.weight += other.weight
        if self.sample is not None and other.sample is not None:
            self.sample.merge(other.sample)

    def _merge_overlap(self, epoch: int, other: BlockOverlap, cells: CoMovement) -> None:
        """Add block sums; panes that declare different blocks keep none, which is safe."""
        if self.overlaps[epoch].same_blocks(other):
            self.overlaps[epoch].merge(other)
        else:
            self.overlaps[epoch] = BlockOverlap(cells, None)

    def _shape(self) -> tuple[int, int, int, int]:
        return self.columns, self.outputs, self.compression, self.sample_size

    def copy(self) -> WindowState:
        """Return an independent copy."""
        other = WindowState(
            self.columns,
            self.outputs,
            compression=self.compression,
            sample_size=self.sample_size,
        )
        other.merge(self)
        return other

    def scaled(self, factor: float) -> WindowState:
        """Return a copy in which every row weighs ``factor`` >= 0 times as much.

        Scores and effective rows do not change; below 1, as decay needs it, what is added afterwards
        counts for more, and above, as rows need it that stand for others, for less. The row sample
        is kept as it is. What would weigh next to nothing is left out.
        """
        if not 0.0 <= factor < np.inf:
            raise ValueError(f"a factor of weights is finite and at least 0, got {factor}")
        if factor * self.weight < _LEAST_WEIGHT:
            return WindowState(
                self.columns,
                self.outputs,
                compression=self.compression,
                sample_size=self.sample_size,
            )
        other = self.copy()
        if factor == 1.0:
            return other
        other.rows, other.weight = self.rows * factor, self.weight * factor
        other.seen = self.seen * factor
        other.x_digests = self.x_digests.scaled(factor)
        other.y_digests = self.y_digests.scaled(factor)
        other.epochs = {epoch: cells.scaled(factor) for epoch, cells in self.epochs.items()}
        other.overlaps = {
            epoch: overlap.scaled(factor, self.epochs[epoch])
            for epoch, overlap in self.overlaps.items()
        }
        return other

    def sums(self) -> CirSums:
        """Return the sums of all epochs about the centre of the whole window."""
        return self._sums(*self.centre())

    def centre(self) -> tuple[Floats, Floats]:
        """Return the midhinges of the features (d,) and of the outputs (c,)."""
        hinges = np.array([0.25, 0.75])
        return (
            midhinge(self.x_digests.quantile(hinges)),
            midhinge(self.y_digests.quantile(hinges)),
        )

    def _sums(self, x_centre: Floats, y_centre: Floats) -> CirSums:
        zero = np.zeros((self.outputs, self.columns))
        least = np.finfo(np.float64).tiny
        total = CirSums(
            *(zero, zero, zero, zero, zero, zero),
            x_unit=np.full(self.columns, least),
            y_unit=np.full(self.outputs, least),
        )
        for epoch in sorted(self.epochs):
            total = total + self.epochs[epoch].sums(x_centre, y_centre)
        return total

    def evaluate(self, groups: Groups | None = None, *, scale: str | None = None) -> WindowScores:
        """Return the scores of the window, computed as ``cir`` does from a batch.

        ``groups`` {name: columns} and ``scale`` as there. A block's error is the batch's where the
        panes declared it, and an upper bound otherwise.
        """
        members = checked_groups(groups, self.columns)
        mode = checked_scale(scale)
        x_quartiles = self.x_digests.quantile(_QUARTILES)
        y_quartiles = self.y_digests.quantile(_QUARTILES)
        x_centre = midhinge(x_quartiles[[0, 2]])
        sums = self._sums(x_centre, midhinge(y_quartiles[[0, 2]]))
        with np.errstate(over="ignore", invalid="ignore"):
            iqr = x_quartiles[2] - x_quartiles[0]
        overlap = self._overlap(members, mode, x_centre)
        blocks = block_estimates(sums, members, iqr, mode, overlap)
        main = max(self.epochs, key=lambda e: (self.epochs[e].x_mass.sum(), e), default=None)
        if main is None:
            nothing = np.full((self.outputs, self.columns), np.nan)
            effect, information, shape = (nothing, nothing), np.zeros_like(nothing), None
        else:
            ordered = [self.epochs[epoch] for epoch in sorted(self.epochs)]
            effect = effects(ordered, x_quartiles[[0, 2]])
            information = mutual_information(self.epochs[main])
            shape = profile(self.epochs[main])
        finite, nan, infinite = self.seen
        with np.errstate(invalid="ignore"):
            missing = (nan + infinite) / (finite + nan + infinite)
        return WindowScores(
            scores=scores_from_sums(sums, effect, blocks),
            x_quartiles=x_quartiles,
            y_quartiles=y_quartiles,
            missing=missing[: self.columns],
            output_missing=missing[self.columns :],
            mutual_information=information,
            profile=shape,
            main_epoch=main,
            epochs=sorted(self.epochs),
            rows=self.rows,
        )

    def _overlap(
        self, groups: Mapping[str, Integers], scale: Scale, x_centre: Floats
    ) -> dict[str, Floats]:
        """Return the overlap (c, 3) of the groups that every epoch declared and measured nearby."""
        found: dict[str, Floats] = {}
        for name, members in groups.items():
            parts, weights = [], []
            for epoch in sorted(self.overlaps):
                overlap, cells = self.overlaps[epoch], self.epochs[epoch]
                away = standardise(x_centre, cells.x_reference, cells.x_unit)[members]
                if np.array_equal(overlap.blocks.get(name, ()), members) and (
                    np.nan_to_num(np.abs(away)).max() <= _NEAR
                ):
                    parts.append(overlap.overlap(cells, name, scale))
                    weights.append(cells.x_mass.sum())
            if len(parts) == len(self.overlaps) and sum(weights) > 0.0:
                found[name] = np.average(parts, axis=0, weights=weights)
        return found

    def to_bytes(self, dtype: npt.DTypeLike = np.float64) -> bytes:
        """Return the window as bytes; float64 by default, so that a snapshot loses nothing."""
        return encode(self, np.dtype(dtype))

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> WindowState:
        """Return the window that ``to_bytes`` wrote; IncompatibleStateError otherwise."""
        parts = decode(data)
        made = cls(
            parts.columns,
            parts.outputs,
            compression=parts.compression,
            sample_size=parts.sample_size,
        )
        made.rows, made.weight, made.seen = parts.rows, parts.weight, parts.seen
        made.x_digests, made.y_digests = parts.digests
        made.epochs, made.overlaps, made.sample = parts.epochs, parts.overlaps, parts.sample
        return made
