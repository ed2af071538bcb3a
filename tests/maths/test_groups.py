"""Proposed groups, and the error of block scores."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from attributary.workers.maths.cir import cir
from attributary.workers.maths.groups import correlation, propose_groups


def test_blocks_of_correlated_columns_are_found() -> None:
    rng = np.random.default_rng(1)
    base = rng.normal(size=(800, 3))
    X = np.column_stack(
        [
            base[:, 0],
            base[:, 1],
            np.exp(base[:, 0] + 0.1 * rng.normal(size=800)),
            -base[:, 1] + 0.3 * rng.normal(size=800),
            base[:, 2],
            base[:, 0] + 0.2 * rng.normal(size=800),
            np.full(800, 7.0),
        ]
    )
    assert propose_groups(correlation(X)) == [[0, 2, 5], [1, 3], [4], [6]]
    assert propose_groups(correlation(X), threshold=0.9999) == [[column] for column in range(7)]


def test_correlation_is_spearmans() -> None:
    rng = np.random.default_rng(2)
    X = np.round(rng.normal(size=(60, 4)), 1)
    X[:, 2] += X[:, 0]
    np.testing.assert_allclose(correlation(X), spearmanr(X).statistic, atol=1e-12)
    X[:5, 1] = np.nan
    X[:, 3] = np.nan
    found = correlation(X)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(np.diag(found), [1, 1, 1, 0])
    # Missing values take the middle rank: they neither add to a correlation nor hide it.
    kept = np.isfinite(X[:, 1])
    assert found[0, 1] == pytest.approx(spearmanr(X[kept][:, :2]).statistic, abs=0.05)


def test_a_threshold_is_an_average() -> None:
    matrix = np.array([[1.0, 0.8, 0.5], [0.8, 1, 0.7], [0.5, 0.7, 1]])
    assert propose_groups(matrix, threshold=0.6) == [[0, 1, 2]]
    assert propose_groups(matrix, threshold=0.61) == [[0, 1], [2]]
    assert propose_groups(np.eye(1)) == [[0]]
    assert propose_groups(np.zeros((0, 0))) == []
    with pytest.raises(ValueError, match="square"):
        propose_groups(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="threshold"):
        propose_groups(matrix, threshold=0.0)


def test_block_error_is_the_spread_of_the_block_score() -> None:
    """Over repetitions, of members that coincide in a row, and that exclude each other."""
    rng = np.random.default_rng(3)
    scores, errors = [], []
    for _ in range(300):
        n = 600
        shared = rng.normal(size=(n, 1))
        numeric = shared + 0.3 * rng.normal(size=(n, 3))
        level = rng.integers(0, 12, n)
        levels = np.eye(12)[level]
        y = 0.6 * shared[:, 0] + 0.8 * (level == 2) + rng.normal(size=n)
        found = cir(np.hstack([numeric, levels]), y, groups={"n": [0, 1, 2], "l": [5, 6]})
        scores.append([found.blocks[name].item() for name in "nl"])
        errors.append([found.block_stderr[name].item() for name in "nl"])
    spread = np.std(scores, axis=0)
    np.testing.assert_allclose(np.mean(errors, axis=0), spread, rtol=0.15)
