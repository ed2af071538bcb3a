"""Agreement figures against brute force, scipy and scikit-learn, and their undefined cases."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import linalg, stats
from sklearn.metrics import ndcg_score

from attributary.workers.maths.agreement import (
    jaccard_at_k,
    kendall_tau,
    ndcg_at_k,
    procrustes_residual,
    spearman_rho,
    symmetric_kl,
)

Vector = npt.NDArray[np.float64]


def pairs(seed: int, d: int = 30) -> tuple[Vector, Vector]:
    rng = np.random.default_rng(seed)
    a = rng.standard_normal(d)
    b = a + rng.standard_normal(d)
    return (a, b) if seed % 2 else (np.round(a), np.round(b))


@pytest.mark.parametrize("seed", range(6))
def test_kendall_by_counting_pairs(seed: int) -> None:
    a, b = pairs(seed)
    score, free_a, free_b = 0.0, 0, 0
    for i, j in itertools.combinations(range(a.size), 2):
        score += np.sign(a[i] - a[j]) * np.sign(b[i] - b[j])
        free_a += a[i] != a[j]
        free_b += b[i] != b[j]
    assert kendall_tau(a, b) == pytest.approx(score / np.sqrt(free_a * free_b), rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_spearman_as_in_scipy(seed: int) -> None:
    a, b = pairs(seed)
    assert spearman_rho(a, b) == pytest.approx(stats.spearmanr(a, b).statistic, rel=1e-12)


def test_rank_figures_at_their_ends() -> None:
    a = np.array([3.0, 1.0, 4.0, 1.5, 9.0])
    for figure in (kendall_tau, spearman_rho):
        assert figure(a, np.exp(a)) == pytest.approx(1.0, abs=1e-15)
        assert figure(a, -a) == pytest.approx(-1.0, abs=1e-15)


def test_jaccard_of_the_leading_features() -> None:
    a = np.arange(20.0)
    assert jaccard_at_k(a, a) == 1.0
    assert jaccard_at_k(a, -a) == 0.0
    b = a.copy()
    b[[0, 1, 18, 19]] = b[[18, 19, 0, 1]]  # two of the eight are swapped out
    assert jaccard_at_k(a, b) == pytest.approx(6 / 10)
    assert jaccard_at_k(a, b, k=3) == pytest.approx(1 / 5)
    # Ties go to the lower index, on both sides alike.
    assert jaccard_at_k([1, 1, 1, 0], [1, 1, 1, 2], k=2) == pytest.approx(1 / 3)
    assert jaccard_at_k(a[:8], -a[:8]) is None


@pytest.mark.parametrize("k", [1, 3, 8, 40])
@pytest.mark.parametrize("seed", range(4))
def test_ndcg_as_in_scikit_learn(seed: int, k: int) -> None:
    a, b = pairs(seed)
    relevance = np.abs(a)
    assert ndcg_at_k(relevance, b, k) == pytest.approx(ndcg_score([relevance], [b], k=k), rel=1e-12)
    assert ndcg_at_k(relevance, relevance, k) == pytest.approx(1.0)
    assert ndcg_at_k(relevance * 1e300, b, k) == pytest.approx(ndcg_at_k(relevance, b, k))


def test_ndcg_by_hand() -> None:
    # Order by score: relevances 1, 3, 2; ideal 3, 2, 1.
    found = 1 + 3 / np.log2(3) + 2 / 2
    ideal = 3 + 2 / np.log2(3) + 1 / 2
    assert ndcg_at_k([3, 2, 1], [2, 1, 3]) == pytest.approx(found / ideal)
    assert ndcg_at_k([0, 0, 0], [1, 2, 3]) is None
    with pytest.raises(ValueError, match="negative"):
        ndcg_at_k([-1, 2], [1, 2])


def test_procrustes_as_in_scipy_and_blind_to_rotation_and_scale() -> None:
    rng = np.random.default_rng(11)
    A, B = rng.standard_normal((12, 3)), rng.standard_normal((12, 3))
    unit_a, unit_b = A / np.linalg.norm(A), B / np.linalg.norm(B)
    R, _ = linalg.orthogonal_procrustes(unit_a, unit_b)
    expected = np.linalg.norm(unit_a @ R - unit_b)
    assert procrustes_residual(A, B) == pytest.approx(expected, rel=1e-12)
    turn = stats.ortho_group.rvs(3, random_state=12)
    assert procrustes_residual(A, 5 * A @ turn) == pytest.approx(0.0, abs=1e-14)
    assert procrustes_residual(1e300 * A, B @ turn) == pytest.approx(expected, rel=1e-12)
    assert procrustes_residual([1.0, 0.0], [0.0, 1.0]) == pytest.approx(np.sqrt(2))
    assert procrustes_residual([1.0, 2.0], [-1.0, -2.0]) == pytest.approx(0.0, abs=1e-15)
    with pytest.raises(ValueError, match="shapes"):
        procrustes_residual(A, B[:, :2])


def test_symmetric_kl_of_two_gaussians() -> None:
    # Quantiles of a normal are a sample without noise; the kernel adds h² to both variances, and
    # two normals of variance v at distance m have symmetric divergence m² / (2 v).
    # Larger distances would meet the ends of the sample, where its density is not normal.
    base = stats.norm.ppf((np.arange(2_000) + 0.5) / 2_000)
    variance = base.var(ddof=1)
    width = 1.06 * np.sqrt(variance) * 2_000**-0.2
    for shift in (0.1, 0.25, 0.5):
        expected = shift**2 / (2 * (variance + width**2))
        assert symmetric_kl(base, base + shift) == pytest.approx(expected, rel=0.01)


def test_symmetric_kl_against_scipy_s_kernel_densities() -> None:
    rng = np.random.default_rng(13)
    a, b = rng.standard_normal(60), rng.gamma(2.0, size=60)
    width = 1.06 * np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2) * 60**-0.2
    p, q = (stats.gaussian_kde(s, bw_method=width / s.std(ddof=1)) for s in (a, b))
    low, high = min(a.min(), b.min()) - 3 * width, max(a.max(), b.max()) + 3 * width
    grid = np.linspace(low, high, 20_001)
    u, v = p(grid), q(grid)
    u, v = u / u.sum(), v / v.sum()
    expected = np.sum((u - v) * np.log(u / v)) / 2
    assert symmetric_kl(a, b) == pytest.approx(expected, rel=1e-3)
    assert symmetric_kl(a, b) == pytest.approx(symmetric_kl(b, a), rel=1e-12)
    assert symmetric_kl(1e200 * a, 1e200 * b) == pytest.approx(symmetric_kl(a, b), rel=1e-9)
    assert symmetric_kl(a, a) == 0.0


def test_symmetric_kl_of_separate_samples_is_finite() -> None:
    far = symmetric_kl([0.0, 1.0, 2.0], [1e6, 1e6 + 1, 1e6 + 2])
    assert far is not None
    assert np.isfinite(far)
    assert far > 1e3


@pytest.mark.parametrize("figure", [kendall_tau, spearman_rho, jaccard_at_k, ndcg_at_k])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([], []),
        ([1.0], [2.0]),
        ([2.0] * 12, [2.0] * 12),
        (list(range(12)), [2.0] * 12),
        ([np.nan] * 12, list(range(12))),
        ([1.0, np.nan, np.inf], [1.0, 2.0, 3.0]),
    ],
)
def test_undefined_figures_are_null(
    figure: Callable[..., float | None], a: list[Any], b: list[Any]
) -> None:
    assert figure(a, b) is None


def test_undefined_distances_are_null() -> None:
    assert procrustes_residual([0.0, 0.0], [1.0, 2.0]) is None
    assert procrustes_residual([], []) is None
    assert procrustes_residual([np.nan, 1.0], [1.0, 0.0]) is None
    for a, b in (([], [1.0, 2.0]), ([1.0], [1.0, 2.0]), ([3.0, 3.0], [3.0, 3.0]), ([0, 0], [0, 0])):
        assert symmetric_kl(a, b) is None


def test_scores_that_are_not_finite_are_left_out() -> None:
    a, b = pairs(1)
    holes = a.copy()
    holes[[3, 7]] = np.nan
    kept = np.isfinite(holes)
    for figure in (kendall_tau, spearman_rho, jaccard_at_k, procrustes_residual):
        assert figure(holes, b) == pytest.approx(figure(a[kept], b[kept]))
    assert symmetric_kl(holes, b) == pytest.approx(symmetric_kl(a[kept], b))


def test_arguments_that_do_not_fit_are_refused() -> None:
    for figure in (kendall_tau, spearman_rho, jaccard_at_k):
        with pytest.raises(ValueError, match="expected"):
            figure([1.0, 2.0], [1.0])
    for ranked in (jaccard_at_k, ndcg_at_k):
        with pytest.raises(ValueError, match="k is 0"):
            ranked([1.0, 2.0], [1.0, 2.0], k=0)
