"""Moments of a cell's values about a point, from the cell's bounds and its mean alone.

Inside a cell the values are taken as uniform on the symmetric interval about their own mean that
fits into the cell. A cell whose mean lies on its bound therefore is an atom, and is exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Spread(NamedTuple):
    """The uniform law of each cell: its mean and half width, any shape."""

    mean: Floats
    half: Floats


def spread(mean: Floats, low: Floats, high: Floats) -> Spread:
    """Return the widest symmetric interval about ``mean`` inside [low, high]."""
    inside = np.clip(mean, low, high)
    return Spread(inside, np.minimum(inside - low, high - inside))


def absolute(cell: Spread, point: Floats) -> Floats:
    """Return E|u - point|."""
    away = np.abs(cell.mean - point)
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = (away * away + cell.half * cell.half) / (2.0 * cell.half)
    return np.where(away >= cell.half, away, inner)


def square(cell: Spread, point: Floats) -> Floats:
    """Return E(u - point)²."""
    away = cell.mean - point
    return away * away + cell.half * cell.half / 3.0


def signed_square(cell: Spread, point: Floats, split: Floats) -> Floats:
    """Return E[(u - point)² sign(u - split)]."""
    low, high = cell.mean - cell.half, cell.mean + cell.half
    middle = np.clip(split, low, high)
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = _cube(high - point) + _cube(low - point) - 2.0 * _cube(middle - point)
        crossing /= 6.0 * cell.half
    whole = np.sign(cell.mean - split) * square(cell, point)
    return np.where((low < split) & (split < high), crossing, whole)


def _cube(value: Floats) -> Floats:
    # numpy's ** 3 goes through pow(), twenty times slower.
    cube: Floats = value * value * value
    return cube
