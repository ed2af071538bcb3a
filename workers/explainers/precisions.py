"""Precisions that models compute in: what they resolve, and the steps that follow from it."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Precision = Literal["bfloat16", "float16", "float32", "float64"]

#: The spacing ε of the numbers at 1: twice the unit round-off.
EPSILON: dict[Precision, float] = {
    "bfloat16": 2.0**-7,
    "float16": 2.0**-10,
    "float32": 2.0**-23,
    "float64": 2.0**-52,
}
#: A step spans so many of the model's numbers at x, or rounding decides what the difference is.
SPACINGS = 4.0
LARGEST = float(np.finfo(np.float64).max)
_SMALLEST = float(np.finfo(np.float64).smallest_subnormal)


def round_off_floor(precision: Precision) -> float:
    """Return (3ε)^{1/3}: the step in scales where round-off and truncation of a difference balance."""
    return float(np.cbrt(3.0 * EPSILON[precision]))


def is_low(precision: Precision) -> bool:
    """Return whether a slope has one or two digits at best."""
    return EPSILON[precision] > EPSILON["float32"]


def held(values: Floats, precision: Precision) -> bool:
    """Return whether all ``values`` have no more digits than the precision's numbers."""
    units = np.frexp(values)[0] / (EPSILON[precision] / 2.0)
    return bool((units == np.round(units)).all())


def spacing(values: Floats, epsilon: float) -> Floats:
    """Return the distance between numbers of spacing ``epsilon`` at 1 about ``values``, 0 at 0."""
    found: Floats = np.maximum(np.ldexp(epsilon, np.frexp(values)[1] - 1), _SMALLEST)
    return np.where(values == 0.0, 0.0, found)


def toward(at: Floats, values: Floats, epsilon: float) -> Floats:
    """Return ``values`` rounded to numbers of spacing ``epsilon`` at 1, in the direction of ``at``.

    ``at`` itself where none lies between. The exponents are float64's, so nothing overflows.
    """
    unit = spacing(values, epsilon)
    unit = np.where(unit > 0.0, unit, 1.0)
    up = values > at
    inside = np.where(up, np.floor(values / unit), np.ceil(values / unit)) * unit
    fits: Floats = np.where(np.where(up, inside > at, inside < at), inside, at)
    return fits
