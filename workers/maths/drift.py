"""How far two digests lie apart: Kolmogorov-Smirnov and Wasserstein-1, all columns at once.

Where a figure is undefined it is masked, never NaN: results are masked arrays, whose ``tolist()``
has None, JSON's null, in those places.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from attributary.workers.maths.tdigest import TDigests

FloatArray = npt.NDArray[np.float64]
Masked = np.ma.MaskedArray[tuple[int, ...], np.dtype[np.float64]]


class Drift(NamedTuple):
    """Distances between two sets of columns; every member is (columns,) and masked alike.

    ks: largest difference of the distribution functions. ks_error: resolution in rank, the sum of
    both digests' ``rank_error``, 0 where both are exact. ks_critical: what ks exceeds with
    probability ``level`` although nothing changed (asymptotic, independent rows; blurring can only
    make that rarer, by the order of ks_error).
    wasserstein: area between the distribution functions, in the column's units.
    wasserstein_error: its resolution, from the widths of blurred centroids.
    wasserstein_scaled: in units of the first digest's inter-quartile range; also masked where that
    is 0.
    """

    ks: Masked
    ks_error: Masked
    ks_critical: Masked
    wasserstein: Masked
    wasserstein_error: Masked
    wasserstein_scaled: Masked


def digest_drift(
    baseline: TDigests,
    current: TDigests,
    *,
    level: float = 0.05,
    effective_rows: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
) -> Drift:
    """Return the drift of every column; masked where either side has no finite values.

    ``effective_rows``, (columns,) or one number for each side, replaces the counts in the critical
    value where rows are weighted or dependent. A constant column is fine: its distribution is a
    step. Raises ValueError where the columns differ in number.
    """
    if baseline.columns != current.columns:
        raise ValueError(f"{baseline.columns} and {current.columns} columns cannot be compared")
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; choose a probability between 0 and 1")
    present = (baseline.count > 0) & (current.count > 0)
    points = _union(baseline, current, present)
    # The functions are linear between knots: only both sides of every knot matter.
    after = baseline.cdf(points) - current.cdf(points)
    with np.errstate(over="ignore"):  # below the smallest float is -inf, where both are 0
        before_points = np.nextafter(points, -np.inf)
    before = baseline.cdf(before_points) - current.cdf(before_points)
    after[:, ~present] = before[:, ~present] = 0.0
    ks = np.maximum(np.abs(after), np.abs(before)).max(axis=0, initial=0.0)

    unit = _unit(points)
    scaled = _area(points / unit, after[:-1], before[1:])
    blur = _blur(baseline, unit) + _blur(current, unit)
    iqr = np.diff(baseline.quantile([0.25, 0.75]) / unit, axis=0)[0]
    spread = present & (iqr > 0)
    with np.errstate(over="ignore"):  # what is not finite is masked
        area, blur = scaled * unit, blur * unit
        scaled = scaled / np.where(spread, iqr, 1.0)
    n, m = (baseline.count, current.count) if effective_rows is None else effective_rows
    return Drift(
        _masked(ks, present),
        _masked(baseline.rank_error + current.rank_error, present),
        _masked(ks_critical(n, m, level), present),
        _masked(area, present),
        _masked(blur, present),
        _masked(scaled, spread),
    )


def ks_critical(n: npt.ArrayLike, m: npt.ArrayLike, level: float = 0.05) -> FloatArray:
    """Return sqrt(-ln(level/2)/2 · (n + m)/(n m)), at most 1, and 1 where a sample is empty.

    The two-sample Kolmogorov-Smirnov critical value for n and m independent rows (Smirnov, 1948).
    """
    a, b = np.asarray(n, dtype=np.float64), np.asarray(m, dtype=np.float64)
    some = (a > 0) & (b > 0)
    inverse = 1 / np.where(some, a, 1.0) + 1 / np.where(some, b, 1.0)
    value = np.sqrt(-np.log(level / 2) / 2 * inverse)
    critical: FloatArray = np.where(some, np.minimum(value, 1.0), 1.0)
    return critical


def _union(left: TDigests, right: TDigests, present: npt.NDArray[np.bool_]) -> FloatArray:
    """Return (m, columns): all knots of both, ascending; what is short repeats its last."""
    parts = [left.minimum[:, None], left.maximum[:, None], left.centroids.mean]
    parts += [right.minimum[:, None], right.maximum[:, None], right.centroids.mean]
    points = np.concatenate(parts, axis=1)
    points[~present] = 0.0
    last = np.maximum(left.maximum, right.maximum)
    last[~present] = 0.0
    union: FloatArray = np.sort(np.minimum(points, last[:, None]), axis=1).T
    return union


def _unit(points: FloatArray) -> FloatArray:
    """Return (columns,) a power of two that keeps differences of huge values finite."""
    huge = np.abs(points).max(axis=0, initial=0.0) > 2.0**1000
    return np.where(huge, 2.0**30, 1.0)


def _area(points: FloatArray, start: FloatArray, stop: FloatArray) -> FloatArray:
    """Return the integral of a piecewise linear function's absolute value."""
    left, right = np.abs(start), np.abs(stop)
    both = left + right
    height = both / 2
    crosses = (start * stop < 0) & (both > 0)
    height[crosses] = (left[crosses] ** 2 + right[crosses] ** 2) / (2 * both[crosses])
    return np.asarray((np.diff(points, axis=0) * height).sum(axis=0), dtype=np.float64)


def _blur(digests: TDigests, unit: FloatArray) -> FloatArray:
    """Return Σ w (width / 4) / Σ w over blurred centroids, of columns divided by ``unit``.

    A centroid's values spread over about its width, the distance of the middles to both neighbours:
    uniform ones lie a quarter of it away from their mean.
    """
    mean, weight, atom = digests.centroids
    used = weight > 0
    low, high = digests.minimum / unit, digests.maximum / unit
    place = np.where(used, mean / unit[:, None], high[:, None])
    chain = np.column_stack([low, place, high])
    width = (chain[:, 2:] - chain[:, :-2]) / 2
    total = weight.sum(axis=1)
    blurred = np.where(used & ~atom, weight * width, 0.0).sum(axis=1) / 4
    mean_blur: FloatArray = blurred / np.where(total > 0, total, 1.0)
    return mean_blur


def _masked(values: npt.ArrayLike, valid: npt.NDArray[np.bool_]) -> Masked:
    """Return ``values`` with what is invalid or not finite masked, and 0 under the mask."""
    numbers = np.broadcast_to(np.asarray(values, dtype=np.float64), valid.shape)
    keep = valid & np.isfinite(numbers)
    return np.ma.MaskedArray(np.where(keep, numbers, 0.0), mask=~keep)
