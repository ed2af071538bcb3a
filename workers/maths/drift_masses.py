"""Drift of counts: population stability of bins, categories that come and go, missing values.

Where a figure is undefined it is masked (arrays) or None (scalars), never NaN; a masked array's
``tolist()`` has None in those places.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

FloatArray = npt.NDArray[np.float64]
Masked = np.ma.MaskedArray[tuple[int, ...], np.dtype[np.float64]]

#: The smallest share a bin is taken to hold: an empty bin against one of share s then adds about
#: s · ln(s / 1e-4), 0.46 for s = 0.1, instead of infinity.
PSI_FLOOR = 1e-4
_Z95 = 1.959963984540054


class Stability(NamedTuple):
    """Population stability index, (…,): the leading axes of the masses.

    critical: what the index exceeds with probability ``level`` although nothing changed,
    chi²(bins - 1) · (1/n + 1/m), bins being those that either side fills.
    """

    psi: Masked
    critical: Masked


class MissingChange(NamedTuple):
    """Change of a missing-value rate, current minus baseline, with its 95 % limits; (columns,)."""

    change: Masked
    low: Masked
    high: Masked


class Category(NamedTuple):
    """A category on one side only: its share there.

    chance: probability of not seeing it on the other side although its share was the same there.
    """

    share: float
    chance: float


class CategoryChange(NamedTuple):
    """Categories that appeared and vanished, most frequent first; distance: total variation.

    All are None where a side is empty.
    """

    appeared: dict[str, Category] | None
    vanished: dict[str, Category] | None
    distance: float | None


def stability(
    baseline: npt.ArrayLike,
    current: npt.ArrayLike,
    *,
    floor: float = PSI_FLOOR,
    level: float = 0.05,
    effective_rows: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
) -> Stability:
    """Return the PSI Σ (q - p) ln(q / p) of bin masses (…, bins), p baseline, q current shares.

    Shares below ``floor`` count as ``floor`` (without renormalising, so that a bin empty on both
    sides adds nothing and every term is ≥ 0). Masked where a side has no mass or only one bin is
    filled by both, where the index cannot move. ``effective_rows`` replaces the masses in the
    critical value (B. Yurdakul and J. Naranjo, "Statistical properties of the population stability
    index", 2020). Raises ValueError for masses that are negative, not finite, or of other bins.
    """
    base, now = _masses(baseline), _masses(current)
    if base.shape[-1] != now.shape[-1]:
        raise ValueError(f"{base.shape[-1]} and {now.shape[-1]} bins cannot be compared")
    if not 0 < floor < 1:
        raise ValueError(f"floor is {floor}; choose a share between 0 and 1")
    n, m = base.sum(axis=-1), now.sum(axis=-1)
    valid = (n > 0) & (m > 0)
    p = np.maximum(base / np.where(n > 0, n, 1.0)[..., None], floor)
    q = np.maximum(now / np.where(m > 0, m, 1.0)[..., None], floor)
    psi = ((q - p) * np.log(q / p)).sum(axis=-1)
    filled = np.count_nonzero((base > 0) | (now > 0), axis=-1)
    valid = valid & (filled > 1)
    rows = (n, m) if effective_rows is None else effective_rows
    inverse = sum(1 / np.maximum(np.asarray(r, dtype=np.float64), 1e-300) for r in rows)
    critical = stats.chi2.isf(level, np.maximum(filled - 1, 1)) * inverse
    return Stability(_masked(psi, valid), _masked(critical, valid))


def category_change(baseline: Mapping[str, float], current: Mapping[str, float]) -> CategoryChange:
    """Compare counts by category; zero counts are as good as absent.

    Raises ValueError for counts that are negative or not finite.
    """
    before = {k: v for k, v in baseline.items() if v != 0}
    after = {k: v for k, v in current.items() if v != 0}
    n = float(_masses([*before.values(), 0.0]).sum())
    m = float(_masses([*after.values(), 0.0]).sum())
    if not (n > 0 and m > 0):
        return CategoryChange(None, None, None)
    distance = sum(
        abs(before.get(name, 0.0) / n - after.get(name, 0.0) / m) for name in before | after
    )
    return CategoryChange(
        _absent({k: v / m for k, v in after.items() if k not in before}, n),
        _absent({k: v / n for k, v in before.items() if k not in after}, m),
        min(distance / 2, 1.0),
    )


def missing_change(
    baseline_missing: npt.ArrayLike,
    baseline_rows: npt.ArrayLike,
    current_missing: npt.ArrayLike,
    current_rows: npt.ArrayLike,
) -> MissingChange:
    """Return the change of the share of missing values, counts (columns,) or one number each.

    The limits are Newcombe's (R. Newcombe, "Interval estimation for the difference between
    independent proportions", 1998, method 10, from two Wilson intervals): they are meaningful at
    no missing values, where a standard error would be 0. Masked where a side has no rows. Raises
    ValueError where counts are negative or exceed the rows.
    """
    x1, n1, x2, n2 = np.broadcast_arrays(
        *(_masses(c) for c in (baseline_missing, baseline_rows, current_missing, current_rows))
    )
    if np.any(x1 > n1) or np.any(x2 > n2):
        raise ValueError("more values are missing than there are rows")
    valid = (n1 > 0) & (n2 > 0)
    p1, low1, high1 = _wilson(x1, n1)
    p2, low2, high2 = _wilson(x2, n2)
    change = p2 - p1
    return MissingChange(
        _masked(change, valid),
        _masked(change - np.hypot(p2 - low2, high1 - p1), valid),
        _masked(change + np.hypot(high2 - p2, p1 - low1), valid),
    )


def _wilson(x: FloatArray, n: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the share x/n and its 95 % Wilson limits; where n is 0, those of no rows."""
    rows = np.where(n > 0, n, 1.0)
    p = x / rows
    z2 = _Z95**2
    centre = (p + z2 / (2 * rows)) / (1 + z2 / rows)
    half = _Z95 / (1 + z2 / rows) * np.sqrt(p * (1 - p) / rows + z2 / (4 * rows**2))
    return p, np.minimum(centre - half, p), np.maximum(centre + half, p)


def _absent(shares: dict[str, float], other_rows: float) -> dict[str, Category]:
    ordered = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
    return {name: Category(share, float((1 - share) ** other_rows)) for name, share in ordered}


def _masses(values: npt.ArrayLike) -> FloatArray:
    masses = np.asarray(values, dtype=np.float64)
    if not np.all(np.isfinite(masses) & (masses >= 0)):
        raise ValueError("counts and masses must be finite and not negative")
    return masses


def _masked(values: npt.ArrayLike, valid: npt.NDArray[np.bool_]) -> Masked:
    numbers = np.broadcast_to(np.asarray(values, dtype=np.float64), np.shape(valid))
    keep = np.asarray(valid) & np.isfinite(numbers)
    return np.ma.MaskedArray(np.where(keep, numbers, 0.0), mask=~keep)
