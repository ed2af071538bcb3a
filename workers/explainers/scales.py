"""Units of the features: robust scales, and the neighbourhood that a slope is averaged over."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.spatial import KDTree

from attributary.workers.explainers.precisions import EPSILON, LARGEST

Floats = npt.NDArray[np.float64]

#: Interquartile range of a normal, in standard deviations.
_NORMAL_IQR = 1.3489795003921634


def robust_scale(background: Floats) -> Floats:
    """Return the scale (d,) > 0 of every column: IQR/1.349, else standard deviation, else max(|x|, 1).

    Missing values are left out.
    """
    d = background.shape[1]
    found = np.ones(d)
    for j in range(d):
        column = background[np.isfinite(background[:, j]), j]
        if column.size:
            largest = float(np.abs(column).max())
            unit = largest or 1.0
            low, high = np.quantile(column / unit, [0.25, 0.75])
            most = LARGEST / 2.0 / unit
            spreads = (
                min((high - low) / _NORMAL_IQR, most) * unit,
                min((column / unit).std(), most) * unit,
            )
            apart = 8.0 * EPSILON["float64"] * largest
            # Below the spacing of numbers as large as these, a spread is rounding.
            real = (float(spread) for spread in spreads if spread > apart)
            found[j] = next(real, max(largest, 1.0))
    return found


def closest_pair(rows: Floats) -> float:
    """Return the smallest non-zero Euclidean distance between rows (m, d), 0 where all are equal.

    By a kd-tree: nearest neighbours of the distinct rows.
    """
    distinct = np.unique(rows, axis=0)
    if len(distinct) < 2:
        return 0.0
    distance = np.asarray(KDTree(distinct).query(distinct, k=2)[0])
    return float(distance[:, 1].min())


def neighbourhood(
    values: Floats, column: Floats, share: float, least: float
) -> tuple[Floats, Floats]:
    """Return the ends (n,), (n,) of the neighbourhood of each value of one feature.

    It holds ``share`` of the background's ``column`` (m,) on each side of the value, and reaches at
    least ``least`` to each side.
    """
    known = np.sort(column[np.isfinite(column)])
    m = len(known)
    if m == 0:
        return values - least, values + least
    below = np.searchsorted(known, values, side="left") / m - share
    above = np.searchsorted(known, values, side="right") / m + share
    # Halves: quantiles are interpolated by differences, which must not overflow.
    low, high = (2.0 * np.quantile(known / 2.0, np.clip(q, 0.0, 1.0)) for q in (below, above))
    with np.errstate(over="ignore"):
        return np.minimum(low, values - least), np.maximum(high, values + least)


def mean_of(column: Floats) -> float:
    """Return the mean of the known values; no sum on the way overflows."""
    known = column[np.isfinite(column)]
    exponent = int(np.frexp(np.abs(known).max())[1])
    return float(np.ldexp(np.ldexp(known, -exponent).mean(), exponent))
