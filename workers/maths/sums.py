"""The sums that a score and its error are made of, from a batch or from a stream."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class CirSums:
    """Sums over rows of p = x̃ỹ about one centre, every one (c, d).

    In standard units: multiply N and D by x_unit · y_unit, the error sums by its square.
    """

    N: Floats
    """Σ w p"""
    D: Floats
    """Σ w |p|"""
    square: Floats
    """Σ w² p²"""
    signed: Floats
    """Σ w² p|p|"""
    weight: Floats
    """Σ w over the rows with p ≠ 0"""
    weight_square: Floats
    """Σ w² over the same rows"""
    x_unit: Floats
    """(d,) powers of two"""
    y_unit: Floats
    """(c,) powers of two"""

    @property
    def rows(self) -> Floats:
        """Effective number of the rows with p ≠ 0, (Σw)²/Σw²."""
        square = self.weight_square
        return np.divide(self.weight**2, square, out=np.zeros_like(square), where=square > 0.0)

    def in_column_units(self) -> tuple[Floats, Floats]:
        """Return N and D in the columns' own units, infinite where these leave float64."""
        # One unit after the other: their product may overflow where the sum does not, or is 0.
        with np.errstate(over="ignore"):
            N, D = (part * self.x_unit * self.y_unit[:, None] for part in (self.N, self.D))
        return N, D

    def __add__(self, other: CirSums) -> CirSums:
        """Return the sums over both sets of rows, in the larger units of the two."""
        x_unit = np.maximum(self.x_unit, other.x_unit)
        y_unit = np.maximum(self.y_unit, other.y_unit)
        mine, its = self._in_units(x_unit, y_unit), other._in_units(x_unit, y_unit)
        return CirSums(
            mine.N + its.N,
            mine.D + its.D,
            mine.square + its.square,
            mine.signed + its.signed,
            self.weight + other.weight,
            self.weight_square + other.weight_square,
            x_unit,
            y_unit,
        )

    def _in_units(self, x_unit: Floats, y_unit: Floats) -> CirSums:
        factor = (self.y_unit / y_unit)[:, None] * (self.x_unit / x_unit)
        return CirSums(
            self.N * factor,
            self.D * factor,
            self.square * factor**2,
            self.signed * factor**2,
            self.weight,
            self.weight_square,
            x_unit,
            y_unit,
        )
