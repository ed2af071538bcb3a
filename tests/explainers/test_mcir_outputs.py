"""Outputs of several dimensions by every estimator, and the agreement of resamples on the head."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from attributary.workers.explainers.estimators import Estimator
from attributary.workers.explainers.mcir import mcir
from attributary.workers.explainers.resampling import bootstrap_counts
from attributary.workers.maths.agreement import jaccard_at_k, kendall_tau


@pytest.mark.parametrize(
    ("estimator", "allowed"), [("copula", 0.03), ("knn", 0.06), ("mixed", 0.08)]
)
def test_two_outputs_say_what_both_say_together(estimator: Estimator, allowed: float) -> None:
    rng = np.random.default_rng(0)
    A, B, noise = rng.standard_normal((3, 2000))
    Q = np.column_stack([A, A + B]) + rng.standard_normal((2000, 2))
    found = mcir(
        np.column_stack([A, B, noise]), Q, estimator=estimator, bootstraps=0,
        neighbourhoods=[[1], [0], []],
    )  # fmt: skip
    # From the determinants: of (A, B) together I = ½ ln |Cov Q|, Cov Q = [[2, 1], [1, 3]].
    assert found.joint[0] == pytest.approx(np.log(5) / 2, abs=allowed)
    # Given A what is left is B + noise of the second output; given B, A in both.
    assert found.unique[1] == pytest.approx(np.log(2) / 2, abs=allowed)
    assert found.unique[0] == pytest.approx(np.log(3) / 2, abs=allowed)
    assert found.marginal[2] == pytest.approx(0, abs=allowed)


def test_two_discrete_outputs_are_one_variable_of_pairs() -> None:
    both = np.array([(a, b) for a in (0, 1) for b in (0, 1, 2)] * 10, dtype=float)
    X = np.column_stack([both[:, 0], both[:, 1], both[:, 0] * 3 + both[:, 1]])
    found = mcir(
        X, both, kinds=["discrete"] * 4, estimator="plugin", bootstraps=0,
        neighbourhoods=[[1], [0], [0, 1]],
    )  # fmt: skip
    assert found.marginal == pytest.approx(np.log([2, 3, 6]))
    assert found.unique == pytest.approx([np.log(2), np.log(3), 0], abs=1e-12)
    assert found.score == pytest.approx([2 * np.log(2) / np.log(12), 2 * np.log(3) / np.log(18), 0])


@pytest.mark.parametrize("block_length", [1, 10])
def test_stability_is_the_mean_agreement_of_all_pairs_of_resamples(block_length: int) -> None:
    rng = np.random.default_rng(1)
    X = np.repeat(rng.standard_normal((120, 6)), 2, axis=1) + 0.4 * rng.standard_normal((120, 12))
    Q = X[:, 0] + X[:, 3] + 0.5 * X[:, 4] + rng.standard_normal(120)
    near = [[i ^ 1] for i in range(10)] + [[], []]
    found = mcir(
        X, Q, neighbourhoods=near, bootstraps=5, head=3, block_length=block_length, rng=2
    ).stability
    assert found is not None
    draw, scores = np.random.default_rng(2), []
    for _ in range(5):
        rows = np.repeat(np.arange(120), bootstrap_counts(120, draw, block_length))
        scores.append(mcir(X[rows], Q[rows], neighbourhoods=near, bootstraps=0).score[:10])
    pairs = list(combinations(scores, 2))
    assert found.head == 3
    assert found.kendall == pytest.approx(np.mean([kendall_tau(a, b) for a, b in pairs]))
    assert found.jaccard == pytest.approx(np.mean([jaccard_at_k(a, b, 3) for a, b in pairs]))
    with pytest.raises(ValueError, match="head 0"):
        mcir(X, Q, head=0)
