"""MCIR-M against its closed forms, the exact values, and inputs that break lesser estimators."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import digamma
from scipy.stats import kendalltau

from attributary.workers.explainers.auto_neighbourhood import (
    best,
    criteria,
    kendall_matrix,
    leftover_dependence,
    mean_agreement,
)
from attributary.workers.explainers.gaussian_copula import copula_information
from attributary.workers.explainers.mcir import NO_NEIGHBOURHOOD, SMALL_DENOMINATOR, mcir
from attributary.workers.explainers.neighbour_information import knn_information, mixed_information
from attributary.workers.explainers.neighbourhood_screens import (
    distance_correlation,
    interaction_correlation,
    mutual_information_correlation,
    screened,
)
from attributary.workers.explainers.normal_scores import NormalScores
from attributary.workers.explainers.resampling import bootstrap_counts, half

Q6 = np.arange(1.0, 7.0)
X6 = np.array([[1, 3, 2, 4, 6, 5], [2, 1, 4, 3, 6, 5]], dtype=float).T
CHAIN = {
    0.0: 1.0,
    0.25: 0.980247688,
    0.5: 0.909513483,
    0.75: 0.727884478,
    0.9: 0.453416561,
    0.95: 0.279060118,
    0.99: 0.068612854,
    1.0: 0.0,
}


def chain_correlation(alpha: float) -> np.ndarray:
    """Columns X1, X2, X3, Q of the chain: Q = X1 + X3/2 + e, Var e = 1/4, X2 = αX1 + √(1−α²)E."""
    deviation = np.sqrt(1.5)
    c = np.eye(4)
    c[0, 1] = c[1, 0] = alpha
    c[0, 3] = c[3, 0] = 1 / deviation
    c[1, 3] = c[3, 1] = alpha / deviation
    c[2, 3] = c[3, 2] = 0.5 / deviation
    return c


@pytest.mark.parametrize(("alpha", "expected"), CHAIN.items())
def test_the_chain_has_its_exact_scores(alpha: float, expected: float) -> None:
    found = copula_information(
        chain_correlation(alpha),
        np.array([0, 1, 2]),
        np.array([3]),
        np.array([[1], [0], [0]]),
        ridge=0 if alpha < 1 else 1e-12,
    )
    unique, joint = found.unique[:, 1], found.joint[:, 1]
    score = 2 * unique / (unique + joint)
    np.testing.assert_allclose(score[0], expected, atol=1e-9 if alpha < 1 else 1e-5)
    np.testing.assert_allclose(score[1], 0.0, atol=1e-9 if alpha < 1 else 1e-5)
    np.testing.assert_allclose(score[2], 0.557885891, atol=1e-9)
    np.testing.assert_allclose(joint[0], np.log(3) / 2, atol=1e-9)


def test_six_rows_have_their_exact_copula_figures() -> None:
    found = mcir(X6, Q6, neighbourhoods=[[1], [0]], ridge=0, bootstraps=0)
    assert found.unique[0] == pytest.approx(0.317136268, abs=1e-9)
    assert found.joint[0] == pytest.approx(0.739422907, abs=1e-9)
    assert found.score[0] == pytest.approx(0.600318990, abs=1e-9)


TRUTH = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 25, dtype=float)


@pytest.mark.parametrize(
    ("output", "unique", "joint", "score"),
    [
        (TRUTH[:, 0] != TRUTH[:, 1], np.log(2), np.log(2), 1.0),
        (TRUTH[:, 0] * TRUTH[:, 1], 0.346573590, 0.562335145, 0.762614720),
    ],
    ids=["xor", "and"],
)
def test_discrete_tables_have_their_exact_scores(
    output: np.ndarray, unique: float, joint: float, score: float
) -> None:
    kinds = ["discrete"] * 3
    found = mcir(
        TRUTH,
        output.astype(float),
        kinds=kinds,
        neighbourhoods=[[1], [0]],
        estimator="plugin",
        bootstraps=0,
    )
    np.testing.assert_allclose(found.unique, unique, atol=1e-9)
    np.testing.assert_allclose(found.joint, joint, atol=1e-9)
    np.testing.assert_allclose(found.score, score, atol=1e-9)


def test_a_copy_has_no_unique_information() -> None:
    copy = np.column_stack([TRUTH[:, 0], TRUTH[:, 0]])
    found = mcir(
        copy,
        TRUTH[:, 0],
        kinds=["discrete"] * 3,
        neighbourhoods=[[1], [0]],
        estimator="plugin",
        bootstraps=0,
    )
    assert found.score.tolist() == [0.0, 0.0]


def test_information_of_a_block_is_that_of_dense_determinants() -> None:
    rng = np.random.default_rng(1)
    A = rng.standard_normal((9, 7))
    C = np.corrcoef(A.T @ A + np.diag(rng.random(7)))
    found = copula_information(
        C, np.array([0, 1]), np.array([5, 6]), np.array([[2, 3, 4], [3, -1, -1]]), ridge=0.01
    )
    S = C + 0.01 * np.eye(7)

    def logdet(*index: int) -> float:
        return float(np.linalg.slogdet(S[np.ix_(index, index)])[1]) if index else 0.0

    for row, i, phi in ((0, 0, [2, 3, 4]), (1, 1, [3])):
        for r in range(4):
            near = phi[:r]
            u = (
                logdet(i, *near) + logdet(5, 6, *near) - logdet(*near) - logdet(i, 5, 6, *near)
            ) / 2
            j = (logdet(i, *near) + logdet(5, 6) - logdet(i, 5, 6, *near)) / 2
            assert found.unique[row, r] == pytest.approx(u, abs=1e-12)
            assert found.joint[row, r] == pytest.approx(j, abs=1e-12)


def correlated(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((n, 2))
    X = np.column_stack(
        [shared[:, 0] + 0.4 * rng.standard_normal(n) for _ in range(3)]
        + [shared[:, 1] + 0.6 * rng.standard_normal(n) for _ in range(3)]
        + [rng.standard_normal(n)]
    )
    return X, X[:, 0] + 0.7 * X[:, 3] + 0.5 * rng.standard_normal(n)


def test_monotone_maps_change_nothing() -> None:
    X, Q = correlated(300, 3)
    mapped = np.column_stack([np.exp(X[:, j]) if j % 2 else X[:, j] ** 3 for j in range(7)])
    plain, other = mcir(X, Q, bootstraps=20), mcir(mapped, np.arctan(Q), bootstraps=20)
    assert plain.neighbourhoods == other.neighbourhoods
    for name in ("score", "unique", "joint", "marginal", "interval"):
        np.testing.assert_allclose(getattr(plain, name), getattr(other, name), atol=1e-9)


def test_the_dependent_cause_is_told_from_its_shadows() -> None:
    X, Q = correlated(2000, 4)
    found = mcir(X, Q)
    assert found.ranking()[:2] == [0, 3] or found.ranking()[:2] == [3, 0]
    assert set(found.neighbourhoods[0]) <= {1, 2}
    assert not found.ranked[6]
    assert NO_NEIGHBOURHOOD in found.flags[6]
    assert SMALL_DENOMINATOR in found.flags[6]
    assert found.marginal[6] < 0.01
    inside = (found.interval[:, 0] <= found.score + 0.05) & (
        found.score <= found.interval[:, 1] + 0.05
    )
    assert inside.all()
    assert found.stability is not None
    assert found.stability.kendall is not None
    assert found.stability.kendall > 0.5


def test_two_runs_are_the_same_to_the_last_bit() -> None:
    X, Q = correlated(200, 5)
    one, two = (mcir(X, Q, rng=7, estimator="switch", bootstraps=5) for _ in range(2))
    assert one.interval.tobytes() == two.interval.tobytes()
    assert one.estimator == two.estimator


def test_sizes_are_chosen_by_the_criterion() -> None:
    rng = np.random.default_rng(6)
    scores = rng.random((2, 10, 6))
    scores[1] = scores[1][0]
    found = criteria([1, 3], scores, np.array([0.5, 0.4, 0.2, 0.1]), most=6)
    expected = np.mean(
        [
            (1 - kendalltau(scores[0, a], scores[0, b]).statistic) / 2
            for a in range(10)
            for b in range(a)
        ]
    )
    assert found[0].instability == pytest.approx(expected, abs=1e-12)
    assert found[1].instability == pytest.approx(0.0, abs=1e-12)
    assert found[0].leftover == pytest.approx(0.8)
    assert found[1].penalty == pytest.approx(0.05)
    assert best(found).size == 3
    assert best([found[0], found[0]]).size == 1


def test_leftover_dependence_is_the_strongest_outside() -> None:
    rng = np.random.default_rng(7)
    A = rng.standard_normal((400, 4)) @ rng.standard_normal((4, 4))
    C = np.corrcoef(A.T)
    found = leftover_dependence(C, np.array([[1, 2], [0, 3], [-1, -1], [0, -1]]), ridge=0.0)

    def cmi(i: int, j: int, given: list[int]) -> float:
        P = np.linalg.inv(C[np.ix_([i, j, *given], [i, j, *given])])
        return float(-np.log(1 - P[0, 1] ** 2 / (P[0, 0] * P[1, 1])) / 2)

    at_0 = [max(cmi(0, 1, []), cmi(0, 2, [])), max(cmi(1, 0, []), cmi(1, 3, [])), cmi(3, 0, [])]
    at_1 = [cmi(0, 2, [1]), cmi(1, 3, [0]), 0.0]
    np.testing.assert_allclose(found, [np.mean(at_0), np.mean(at_1), 0.0], atol=1e-9)


def test_kendall_by_signs_is_kendall() -> None:
    rng = np.random.default_rng(8)
    scores = np.vstack([rng.integers(0, 5, (3, 40)), np.ones(40)]).astype(float)
    tau = kendall_matrix(scores)
    for a in range(3):
        for b in range(3):
            assert tau[a, b] == pytest.approx(kendalltau(scores[a], scores[b]).statistic, abs=1e-12)
    assert np.isnan(tau[3]).all()
    assert mean_agreement(np.ones((4, 5))) is None


def test_neighbours_measure_gaussian_information() -> None:
    rng = np.random.default_rng(9)
    truth = -np.log(1 - 0.81) / 2
    values = []
    for _ in range(12):
        x = rng.standard_normal((1000, 1))
        y = 0.9 * x + np.sqrt(0.19) * rng.standard_normal((1000, 1))
        values.append((knn_information(x, y), mixed_information(x, y)))
    np.testing.assert_allclose(np.mean(values, axis=0), [truth, truth + 0.035], atol=0.025)
    values = []
    for _ in range(6):
        z = rng.standard_normal((1000, 1))
        x, y = z + rng.standard_normal((1000, 1)), z + rng.standard_normal((1000, 1))
        values.append((knn_information(x, y), knn_information(x, y, z), mixed_information(x, y, z)))
    np.testing.assert_allclose(np.mean(values, axis=0), [-np.log(0.75) / 2, 0, 0.03], atol=0.025)


def test_neighbours_on_the_edge_are_counted_as_the_distances_say() -> None:
    x = np.round(np.random.default_rng(21).standard_normal((500, 1)), 2)
    y = np.zeros((500, 1))
    distance = np.abs(x - x.T)
    np.fill_diagonal(distance, np.inf)
    radius = np.sort(distance, axis=1)[:, 2]
    inside = (distance <= radius[:, None]).sum(axis=1)
    nearest = np.where(radius > 0, 3, inside)
    expected = np.mean(digamma(nearest) + digamma(499) - digamma(inside) - digamma(499))
    assert mixed_information(x, y) == pytest.approx(float(expected), abs=1e-12)


def test_mixed_blocks_measure_a_shifted_mean() -> None:
    rng = np.random.default_rng(10)
    label = rng.integers(0, 2, 3000)
    x = rng.standard_normal(3000) + 3.0 * label
    grid = np.linspace(-8, 11, 20001)
    p = [np.exp(-((grid - m) ** 2) / 2) / np.sqrt(2 * np.pi) for m in (0, 3)]
    mix = (p[0] + p[1]) / 2
    entropy = -np.trapezoid(mix * np.log(np.maximum(mix, 1e-300)), grid)
    truth = entropy - (1 + np.log(2 * np.pi)) / 2
    found = mixed_information(x[:, None], label[:, None] * 100.0)
    assert found == pytest.approx(truth, abs=0.03)


def test_kinds_decide_which_estimators_may_run() -> None:
    rng = np.random.default_rng(11)
    X = np.column_stack([rng.standard_normal(200), rng.integers(0, 3, 200)])
    Q = X[:, 0] + X[:, 1]
    kinds = ["continuous", "discrete", "continuous"]
    found = mcir(
        X, Q, kinds=kinds, neighbourhoods=[[1], [0]], estimator="switch", bootstraps=6, rng=0
    )
    assert found.estimator == ["mixed", "mixed"]
    assert set(found.fixed) == {"mixed"}
    continuous = mcir(X, Q, neighbourhoods=[[1], []], estimator="switch", bootstraps=6)
    assert set(continuous.fixed) == {"copula", "knn"}
    steadiest = np.argmin([error for _, error in continuous.fixed.values()], axis=0)
    assert continuous.estimator == [list(continuous.fixed)[s] for s in steadiest]
    with pytest.raises(ValueError, match="needs discrete columns"):
        mcir(X, Q, kinds=kinds, estimator="plugin")
    with pytest.raises(ValueError, match="needs continuous columns"):
        mcir(X, Q, kinds=kinds)


def test_an_estimator_that_finds_nothing_does_not_seem_steady() -> None:
    """Too few rows a cell: `mixed` finds no information in any half, where there is .92."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, 10, 200)
    X = np.column_stack([first, (first + rng.integers(0, 2, 200)) % 10]).astype(float)
    Q = (first + rng.integers(0, 4, 200)) % 10
    found = mcir(
        X,
        Q,
        kinds=["discrete"] * 3,
        neighbourhoods=[[1], [0]],
        estimator="switch",
        bootstraps=10,
    )
    score, error = found.fixed["mixed"]
    assert score[0] == 0.0
    assert error[0] > 1.0
    assert found.estimator == ["plugin", "plugin"]
    alone = mcir(
        X, Q, kinds=["discrete"] * 3, neighbourhoods=[[1], [0]], estimator="mixed", bootstraps=10
    )
    assert alone.interval.tolist() == [[0.0, 1.0]] * 2
    assert not np.isinf(alone.stderr).any()


