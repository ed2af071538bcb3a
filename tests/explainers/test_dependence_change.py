"""Change of dependence against a direct computation, on streams that are quiet and that are not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from attributary.workers.explainers.dependence_change import dependence_change

D = 8


def rows(seed: int, n: int = 600, between: float = 0.8) -> np.ndarray:
    """Features 0 and 1 correlated by ``between``, 2 to 5 by .8 through a common part, 6 and 7 alone."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D))
    X[:, 1] = between * X[:, 0] + np.sqrt(1 - between**2) * X[:, 1]
    X[:, 2:6] = np.sqrt(0.8) * rng.standard_normal((n, 1)) + np.sqrt(0.2) * X[:, 2:6]
    return X


def normal_correlation(X: np.ndarray) -> np.ndarray:
    ranks = stats.rankdata(X, axis=0)
    return np.corrcoef(stats.norm.ppf((ranks - 0.5) / len(X)), rowvar=False)


def test_the_change_is_that_of_the_correlations_of_normal_scores() -> None:
    before, now = rows(0, 500), rows(1, 700, between=0.3)
    found = dependence_change(before, now, threshold=0.6)
    r, s = normal_correlation(before)[0, 1], normal_correlation(now)[0, 1]
    z = abs(np.arctanh(s) - np.arctanh(r)) / np.sqrt(1 / 497 + 1 / 697)
    # Seven pairs are at or above the threshold in one of the two: (0, 1) and six of 2 to 5.
    assert z > stats.norm.isf(0.01 / 2 / 7)
    assert found.pair == (0, 1)
    assert found.largest == pytest.approx(abs(s - r), abs=1e-12)


def test_a_quiet_stream_has_no_change_beyond_chance() -> None:
    before = rows(100)
    found = [dependence_change(before, rows(seed), threshold=0.6).largest for seed in range(60)]
    # One in a hundred by construction, against one and the same reference.
    assert sum(change > 0 for change in found) <= 3
    assert max(found) < 0.1


def test_a_planted_change_is_found_whichever_way_it_goes() -> None:
    for seed in range(20):
        far, near = rows(seed, between=0.4), rows(50 + seed, between=0.8)
        for before, now in ((near, far), (far, near)):
            found = dependence_change(before, now, threshold=0.6)
            assert found.pair == (0, 1)
            assert 0.25 < found.largest < 0.55


def test_distributions_may_drift_while_dependence_stays() -> None:
    before, now = rows(0), rows(1, between=0.5)
    moved = np.column_stack([np.exp(3 * now[:, 0]) + 100, *(-7 * now[:, 1:] ** 3).T])
    found = dependence_change(before, now, threshold=0.6)
    turned = dependence_change(before, np.column_stack([moved[:, 0], -moved[:, 1:]]), threshold=0.6)
    assert turned == found


def test_pairs_that_are_nobodys_neighbours_do_not_count() -> None:
    before, now = rows(0, between=0.0), rows(1, between=0.5)
    assert dependence_change(before, now, threshold=0.6).pair is None
    assert dependence_change(before, now, threshold=0.4).pair == (0, 1)


def test_dependent_rows_count_as_fewer() -> None:
    before, now = rows(0), rows(1, between=0.6)
    assert dependence_change(before, now, threshold=0.6).pair == (0, 1)
    assert dependence_change(before, now, threshold=0.6, block_length=60).pair is None


def test_constants_copies_one_feature_and_other_shapes() -> None:
    X = rows(0)
    X[:, 1], X[:, 7] = X[:, 0], 3.0
    assert dependence_change(X, X, threshold=0.6) == dependence_change(X, X, threshold=0.0)
    Y = rows(1)
    found = dependence_change(X, Y, threshold=0.6)
    assert found.pair == (0, 1)
    assert found.largest == pytest.approx(1 - normal_correlation(Y)[0, 1], abs=1e-9)
    assert dependence_change(X[:, :1], Y[:, :1], threshold=0.0).pair is None
    with pytest.raises(ValueError, match="expected the same features"):
        dependence_change(X, Y[:, :3], threshold=0.6)
