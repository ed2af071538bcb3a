"""How far two vectors of scores agree: by rank, by their leading features, by their distribution.

Every function returns a float, or None (JSON's null) where the figure is undefined: too few
scores, or all of them tied. Pairs in which either score is not finite are left out.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import stats

FloatArray = npt.NDArray[np.float64]

_POINTS, _MOST_POINTS = 512, 4096
_CHUNK = 256


def kendall_tau(a: npt.ArrayLike, b: npt.ArrayLike) -> float | None:
    """Return Kendall's tau_b of scores (d,), in O(d log d)."""
    x, y = _pairs(a, b)
    return None if _flat(x) or _flat(y) else float(stats.kendalltau(x, y).statistic)


def spearman_rho(a: npt.ArrayLike, b: npt.ArrayLike) -> float | None:
    """Return Spearman's rho of scores (d,): the correlation of their average ranks."""
    x, y = _pairs(a, b)
    if _flat(x) or _flat(y):
        return None
    r, s = stats.rankdata(x), stats.rankdata(y)
    r, s = r - r.mean(), s - s.mean()
    return float(np.clip((r @ s) / np.sqrt((r @ r) * (s @ s)), -1.0, 1.0))


def jaccard_at_k(a: npt.ArrayLike, b: npt.ArrayLike, k: int = 8) -> float | None:
    """Return |A ∩ B| / |A ∪ B| of the k highest scores of each, ties to the lower index.

    None where there are no more than k scores: both sets would be everything.
    """
    _check_k(k)
    x, y = _pairs(a, b)
    if _flat(x) or _flat(y) or x.size <= k:
        return None
    top = np.intersect1d(_leading(x, k), _leading(y, k)).size
    return top / (2 * k - top)


def ndcg_at_k(relevance: npt.ArrayLike, scores: npt.ArrayLike, k: int = 8) -> float | None:
    """Return NDCG@k of ``scores`` (d,) against ``relevance`` (d,) ≥ 0, gain = relevance.

    Discount 1/log2(rank + 1); tied scores share the mean gain of their places (F. McSherry and M.
    Najork, 2008). None where nothing is relevant. Raises ValueError for negative relevance.
    """
    _check_k(k)
    gain, score = _pairs(relevance, scores)
    if np.any(gain < 0):
        raise ValueError("relevance must not be negative; pass strengths, not signed scores")
    if _flat(score) or not gain.any():
        return None
    gain = gain / gain.max()
    discount = np.zeros(gain.size)
    discount[:k] = 1 / np.log2(np.arange(2, min(k, gain.size) + 2))
    _, group, size = np.unique(-score, return_inverse=True, return_counts=True)
    last = np.cumsum(size)
    reach = np.concatenate([[0.0], np.cumsum(discount)])
    mean_gain = np.bincount(group, weights=gain) / size
    found = mean_gain @ (reach[last] - reach[last - size])
    return float(min(found / (np.sort(gain)[::-1] @ discount), 1.0))


def procrustes_residual(a: npt.ArrayLike, b: npt.ArrayLike) -> float | None:
    """Return min over orthogonal R of ‖A R − B‖, A and B (d, c) scaled to Frobenius norm 1.

    0: the same up to rotation, reflection and scale; sqrt(2): nothing in common. Rows of features,
    columns of outputs; a vector is one column. From the singular values of AᵀB (P. Schönemann,
    "A generalized solution of the orthogonal Procrustes problem", 1966). None where a side is zero.
    """
    A, B = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if A.shape != B.shape or A.ndim not in (1, 2):
        raise ValueError(f"shapes {A.shape} and {B.shape} must be equal, (d,) or (d, c)")
    A, B = (m[:, None] if m.ndim == 1 else m for m in (A, B))
    finite = np.isfinite(A).all(axis=1) & np.isfinite(B).all(axis=1)
    A, B = A[finite], B[finite]
    if not (A.any() and B.any()):
        return None
    A, B = (m / np.abs(m).max() for m in (A, B))
    A, B = A / np.linalg.norm(A), B / np.linalg.norm(B)
    # The residual itself, not sqrt(2 - 2 Σσ), which loses half the digits near 0.
    U, _, V = np.linalg.svd(A.T @ B)
    return float(np.linalg.norm(A @ (U @ V) - B))


def symmetric_kl(a: npt.ArrayLike, b: npt.ArrayLike) -> float | None:
    """Return (KL(p‖q) + KL(q‖p)) / 2 in nats, p and q Gaussian kernel densities of the scores.

    a (m,) and b (n,) need not be of one length. Both kernels have one bandwidth, Silverman's rule
    1.06 s min(m, n)^(-1/5) with s² the mean of both variances; the grid reaches 3 bandwidths
    beyond all scores, in 512 points or more (up to 4,096) to put 4 in a bandwidth. Log-densities
    keep far tails finite. None where a side has fewer than 2 finite scores or both are constant.
    """
    x, y = (np.asarray(v, dtype=np.float64).ravel() for v in (a, b))
    x, y = x[np.isfinite(x)], y[np.isfinite(y)]
    if min(x.size, y.size) < 2:
        return None
    scale = max(np.abs(x).max(), np.abs(y).max())
    if scale == 0:
        return None
    x, y = x / scale, y / scale
    width = 1.06 * np.sqrt((x.var(ddof=1) + y.var(ddof=1)) / 2) * min(x.size, y.size) ** -0.2
    if not width > 1e-12:
        return None
    low, high = min(x.min(), y.min()) - 3 * width, max(x.max(), y.max()) + 3 * width
    points = int(np.clip(np.ceil(4 * (high - low) / width), _POINTS, _MOST_POINTS))
    grid = np.linspace(low, high, points)
    log_p, log_q = _log_density(x, grid, width), _log_density(y, grid, width)
    # (p - q) ln(p/q) is never negative, so neither is the sum.
    gap = (np.exp(log_p) - np.exp(log_q)) * (log_p - log_q)
    return float(gap.sum() / 2)


def _log_density(sample: FloatArray, grid: FloatArray, width: float) -> FloatArray:
    """Return the log of the kernel density on the grid, normalised to sum 1 there."""
    parts = [
        _log_sum_exp(-(((piece[:, None] - sample) / width) ** 2) / 2)
        for piece in np.split(grid, range(_CHUNK, grid.size, _CHUNK))
    ]
    density = np.concatenate(parts)
    return density - _log_sum_exp(density)


def _log_sum_exp(values: FloatArray) -> FloatArray:
    """Return ln Σ exp over the last axis of finite values; SciPy's takes any, at several times the cost."""
    most = values.max(-1, keepdims=True)
    total: FloatArray = np.log(np.exp(values - most).sum(-1)) + most[..., 0]
    return total


def _pairs(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1:
        raise ValueError(f"scores have shapes {x.shape} and {y.shape}; expected (d,) twice")
    finite = np.isfinite(x) & np.isfinite(y)
    return x[finite], y[finite]


def _flat(scores: FloatArray) -> bool:
    return scores.size < 2 or bool(np.all(scores == scores[0]))


def _leading(scores: FloatArray, k: int) -> npt.NDArray[np.intp]:
    return np.argsort(-scores, kind="stable")[:k]


def _check_k(k: int) -> None:
    if k < 1:
        raise ValueError(f"k is {k}; choose 1 or more")