def test_an_interaction_is_seen_only_given_the_output() -> None:
    rng = np.random.default_rng(12)
    X = rng.standard_normal((2000, 3))
    Q = (X[:, :1] * X[:, 1:2] > 0) + 0.1 * rng.standard_normal((2000, 1))
    C = NormalScores(X).correlation()
    assert screened(np.abs(C), 0.3, 6).size == 0
    assert distance_correlation(X)[0, 1] < 0.15
    assert mutual_information_correlation(X)[0, 1] < 0.2
    given = interaction_correlation(X, Q)
    assert given[0, 1] > 0.5
    assert given[0, 2] < 0.2
    found = mcir(X, Q, screen="interaction", bootstraps=10)
    assert found.neighbourhoods == [[1], [0], []]


def test_the_interaction_screen_has_a_threshold_of_its_own() -> None:
    """A gate reaches .38 there: above what unrelated pairs do, below the other screens' .6."""
    rng = np.random.default_rng(22)
    X = rng.standard_normal((1000, 6))
    Q = np.where(X[:, 1] > 0, X[:, 0], 0.0) + 0.6 * rng.standard_normal(1000)
    sizes = {"sizes": (1,), "bootstraps": 0}
    none: list[list[int]] = [[]] * 4
    assert mcir(X, Q, screen="interaction", **sizes).neighbourhoods == [[1], [0], *none]
    assert not mcir(X, Q, screen="interaction", threshold=0.6, **sizes).ranked.any()
    X[:, 1] = 0.5 * X[:, 0] + 0.8 * X[:, 1]
    assert not mcir(X, Q, **sizes).ranked.any()
    assert mcir(X, Q, threshold=0.3, **sizes).ranked.any()


