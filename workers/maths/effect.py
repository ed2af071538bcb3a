"""How much: the mean output in the upper minus the lower quartile of a feature.

CIR says how consistently a feature moves an output, not how much. Lower means x <= Q.25 and upper
x >= Q.75. Where the quartiles coincide (a 0/1 column, a sparse one) the quartile's own value goes
to the side that would be empty without it, so that a rare 0/1 column compares ones with zeros; a
constant column has no effect to report (NaN).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Side(NamedTuple):
    """Sums over the rows of one side, any one shape, y in any one unit."""

    weight: Floats
    """Σ w"""
    total: Floats
    """Σ wy"""
    squares: Floats
    """(3, ...) Σ w², Σ w²y, Σ w²y²"""


def contrast(lower: Side, upper: Side) -> tuple[Floats, Floats]:
    """Return mean(upper) - mean(lower) and its standard error, NaN where a side has no rows."""
    low, low_square = mean(lower)
    high, high_square = mean(upper)
    return high - low, np.sqrt(low_square + high_square)


def mean(side: Side) -> tuple[Floats, Floats]:
    """Return the weighted mean and its squared standard error, NaN below two effective rows.

    Σw²(y - ȳ)²/(Σw)², times n/(n - 1) with the Kish size n = (Σw)²/Σw².
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        centre = side.total / side.weight
        flat, linear, square = side.squares
        spread = np.maximum(square - 2.0 * centre * linear + centre * centre * flat, 0.0)
        rows = side.weight * side.weight / flat
        error = spread / side.weight**2 * rows / (rows - 1.0)
    empty = ~(side.weight > 0.0)
    return np.where(empty, np.nan, centre), np.where(empty | ~(rows > 1.0), np.nan, error)
