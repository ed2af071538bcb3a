"""Metrics of explanations against hand calculations and brute force, on any explainer."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attributary.workers.explainers.metrics import (
    deletion_curve,
    input_stability,
    insertion_curve,
    local_accuracy,
    neighbours,
    output_stability,
    prediction_gap,
    relative_stability,
    run_stability,
)
from attributary.workers.explainers.t_explainer import t_explain

Floats = npt.NDArray[np.float64]

W = np.array([1.0, -2.0, 0.5, 0.0])


def probability(X: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-(X @ W))))


def slopes(X: Floats) -> Floats:
    p = probability(X)
    return (p * (1 - p))[:, None] * W


def draw(n: int, d: int = 4, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).normal(size=(n, d))


def test_the_exact_values() -> None:
    e, near = [[1.0, 2.0]], [[[1.1, 1.8]]]
    ris = input_stability(e, near, [[1.0, 1.0]], [[[1.1, 1.0]]])
    assert ris[0, 0] == pytest.approx(1.414213562, abs=5e-10)
    ros = output_stability(e, near, [[0.4, 0.6]], [[[0.45, 0.55]]])
    assert ros[0, 0] == pytest.approx(0.941357449, abs=5e-10)


def test_near_zero_keeps_its_sign_and_counts_as_1e_5() -> None:
    def ris(e: float, near: float, x: float, x_near: float) -> float:
        return float(input_stability([[e]], [[[near]]], [[x]], [[[x_near]]])[0, 0])

    assert ris(0.0, 1.0, 1.0, 2.0) == pytest.approx(1e5)
    assert ris(-1e-9, 1e-9, 1.0, 2.0) == pytest.approx(2e-9 / 1e-5)
    assert ris(2e-5, 1e-5, 1.0, 2.0) == pytest.approx(0.5)
    assert ris(1.0, 1.1, 1e-8, 2e-8) == pytest.approx(0.1 / 1e-3)
    # Equal inputs: the divisor is 1e-5, not 0.
    assert ris(1.0, 1.1, 1.0, 1.0) == pytest.approx(0.1 / 1e-5)
    # The sign of the divisor cannot matter to a norm, but a clip to +1e-5 of a negative value would.
    both = input_stability([[-1e-9]], [[[-2e-5]]], [[1.0]], [[[2.0]]])
    assert both[0, 0] == pytest.approx((2e-5 - 1e-9) / 1e-5)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 4), st.integers(1, 5))
def test_stability_by_brute_force(seed: int, n: int, k: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    X, near = rng.normal(size=(n, d)), rng.normal(size=(n, k, d))
    weights = rng.normal(size=(d, 3))
    model = lambda X: X @ weights  # noqa: E731
    explain = lambda X: X**2 - 1  # noqa: E731
    found = relative_stability(explain, model, X, near, batch_size=3)
    for i in range(n):
        ris, ros = [], []
        for q in range(k):
            a, b = model(X[i : i + 1])[0], model(near[i, q : q + 1])[0]
            kept = a.argmax() == b.argmax()
            assert found.kept[i, q] == kept
            if not kept:
                assert np.isnan(found.ris[i, q])
                continue
            e, e_near = explain(X[i]), explain(near[i, q])
            change = sum(((u - v) / u) ** 2 for u, v in zip(e, e_near, strict=True)) ** 0.5
            moved = sum(((u - v) / u) ** 2 for u, v in zip(X[i], near[i, q], strict=True)) ** 0.5
            answered = sum(((u - v) / u) ** 2 for u, v in zip(a, b, strict=True)) ** 0.5
            ris.append(change / moved)
            ros.append(change / answered)
            assert found.ris[i, q] == pytest.approx(ris[-1], rel=1e-6)
            assert found.ros[i, q] == pytest.approx(ros[-1], rel=1e-6)
        if ris:
            assert found.ris_max[i] == pytest.approx(max(ris), rel=1e-6)
            assert found.ris_mean[i] == pytest.approx(np.mean(ris), rel=1e-6)
            assert found.ros_max[i] == pytest.approx(max(ros), rel=1e-6)
            assert found.ros_mean[i] == pytest.approx(np.mean(ros), rel=1e-6)
        else:
            assert np.isnan([found.ris_max[i], found.ris_mean[i], found.ros_max[i]]).all()


def test_neighbours_across_the_boundary_are_left_out() -> None:
    X = np.array([[0.1, 0.0, 0.0, 0.0]])
    near = np.array([[[0.2, 0, 0, 0], [-0.2, 0, 0, 0]]])
    assert relative_stability(slopes, probability, X, near).kept.tolist() == [[True, False]]
    margin = lambda X: 3 * (X @ W)  # noqa: E731 - no probability: no classes
    assert relative_stability(slopes, margin, X, near).kept.all()


def test_neighbours_are_seeded_and_keep_what_must_stay() -> None:
    X, size = draw(200), np.array([0.1, 0.0, 0.1, 1.0])
    found = neighbours(X, 50, size, np.random.default_rng(4))
    assert np.array_equal(found, neighbours(X, 50, size, np.random.default_rng(4)))
    np.testing.assert_allclose((found - X[:, None]).std(axis=(0, 1)), size, rtol=0.02)
    assert np.array_equal(found[:, :, 1], np.repeat(X[:, 1:2], 50, axis=1))


def test_runs_of_a_deterministic_explainer_are_equal_and_of_a_sampler_are_not() -> None:
    X = draw(6)
    background = draw(30, seed=2)
    explain = lambda X: t_explain(probability, X, background=background).contributions  # noqa: E731
    assert run_stability(explain, X, runs=4).tolist() == [0.0] * 6
    values = iter([1.0, 1.25, 0.5, 1.0])
    assert run_stability(lambda X: np.full_like(X, next(values)), X, runs=4).tolist() == [0.5] * 6

    def spoils(X: Floats) -> Floats:
        X += 1.0
        return X

    assert run_stability(spoils, X, runs=3).max() == 0.0


@pytest.mark.parametrize("baseline", [0.0, np.array([0.5, -1.0, 0.0, 2.0])])
def test_prediction_gaps_by_hand(baseline: Any) -> None:
    X = draw(20)
    e = slopes(X) * X
    for k in (1, 2, 4):
        keep = prediction_gap(probability, X, e, k, variant="keep", baseline=baseline)
        delete = prediction_gap(probability, X, e, k, variant="delete", baseline=baseline)
        for i in range(20):
            top = sorted(range(4), key=lambda j: -abs(e[i, j]))[:k]
            kept, deleted = np.broadcast_to(baseline, 4).copy(), X[i].copy()
            kept[top] = X[i, top]
            deleted[top] = np.broadcast_to(baseline, 4)[top]
            f, a, b = probability(np.vstack([X[i], kept, deleted]))
            assert keep[i] == pytest.approx(1 - abs(f - a), abs=1e-12)
            assert delete[i] == pytest.approx(abs(f - b), abs=1e-12)
    assert prediction_gap(probability, X, e, 4, variant="keep") == pytest.approx(np.ones(20))


def test_local_accuracy_counts_rows() -> None:
    output, e = np.array([1.0, 2.0, 3.0, 4.0]), np.array([[0.5, 0.5]] * 4)
    assert local_accuracy(output, 0.0, e, 1e-9) == 0.25
    assert local_accuracy(output, 0.0, e, 1.0) == 0.5
    assert local_accuracy(output, [0.0, 1.0, 2.0, 3.0], e, 0.0) == 1.0
    # The bare slopes of a linear model do not add up, the contributions do.
    X, background = draw(9), draw(20, seed=3)
    linear = t_explain(lambda X: X @ W, X, background=background)
    for values, share in ((linear.contributions, 1.0), (linear.gradient, 0.0)):
        assert local_accuracy(linear.output, linear.base_value, values, 1e-6) == share


def test_curves_by_hand() -> None:
    X, e = np.array([[1.0, 2.0, 4.0]]), np.array([[0.1, -0.5, 0.7]])
    total = lambda X: X.sum(axis=1)  # noqa: E731
    deletion, insertion = deletion_curve(total, X, e), insertion_curve(total, X, e)
    assert deletion.value.tolist() == [[7.0, 3.0, 2.0, 0.0]]
    assert insertion.value.tolist() == [[0.0, 4.0, 5.0, 7.0]]
    assert deletion.share.tolist() == [0.0, 1 / 3, 2 / 3, 1.0]
    assert deletion.area[0] == pytest.approx((5.0 + 2.5 + 1.0) / 3)
    assert insertion.area[0] == pytest.approx((2.0 + 4.5 + 6.0) / 3)
    based = deletion_curve(total, X, e, baseline=[1.0, 1.0, 1.0], batch_size=2)
    assert based.value.tolist() == [[7.0, 4.0, 4.0, 3.0]]


def test_good_attributions_beat_their_opposite() -> None:
    X = draw(50)
    e = W * X
    better, worse = deletion_curve(probability, X, e), deletion_curve(probability, X, -e)
    assert (better.area <= worse.area + 1e-12).all()
    better, worse = insertion_curve(probability, X, e), insertion_curve(probability, X, -e)
    assert (better.area >= worse.area - 1e-12).all()


def test_what_does_not_fit_is_refused() -> None:
    X, near = draw(3), np.zeros((3, 2, 4))
    cases: list[tuple[str, Any]] = [
        (r"the explainer returned shape \(3,\)", lambda: run_stability(lambda X: X[:, 0], X)),
        ("values not finite", lambda: run_stability(lambda X: X * np.nan, X)),
        ("runs is 1", lambda: run_stability(slopes, X, runs=1)),
        ("neighbours of X", lambda: relative_stability(slopes, probability, X, near[:, :, :3])),
        (r"expected \(n, q\)", lambda: input_stability(X, near[:2], X, near)),
        ("k is 5", lambda: prediction_gap(probability, X, X, 5, variant="keep")),
        ("k is 0", lambda: prediction_gap(probability, X, X, 0, variant="keep")),
        ("variant is", lambda: prediction_gap(probability, X, X, 1, variant="zero")),  # type: ignore[arg-type]
        ("attributions have shape", lambda: deletion_curve(probability, X, X[:, :2])),
        ("all finite", lambda: deletion_curve(probability, X, X * np.inf)),
        ("2 outputs; pass one", lambda: deletion_curve(lambda X: X[:, :2], X, X)),
        (r"expected \(n,\) and \(n, d\)", lambda: local_accuracy([1.0], 0.0, X, 0.1)),
    ]
    for says, call in cases:
        with pytest.raises(ValueError, match=says):
            call()