def test_distance_correlation_is_its_definition() -> None:
    rng = np.random.default_rng(13)
    X = rng.standard_normal((40, 2))
    X[:, 1] += X[:, 0] ** 2

    def centred(v: np.ndarray) -> np.ndarray:
        D = np.abs(v[:, None] - v)
        return D - D.mean(0) - D.mean(1)[:, None] + D.mean()

    a, b = centred(X[:, 0]), centred(X[:, 1])
    expected = np.sqrt((a * b).mean() / np.sqrt((a * a).mean() * (b * b).mean()))
    assert distance_correlation(X)[0, 1] == pytest.approx(expected, abs=1e-12)


def test_hostile_columns_stay_finite() -> None:
    rng = np.random.default_rng(14)
    X, Q = correlated(120, 15)
    X = np.column_stack([X, X[:, 0], np.full(120, 3.0), np.round(X[:, 1]), rng.integers(0, 2, 120)])
    for estimator in ("copula", "knn", "mixed"):
        found = mcir(X, Q, estimator=estimator, bootstraps=4)
        for values in (found.score, found.unique, found.joint, found.marginal, found.interval):
            assert np.isfinite(values).all(), estimator
        assert found.score[7] == pytest.approx(0.0, abs=0.05)
        assert not found.ranked[8]
        assert found.marginal[8] <= 1e-9
    with pytest.raises(ValueError, match="ridge"):
        mcir(X, Q, ridge=0, bootstraps=0)


