"""Quantiles and distribution functions read off centroids, for many columns at once.

A column is a chain of knots: its minimum, its centroids, its maximum. An atom spans the ranks of
its values and is flat there; a blurred centroid is one point at its middle rank; between knots the
curve is linear. So the curves are monotone, reproduce repeated values exactly, and equal numpy's
"linear" quantiles and the empirical distribution function while every centroid is an atom.
"""

from __future__ import annotations

import numpy as np

from attributary.workers.maths.centroids import Centroids, FloatArray, IntArray


def quantile_curve(
    centroids: Centroids, count: IntArray, low: FloatArray, high: FloatArray, levels: FloatArray
) -> FloatArray:
    """Return (m, columns), the quantiles at ``levels`` (m,) of columns that all hold values.

    Rank distances are counted in the mean weight of a value, weight/count: 1 without weights, and
    any common factor of the weights cancels.
    """
    right = np.cumsum(centroids.weight, axis=1)
    total = right[:, -1]
    step = (total / count)[:, None]
    # Ranks run from 0 to total - step; an atom reaches from its first value to its last.
    slack = (centroids.weight - step) / 2
    middle = right - centroids.weight + slack
    reach = np.where(centroids.atom, np.maximum(slack, 0.0), 0.0)
    used = centroids.used()
    last = used[:, None] - 1
    # The first rank is 0 and the last total - step, but for end values lighter than the mean.
    first = np.minimum(middle - reach, 0.0)[:, 0]
    final = np.maximum(np.take_along_axis(middle + reach, last, axis=1)[:, 0], total - step[:, 0])
    begin = _chain(middle - reach, used, first, final)
    end = _chain(middle + reach, used, first, final)
    value = _chain(centroids.mean, used, low, high)

    rank = first + levels[:, None] * (final - first)
    node, after = _neighbours(begin, rank, used)
    gap = _at(begin, after) - _at(end, node)
    share = np.divide(rank - _at(end, node), gap, out=np.zeros(rank.shape), where=gap > 0)
    result = _between(_at(value, node), _at(value, after), np.clip(share, 0.0, 1.0))
    result[levels == 0] = low
    result[levels == 1] = high
    return result


def cdf_curve(
    centroids: Centroids, low: FloatArray, high: FloatArray, points: FloatArray
) -> FloatArray:
    """Return (m, columns), the share of the weight at or below ``points`` (m, columns)."""
    right = np.cumsum(centroids.weight, axis=1)
    total = right[:, -1]
    middle = right - centroids.weight / 2
    used = centroids.used()
    none = np.zeros_like(total)
    below = _chain(np.where(centroids.atom, right - centroids.weight, middle), used, none, total)
    upto = _chain(np.where(centroids.atom, right, middle), used, none, total)
    value = _chain(centroids.mean, used, low, high)

    node, after = _neighbours(value, points, used)
    share = _fraction(points, _at(value, node), _at(value, after))
    mass = _between(_at(upto, node), _at(below, after), share)
    mass = np.where(points < low, 0.0, np.where(points >= high, total, mass))
    return np.where(np.isnan(points), np.nan, mass / total)


def _chain(inner: FloatArray, used: IntArray, first: FloatArray, last: FloatArray) -> FloatArray:
    """Return (columns, places + 2): first, the used part of ``inner``, last, then inf."""
    columns, places = inner.shape
    chain = np.full((columns, places + 2), np.inf)
    chain[:, 0] = first
    np.copyto(chain[:, 1:-1], inner, where=np.arange(places) < used[:, None])
    chain[np.arange(columns), used + 1] = last
    return chain


def _neighbours(chain: FloatArray, points: FloatArray, used: IntArray) -> tuple[IntArray, IntArray]:
    """Return the last knot at or below each point (m, columns), clamped, and the knot after it."""
    below = np.empty(points.shape, dtype=np.int64)
    if points.shape[0] < points.shape[1]:
        for k, row in enumerate(points):
            below[k] = np.count_nonzero(chain <= row[:, None], axis=1)
    else:
        for column, row in enumerate(chain):
            below[:, column] = np.searchsorted(row, points[:, column], side="right")
    node = np.clip(below - 1, 0, used + 1)
    return node, np.minimum(node + 1, used + 1)


def _at(chain: FloatArray, node: IntArray) -> FloatArray:
    picked: FloatArray = chain[np.arange(chain.shape[0]), node]
    return picked


def _between(left: FloatArray, right: FloatArray, share: FloatArray) -> FloatArray:
    """Interpolate as np.quantile does, bit for bit, and without overflow between ±1e308."""
    with np.errstate(over="ignore"):
        gap = right - left
    wide = np.isinf(gap)
    gap[wide] = 0.0
    near = np.where(share < 0.5, left + gap * share, right - gap * (1 - share))
    near[wide] = left[wide] * (1 - share[wide]) + right[wide] * share[wide]
    clipped: FloatArray = np.clip(near, left, right)
    return clipped


def _fraction(points: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
    """Return where points lie from left (0) to right (1), clipped; 0 where both are equal."""
    scale = np.where(np.maximum(np.abs(left), np.abs(right)) > 1.0, 0.5, 1.0)
    inside = np.clip(points, left, right)
    gap = right * scale - left * scale
    share = np.zeros(gap.shape)
    np.divide(inside * scale - left * scale, gap, out=share, where=gap > 0)
    return share
