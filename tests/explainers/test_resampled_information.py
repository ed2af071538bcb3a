"""Many resamples at once: the figures of a loop that takes the rows again, ranks them and inverts blocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import kendalltau, rankdata

from attributary.workers.explainers import gaussian_copula, linear_algebra, resampled_information
from attributary.workers.explainers.linked_blocks import linked_blocks
from attributary.workers.explainers.mcir import mcir
from attributary.workers.explainers.normal_scores import NormalScores
from attributary.workers.explainers.resampling import bootstrap_counts, half

Array = np.ndarray
RIDGE = 1e-6


def correlation_of(rows: Array) -> Array:
    """The correlation (k, k) of the normal scores of rows (n, k); 0 for constant columns."""
    Z = ndtri((rankdata(rows, axis=0) - 0.5) / len(rows))
    Z -= Z.mean(axis=0)
    scale = np.sqrt((Z**2).mean(axis=0))
    Z /= np.where(scale > 1e-9, scale, np.inf)
    found = Z.T @ Z / len(rows)
    np.fill_diagonal(found, 1.0)
    return found


def loop(
    columns: Array, counts: Array, outputs: Sequence[int], candidates: Array
) -> tuple[Array, Array]:
    """U and J (b, k, M + 1), a resample, a feature and a size at a time."""
    k, most = candidates.shape
    unique, joint = np.empty((2, len(counts), k, most + 1))
    for b, taken in enumerate(counts):
        S = correlation_of(np.repeat(columns, taken, axis=0)) + RIDGE * np.eye(columns.shape[1])

        def logdet(*index: int, S: Array = S) -> float:
            return float(np.linalg.slogdet(S[np.ix_(index, index)])[1]) if index else 0.0

        for i in range(k):
            for r in range(most + 1):
                near = [int(j) for j in candidates[i, :r] if j >= 0]
                every = logdet(i, *outputs, *near)
                given = logdet(i, *near)
                unique[b, i, r] = (given + logdet(*outputs, *near) - logdet(*near) - every) / 2
                joint[b, i, r] = (given + logdet(*outputs) - every) / 2
    return unique, joint


def example(q: int) -> tuple[Array, Array, list[int]]:
    """Columns with ties, a constant and a duplicate, candidates of the first nine, and the outputs."""
    rng = np.random.default_rng(q)
    X = rng.standard_normal((70, 3)) @ rng.standard_normal((3, 9)) + rng.standard_normal((70, 9))
    X[:, 2], X[:, 4] = np.round(X[:, 2]), 3.0
    X[:, 7], X[:, 8] = X[:, 0], X[:, 8] > 0
    Q = X[:, [0, 3]][:, :1] + rng.standard_normal((70, q))
    candidates = np.array([rng.permutation([j for j in range(9) if j != i])[:3] for i in range(9)])
    candidates[5, 1:] = candidates[6] = -1
    return np.hstack([X, Q]), candidates, list(range(9, 9 + q))


def resamples(n: int, many: int, block_length: int = 1) -> Array:
    rng = np.random.default_rng(many)
    return np.array([bootstrap_counts(n, rng, block_length) for _ in range(many)])


def halves(n: int, many: int, block_length: int) -> Array:
    rng, found = np.random.default_rng(many), np.zeros((many, n), dtype=np.int64)
    for taken in found:
        taken[half(n, rng, block_length)] = 1
    return found


@pytest.mark.parametrize("q", [1, 3])
@pytest.mark.parametrize(
    "counts",
    [resamples(70, 9), resamples(70, 4, 7), halves(70, 6, 8)],
    ids=["rows", "blocks", "halves"],
)
def test_batches_are_the_loop(q: int, counts: Array) -> None:
    columns, candidates, outputs = example(q)
    blocks = linked_blocks([row[row >= 0].tolist() for row in candidates], np.array(outputs))
    shares: list[float] = []
    found = resampled_information.resampled_information(
        NormalScores(columns),
        counts,
        np.array(outputs),
        candidates,
        blocks,
        [0, 1, 2, 3],
        ridge=RIDGE,
        told=shares.append,
    )
    unique, joint = loop(columns, counts, outputs, candidates)
    np.testing.assert_allclose(found.unique, unique, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.joint, joint, rtol=0, atol=1e-9)
    assert unique.max() > 0.1, "there is something to find"
    assert (shares[0], len(shares)) == (0.0, len(blocks))


def test_parts_that_memory_bounds_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    columns, candidates, outputs = example(2)
    counts, ends = resamples(70, 11), np.array(outputs)
    blocks = [np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, *outputs])]

    def run() -> bytes:
        found = resampled_information.resampled_information(
            NormalScores(columns), counts, ends, candidates, blocks, [3, 0], ridge=RIDGE
        )
        return found.unique.tobytes() + found.joint.tobytes()

    whole = run()
    assert run() == whole
    scores = NormalScores(columns)
    every, two = (
        resampled_information.resampled_information(
            scores, counts, ends, candidates, blocks, sizes, ridge=RIDGE
        )
        for sizes in (range(4), [3, 0])
    )
    assert (two.joint == every.joint[..., [3, 0]]).all()
    for module, name, most in (
        (linear_algebra, "_SCORES_AT_ONCE", 70 * 12 * 3),
        (resampled_information, "_CORRELATIONS_AT_ONCE", 300),
        (gaussian_copula, "_NUMBERS_AT_ONCE", 1),
    ):
        monkeypatch.setattr(module, name, most)
        assert run() == whole, name


def test_many_rows_need_wider_sums() -> None:
    rng = np.random.default_rng(5)
    columns = np.column_stack([rng.standard_normal(40_000), rng.integers(0, 3, 40_000)])
    counts = resamples(40_000, 3)
    found = NormalScores(columns).correlations(counts, np.array([1, 0]))
    for one, taken in zip(found, counts, strict=True):
        direct = correlation_of(np.repeat(columns, taken, axis=0)[:, ::-1])
        np.testing.assert_allclose(one, direct, rtol=0, atol=1e-12)


def test_the_switch_judges_the_copula_by_these_halves() -> None:
    rng = np.random.default_rng(8)
    X = rng.standard_normal((80, 3))
    X[:, 1] += X[:, 0]
    Q = X.sum(axis=1) + rng.standard_normal(80)
    near = [[1, 2], [0], []]
    found = mcir(X, Q, neighbourhoods=near, estimator="switch", bootstraps=6, rng=3)
    # Resamples are drawn first, and not needed.
    drawing = np.random.default_rng(3)
    for _ in range(6):
        bootstrap_counts(80, drawing)
    taken = np.zeros((7, 80), dtype=np.int64)
    taken[0] = 1
    for one in taken[1:]:
        one[half(80, drawing)] = 1
    candidates = np.array([[1, 2], [0, -1], [-1, -1]])
    unique, joint = (
        figure[..., -1] for figure in loop(np.column_stack([X, Q]), taken, [3], candidates)
    )
    u, j = unique[0], joint[0]
    linear = (unique[1:] * j - joint[1:] * u) * 2 / (u + j) ** 2
    score, stderr = found.fixed["copula"]
    np.testing.assert_allclose(score, 2 * u / (u + j), rtol=0, atol=1e-9)
    np.testing.assert_allclose(stderr, linear.std(axis=0, ddof=1), rtol=0, atol=1e-9)


def test_intervals_and_stability_are_those_of_the_loop() -> None:
    rng = np.random.default_rng(9)
    X = rng.standard_normal((90, 5)) + rng.standard_normal((90, 1))
    Q = X @ [0.6, 0.5, 0.5, 0.6, 0.5] + rng.standard_normal(90)
    near = np.array([[1, 2], [0, 4], [3, 0], [4, 1], [2, 3]])
    found = mcir(X, Q, neighbourhoods=near.tolist(), bootstraps=8, head=2, rng=4)
    drawing = np.random.default_rng(4)
    counts = np.array([bootstrap_counts(90, drawing) for _ in range(8)])
    unique, joint = (f[..., -1] for f in loop(np.column_stack([X, Q]), counts, [5], near))
    drawn = 2 * unique / (unique + joint)
    expected = np.quantile(drawn, [0.025, 0.975], axis=0).T
    np.testing.assert_allclose(found.interval, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.stderr, drawn.std(axis=0, ddof=1), rtol=0, atol=1e-9)
    pairs = [(a, b) for a in range(8) for b in range(a)]
    heads = [set(np.argsort(-row)[:2].tolist()) for row in drawn]
    overlap = [len(heads[a] & heads[b]) / len(heads[a] | heads[b]) for a, b in pairs]
    tau = [kendalltau(drawn[a], drawn[b]).statistic for a, b in pairs]
    assert found.stability is not None
    assert 0.0 < np.mean(overlap) < 1.0
    assert found.stability.jaccard == pytest.approx(np.mean(overlap), abs=1e-12)
    assert found.stability.kendall == pytest.approx(np.mean(tau), abs=1e-12)