@pytest.mark.parametrize("shape", [(4, 1), (5, 3), (8, 40), (30, 1)])
def test_small_samples_and_wide_tables_are_handled(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(16)
    X = rng.standard_normal(shape)
    X[:, -1] = X[:, 0] + 0.01 * X[:, -1]
    found = mcir(X, X[:, 0] + 0.1 * rng.standard_normal(shape[0]), bootstraps=5)
    assert np.isfinite(found.score).all()
    assert ((found.score >= 0) & (found.score <= 1)).all()


def test_a_vector_output_counts_all_its_dimensions() -> None:
    rng = np.random.default_rng(17)
    X = rng.standard_normal((4000, 2))
    Q = np.column_stack([X[:, 0], X[:, 1]]) + rng.standard_normal((4000, 2))
    found = mcir(X, Q, neighbourhoods=[[1], [0]], bootstraps=0)
    np.testing.assert_allclose(found.unique, np.log(2) / 2, atol=0.03)
    np.testing.assert_allclose(found.joint, np.log(2), atol=0.03)


def test_blocks_of_neighbouring_rows_widen_intervals_of_dependent_rows() -> None:
    rng = np.random.default_rng(18)
    slow = np.repeat(rng.standard_normal((60, 3)), 20, axis=0)
    X = np.column_stack([slow[:, 0] + slow[:, 1], slow[:, 0]]) + 0.1 * rng.standard_normal(
        (1200, 2)
    )
    Q = slow[:, 0] + slow[:, 2]
    alone = mcir(X, Q, neighbourhoods=[[1], [0]], bootstraps=100)
    blocks = mcir(X, Q, neighbourhoods=[[1], [0]], bootstraps=100, block_length=20)
    assert (blocks.stderr > 1.5 * alone.stderr).all()


def test_resamples_keep_their_size_and_their_blocks() -> None:
    rng = np.random.default_rng(19)
    counts = bootstrap_counts(100, rng, 7)
    assert counts.sum() == 100
    rows = half(100, rng, 10)
    assert rows.size == 50
    assert (rows.reshape(5, 10) % 10 == np.arange(10)).all()
    assert half(7, rng).size == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.ones((3, 2)), "Q": np.ones(3)}, "at least 4 rows"),
        ({"Q": np.ones(9)}, "expected"),
        ({"X": np.full((10, 2), np.nan)}, "NaN"),
        ({"kinds": ["continuous"]}, "kinds must be 3"),
        ({"estimator": "magic"}, "choose from"),
        ({"screen": "magic"}, "choose from"),
        ({"sizes": (1, 9)}, "sizes are"),
        ({"neighbourhoods": [[0], [0]]}, "distinct other columns"),
        ({"neighbourhoods": [[1]]}, "give one each"),
        ({"bootstraps": -1}, "0 or more"),
    ],
)
def test_wrong_arguments_are_named(change: dict[str, object], message: str) -> None:
    rng = np.random.default_rng(20)
    arguments: dict[str, object] = {"X": rng.random((10, 2)), "Q": rng.random(10), **change}
    with pytest.raises(ValueError, match=message):
        mcir(**arguments)  # type: ignore[arg-type]


def test_ties_of_a_screen_go_to_the_lower_index_however_they_are_rounded() -> None:
    affinity = np.array([[1.0, 0.7 - 1e-15, 0.7], [0.7, 1.0, 0.2], [0.7, 0.2, 1.0]])
    assert screened(affinity, 0.6, 6).tolist() == [[1, 2], [0, -1], [0, -1]]
