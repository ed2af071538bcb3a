"""The effect of a feature from co-movement cells, over one or several grid epochs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from attributary.workers.maths import crossing
from attributary.workers.maths.binning import standardise
from attributary.workers.maths.comovement import CoMovement
from attributary.workers.maths.effect import Side, contrast
from attributary.workers.maths.readings import x_sides

Floats = npt.NDArray[np.float64]

#: How far apart, in units of a column, values must be to count as different: cells are float32.
_APART = 1e-5


def effects(states: Sequence[CoMovement], quartiles: Floats) -> tuple[Floats, Floats]:
    """Return the effect and its standard error (c, d), as ``cir`` defines them.

    ``quartiles`` (2, d) of the features over all ``states``, which are on grids of their own but
    of the same columns. A cell that a quartile divides counts by the share of it that lies beyond,
    its values taken as uniform about their mean, the output as linear in them.
    """
    parts = [_Epoch(state, quartiles) for state in states]
    low_empty = sum(part.weight(part.below) for part in parts) == 0.0
    high_empty = sum(part.weight(part.above) for part in parts) == 0.0
    tied = quartiles[0] == quartiles[1]
    constant = tied & low_empty & high_empty
    with_low, with_high = ~tied | low_empty, ~tied | high_empty
    frame = states[-1]
    lower = _total(
        [
            part.side(np.where(with_low[..., None], part.to, part.below), -1.0, frame)
            for part in parts
        ]
    )
    upper = _total(
        [
            part.side(np.where(with_high[..., None], part.since, part.above), 1.0, frame)
            for part in parts
        ]
    )
    effect, error = contrast(lower, upper)
    unit = frame.y_unit[:, None]
    with np.errstate(over="ignore"):
        return (
            np.where(constant, np.nan, effect * unit),
            np.where(constant, np.nan, error * unit),
        )


class _Epoch:
    """The x cells of one epoch, and the share of each that lies beyond a quartile, (c, d, K)."""

    def __init__(self, state: CoMovement, quartiles: Floats) -> None:
        self.state = state
        self.cells = x_sides(state)
        low, high = (
            standardise(
                np.nan_to_num(part, nan=0.0, posinf=np.inf, neginf=-np.inf),
                state.x_reference,
                state.x_unit,
            )[:, None]
            for part in quartiles
        )
        weight = self.cells.weight
        mean = state.cells[1].sum(axis=-1) / np.where(weight > 0.0, weight, 1.0)
        law = crossing.spread(mean, *state.x_bounds())
        self.rise = self._rise(mean, law)
        self.below, self.to = _share(law, low, -1.0), _share(law, low, 1.0)
        self.since, self.above = 1.0 - _share(law, high, -1.0), 1.0 - _share(law, high, 1.0)

    def _rise(self, mean: Floats, law: crossing.Spread) -> Floats:
        """Return how much y rises over half the width of each cell.

        The slope is cov(x, y)/var(x), the variance the uniform law's, half²/3; no more than a
        correlation of 1 would give.
        """
        weight = np.where(self.cells.weight > 0.0, self.cells.weight, 1.0)
        y = self.cells.total / weight
        covariance = self.state.cells[3].sum(axis=-1) / weight - mean * y
        flat, linear, square = self.cells.squares / np.where(
            self.cells.squares[0] > 0.0, self.cells.squares[0], 1.0
        )
        most = np.sqrt(3.0 * np.maximum(square - linear * linear, 0.0)) * flat
        half = np.where(law.half > 0.0, law.half, 1.0)
        return np.where(law.half > 0.0, np.clip(3.0 * covariance / half, -most, most), 0.0)

    def weight(self, share: Floats) -> Floats:
        """Return the weight of the rows chosen, (c, d), exactly 0 where there are none."""
        total: Floats = (self.cells.weight * share).sum(axis=-1)
        return total

    def side(self, share: Floats, end: float, frame: CoMovement) -> Side:
        """Return the sums over the shares chosen, at the lower (-1) or upper (1) end of each cell.

        y is about the reference of ``frame``.
        """
        shift = end * self.rise * (1.0 - share)
        weight = (self.cells.weight * share).sum(axis=-1)
        total = ((self.cells.total + shift * self.cells.weight) * share).sum(axis=-1)
        flat, linear, square = self.cells.squares
        square = square + shift * (2.0 * linear + shift * flat)
        linear = linear + shift * flat
        flat, linear, square = ((part * share).sum(axis=-1) for part in (flat, linear, square))
        state = self.state
        if state.same_grid(frame):
            return Side(weight, total, np.stack([flat, linear, square]))
        a = (state.y_unit / frame.y_unit)[:, None]
        b = standardise(state.y_reference, frame.y_reference, frame.y_unit)[:, None]
        squares = np.stack(
            [flat, a * linear + b * flat, a * a * square + 2.0 * a * b * linear + b * b * flat]
        )
        return Side(weight, a * total + b * weight, squares)


def _share(law: crossing.Spread, point: Floats, step: float) -> Floats:
    """Return the share of each cell below ``point``, moved by ``step`` times what is apart."""
    moved = point + step * _APART * np.maximum(1.0, np.abs(point))
    width = np.maximum(2.0 * law.half, np.finfo(np.float64).tiny)
    with np.errstate(over="ignore"):
        share: Floats = np.clip((moved - (law.mean - law.half)) / width, 0.0, 1.0)
    return share


def _total(sides: Sequence[Side]) -> Side:
    return Side(
        np.sum([side.weight for side in sides], axis=0),
        np.sum([side.total for side in sides], axis=0),
        np.sum([side.squares for side in sides], axis=0),
    )
