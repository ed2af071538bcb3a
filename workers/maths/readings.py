"""What else the cells of a co-movement grid say: mutual information and dependence profiles."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from attributary.workers.maths.comovement import CoMovement
from attributary.workers.maths.effect import Side, mean

Floats = npt.NDArray[np.float64]


class Profile(NamedTuple):
    """E[y | x in cell] (c, d, K), NaN where a cell is empty, in the outputs' units."""

    mean: Floats
    stderr: Floats
    """NaN below two effective rows"""
    weight: Floats
    x_edges: Floats
    """(d, K - 1); cell k is (edge k-1, edge k], a repeated edge leaves an empty cell"""


def profile(state: CoMovement) -> Profile:
    """Return the dependence profile of every output on every feature."""
    side = x_sides(state)
    centre, square = mean(side)
    unit = state.y_unit[:, None, None]
    with np.errstate(over="ignore"):
        return Profile(
            centre * unit + state.y_reference[:, None, None],
            np.sqrt(square) * unit,
            side.weight,
            state.x_edges,
        )


def x_sides(state: CoMovement) -> Side:
    """Return the sums of the rows in each x cell, (c, d, K), y about its reference in its unit."""
    return Side(state.cells[0].sum(axis=-1), state.cells[2].sum(axis=-1), state.output_squares())


def mutual_information(state: CoMovement, *, corrected: bool = True) -> Floats:
    """Return I(x; y) over the cells in nats, (c, d), the papers' MI(pred); 0 without rows.

    The plug-in estimate, less the Miller-Madow bias (cells - rows - columns + 1)/(2n) of its
    occupied cells and never below 0 where ``corrected``. With weights, n is the Kish size.
    """
    n = state.cells[0]
    total = n.sum(axis=(-2, -1))
    share = n / np.where(total > 0.0, total, 1.0)[..., None, None]
    x, y = share.sum(axis=-1), share.sum(axis=-2)
    plain = _entropy(x) + _entropy(y) - _entropy(share.reshape(*total.shape, -1))
    if corrected:
        occupied = (n > 0.0).sum(axis=(-2, -1))
        margins = (x > 0.0).sum(axis=-1) + (y > 0.0).sum(axis=-1)
        square = state.output_squares()[0].sum(axis=-1)
        inverse = np.divide(square, total**2, out=np.zeros_like(total), where=total > 0.0)
        plain = plain - (occupied - margins + 1.0) / 2.0 * inverse
    return np.where(total > 0.0, np.maximum(plain, 0.0), 0.0)


def _entropy(share: Floats) -> Floats:
    entropy: Floats = -np.sum(share * np.log(np.where(share > 0.0, share, 1.0)), axis=-1)
    return entropy
