"""T-Explainer against derivatives in closed form, exact contrasts, and hostile models."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attributary.workers.explainers.batched import ModelOutputError
from attributary.workers.explainers.scales import closest_pair, neighbourhood, robust_scale
from attributary.workers.explainers.t_explainer import TExplanation, t_explain

Floats = npt.NDArray[np.float64]
Model = Callable[[Floats], Any]

WEIGHTS, OFFSET = np.array([1.0, -2.0, 0.5]), 0.1


def draw(n: int, d: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).normal(size=(n, d))


def logistic(X: Floats) -> Floats:
    # Sums column by column: the same for a row whatever batch it is in.
    return 1.0 / (1.0 + np.exp(-sum(X[:, j] * WEIGHTS[j] for j in range(3)) - OFFSET))


def network(seed: int, d: int = 16, outputs: int = 1) -> tuple[Model, Model]:
    """A network of two hidden layers of 32 and its derivative (b, c, d)."""
    rng = np.random.default_rng(seed)
    U, V = rng.normal(size=(d, 32)) / np.sqrt(d), rng.normal(size=(32, 32)) / np.sqrt(32)
    W = rng.normal(size=(32, outputs)) / np.sqrt(32)

    def model(X: Floats) -> Floats:
        found: Floats = np.tanh(np.tanh(X @ U) @ V) @ W
        return found[:, 0] if outputs == 1 else found

    def derivative(X: Floats) -> Floats:
        a = np.tanh(X @ U)
        b = np.tanh(a @ V)
        inner = np.einsum("nk,kc,jk->ncj", 1 - b * b, W, V)
        return np.asarray((inner * (1 - a * a)[:, None]) @ U.T)

    return model, derivative


# The exact values that the method must give.


def test_logistic_to_eight_digits() -> None:
    x = [[0.2, 0.4, 0.6]]
    found = t_explain(logistic, x, background=draw(50, 3))
    assert found.output[0] == pytest.approx(0.450166003, abs=5e-10)
    np.testing.assert_allclose(found.gradient, [[0.24751657, -0.49503315, 0.12375829]], atol=6e-9)
    fixed = t_explain(logistic, x, background=draw(50, 3), h=0.1)
    np.testing.assert_allclose(fixed.gradient, [[0.24731665, -0.4934383, 0.12373328]], atol=6e-9)
    np.testing.assert_allclose(fixed.h, 0.1, rtol=1e-12)


@pytest.mark.parametrize("h", [1e-4, 0.05, 1.0, 30.0, None])
def test_a_quadratic_is_exact_for_every_step(h: float | None) -> None:
    model = lambda X: X[:, 0] ** 2 + 2 * X[:, 1] ** 2 + X[:, 0] * X[:, 1]  # noqa: E731
    found = t_explain(model, [[1.0, 2.0]], background=draw(9, 2), h=h)
    np.testing.assert_allclose(found.gradient, [[4.0, 9.0]], rtol=1e-9)


def test_a_step_is_seen_once_the_difference_reaches_it() -> None:
    model = lambda X: (X[:, 0] > 0.5).astype(float)  # noqa: E731
    background = np.linspace(0.0, 1.0, 11)[:, None]
    for h, slope in ((0.05, 0.0), (0.2, 2.5)):
        found = t_explain(model, [[0.4]], background=background, h=h)
        assert found.gradient[0, 0] == pytest.approx(slope, rel=1e-12)


# Accuracy.


@pytest.mark.parametrize("seed", range(5))
def test_float64_slopes_are_within_1e_6_and_within_their_error(seed: int) -> None:
    model, derivative = network(seed)
    X, background = draw(40, 16, seed), draw(100, 16, seed + 50)
    found = t_explain(model, X, background=background)
    exact = derivative(X)[:, 0]
    assert found.precision == "float64"
    assert not found.piecewise_constant
    gap = np.abs(found.gradient - exact)
    assert gap.max() < 1e-8
    assert (gap <= 3.0 * found.gradient_error).mean() > 0.99
    assert found.gradient_error.max() < 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_float32_slopes_are_within_2e_3_and_within_their_error(seed: int) -> None:
    model, derivative = network(seed)
    single = lambda X: model(X.astype(np.float32)).astype(np.float32)  # noqa: E731

    def truly_single(X: Floats) -> Any:
        rng = np.random.default_rng(seed)
        U = (rng.normal(size=(16, 32)) / 4).astype(np.float32)
        V = (rng.normal(size=(32, 32)) / np.sqrt(32)).astype(np.float32)
        W = (rng.normal(size=(32, 1)) / np.sqrt(32)).astype(np.float32)
        return (np.tanh(np.tanh(X.astype(np.float32) @ U) @ V) @ W)[:, 0]

    X, background = draw(40, 16, seed), draw(100, 16, seed + 50)
    exact = derivative(X)[:, 0]
    for one in (single, truly_single):
        found = t_explain(one, X, background=background)
        assert found.precision == "float32"
        gap = np.abs(found.gradient - exact)
        assert gap.max() < 2e-3
        assert (gap <= 3.0 * found.gradient_error).mean() > 0.99
    # Taken for float64, the differences drown in round-off.
    wrong = t_explain(truly_single, X, background=background, precision="float64", max_iter=0)
    assert np.abs(wrong.gradient - exact).max() > 2e-3


CURVES: dict[str, tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]] = {
    "cos": (np.cos, lambda x: -np.sin(x)),
    "sin": (np.sin, np.cos),
    "cubic": (lambda x: 1 + x**2 + x**3, lambda x: 2 * x + 3 * x * x),
    "quartic": (lambda x: x**4 + 3, lambda x: 4 * x**3),
    "exp": (np.exp, np.exp),
    "cliff": (lambda x: np.tanh(8 * x), lambda x: 8 / np.cosh(8 * x) ** 2),
    "saturated": (lambda x: 1 / (1 + np.exp(-x - 30)), lambda x: np.exp(-x - 30)),
}


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("bounds", [None, (-3.0, 2.0)])
def test_stationary_points_bounds_and_inflections(
    name: str, bounds: tuple[float, float] | None
) -> None:
    """Where the Taylor error vanishes by symmetry, at bounds, and where the slope itself is 0."""
    curve, derivative = CURVES[name]
    x = np.array([-3.0, -1.0, -1e-6, 0.0, 1e-6, 0.1, 1.0, 2.0])[:, None]
    background = draw(30, 1)
    exact = derivative(x)
    for dtype, most in ((np.float64, 1e-6), (np.float32, 2e-3)):

        def model(X: Floats, dtype: Any = dtype) -> Floats:
            return curve(X[:, 0].astype(dtype))

        found = t_explain(model, x, background=background, bounds=bounds)
        assert found.precision == np.dtype(dtype).name or name == "saturated"
        # Exact in the units of the slopes.
        scale = max(1.0, float(np.abs(exact).max()))
        assert np.abs(found.gradient - exact).max() < most * scale


def test_a_large_offset_costs_digits_and_says_so() -> None:
    model, derivative = network(3)
    X, background = draw(20, 16), draw(60, 16, 2)
    found = t_explain(lambda X: model(X) + 1e6, X, background=background)
    gap = np.abs(found.gradient - derivative(X)[:, 0]).max()
    assert gap < 1e-6
    # At the floor alone round-off would be some 1e-10 · 1e6 / 1e-5.
    floor = t_explain(lambda X: model(X) + 1e6, X, background=background, max_iter=0)
    assert np.abs(floor.gradient - derivative(X)[:, 0]).max() > 3 * gap
    assert (found.h > floor.h).mean() > 0.9
    assert found.gradient_error.max() > 1e-8


def test_features_far_from_zero_and_of_any_unit() -> None:
    units = np.array([1e-9, 1.0, 1e7])
    far = np.array([1e-7, 2013.0, 1e9])
    model = lambda X: np.tanh(((X - far) / units) @ WEIGHTS)  # noqa: E731
    Z = draw(10, 3)
    found = t_explain(model, far + Z * units, background=far + draw(40, 3, 2) * units)
    exact = WEIGHTS / np.cosh(Z @ WEIGHTS)[:, None] ** 2
    np.testing.assert_allclose(found.gradient * units, exact, atol=1e-6)


# Determinism, batches and calls.


def alike(a: TExplanation, b: TExplanation) -> bool:
    names = ("gradient", "contributions", "base_value", "additivity_gap", "gradient_error", "h")
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)


def test_the_same_to_the_bit_for_every_run_and_batch_size() -> None:
    def model(X: Floats) -> Floats:
        return np.column_stack([logistic(X), np.sin(X[:, 0]) * X[:, 1] + 5 * (X[:, 2] > 1)])

    X, background = draw(30, 4), draw(50, 4, 2)
    X[:, 3] = background[:, 3] = 0
    X[::2, 3] = background[::3, 3] = 1
    arguments: dict[str, Any] = {"background": background, "categorical": [3]}
    first = t_explain(model, X, **arguments)
    assert alike(first, t_explain(model, X.copy(), **arguments))
    for batch_size in (1, 7, 64, 10**6):
        seen: list[int] = []

        def counted(X: Floats, seen: list[int] = seen) -> Floats:
            seen.append(len(X))
            return model(X)

        found = t_explain(counted, X, batch_size=batch_size, **arguments)
        assert alike(first, found)
        assert max(seen) <= batch_size
        assert (found.model_calls, found.model_rows) == (len(seen), sum(seen))
    assert found.model_calls < 20
    # A row's explanation does not depend on what is explained with it.
    for k in (0, 11):
        alone = t_explain(model, X[k : k + 1], **arguments)
        assert np.array_equal(alone.gradient[0], first.gradient[k])
        assert np.array_equal(alone.h[0], first.h[k])


def test_a_smooth_model_takes_two_rounds_of_calls() -> None:
    model, _ = network(1)
    found = t_explain(model, draw(10, 16), background=draw(20, 16, 2), batch_size=10**6)
    assert found.model_calls <= 4
    known = t_explain(
        model,
        draw(10, 16),
        background=draw(20, 16, 2),
        batch_size=10**6,
        precision="float64",
        piecewise_constant=False,
    )
    assert known.model_rows < 20 + 6 * 16 + 10 * (1 + 4 * 16) * 2
    assert np.array_equal(known.gradient, found.gradient)


def test_arguments_are_not_changed() -> None:
    X, background = draw(5, 3), draw(6, 3, 2)
    before = X.copy(), background.copy()

    def spoils(X: Floats) -> Floats:
        found = logistic(X)
        X[:] = np.nan
        return found

    for batch_size in (2, 10**6):
        found = t_explain(spoils, X, background=background, batch_size=batch_size)
        np.testing.assert_array_equal(X, before[0])
        np.testing.assert_array_equal(background, before[1])
        assert alike(found, t_explain(logistic, X, background=background))


# Contributions, outputs, exact gradients.


def test_contributions_of_a_linear_model_add_up() -> None:
    background, X = draw(40, 3), draw(7, 3, 2)
    found = t_explain(lambda X: X @ WEIGHTS + OFFSET, X, background=background)
    centre = background.mean(axis=0)
    np.testing.assert_allclose(found.contributions, WEIGHTS * (X - centre), atol=1e-9)
    assert found.base_value == pytest.approx(centre @ WEIGHTS + OFFSET, rel=1e-12)
    np.testing.assert_allclose(found.additivity_gap, 0.0, atol=1e-9)


def test_the_gap_is_what_the_first_order_leaves() -> None:
    model, _ = network(4)
    X, background = draw(6, 16), draw(30, 16, 2)
    found = t_explain(model, X, background=background)
    mean = model(background).mean()
    assert found.base_value == pytest.approx(mean, rel=1e-12)
    total = found.base_value + found.contributions.sum(axis=1) + found.additivity_gap
    np.testing.assert_allclose(total, model(X), rtol=1e-12, atol=1e-13)
    assert np.abs(found.additivity_gap).max() > 0.01


def test_several_outputs_give_the_jacobian() -> None:
    model, derivative = network(5, outputs=3)
    X, background = draw(8, 16), draw(30, 16, 2)
    found = t_explain(model, X, background=background)
    assert found.gradient.shape == found.contributions.shape == (8, 3, 16)
    np.testing.assert_allclose(found.gradient, derivative(X), atol=1e-8)
    assert found.base_value.shape == (3,)
    assert found.additivity_gap.shape == found.output.shape == (8, 3)
    column = lambda X: model(X)[:, 1:2]  # noqa: E731 - (b, 1) stays (n, 1, d)
    assert t_explain(column, X, background=background).gradient.shape == (8, 1, 16)


def test_two_classes_have_opposite_slopes() -> None:
    """The printed rank test calls every such Jacobian, (g, -g), degenerate."""
    model = lambda X: np.column_stack([logistic(X), 1 - logistic(X)])  # noqa: E731
    found = t_explain(model, draw(5, 3), background=draw(30, 3, 2))
    assert np.abs(found.gradient).min() > 1e-4
    np.testing.assert_allclose(found.gradient[:, 0], -found.gradient[:, 1], atol=1e-9)


@pytest.mark.parametrize("outputs", [1, 3])
def test_an_exact_gradient_is_used_as_it_is(outputs: int) -> None:
    model, derivative = network(6, outputs=outputs)
    X, background = draw(9, 16), draw(30, 16, 2)
    seen: list[int] = []

    def counted(X: Floats) -> Any:
        seen.append(len(X))
        return derivative(X)

    found = t_explain(model, X, background=background, gradient=counted, batch_size=4)
    exact = derivative(X)
    np.testing.assert_allclose(found.gradient, exact[:, 0] if outputs == 1 else exact, atol=1e-14)
    assert seen == [4, 4, 1]
    assert not found.h.any()
    differences = t_explain(model, X, background=background)
    np.testing.assert_allclose(found.contributions, differences.contributions, atol=1e-7)


def test_an_exact_gradient_that_does_not_fit_is_refused() -> None:
    model, _ = network(6)
    for gradient in (lambda X: X[:, :3], lambda X: np.full_like(X, np.nan)):
        with pytest.raises(ModelOutputError, match="the gradient returned"):
            t_explain(model, draw(3, 16), background=draw(9, 16), gradient=gradient)


# Bounds.


@settings(max_examples=40, deadline=None)
@example(362881)  # a room so narrow that whole and halved steps are clipped alike
@given(st.integers(0, 10**6))
def test_no_probe_leaves_the_bounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    low, high = np.sort(rng.normal(size=(2, 3)), axis=0)
    X = np.clip(rng.normal(size=(4, 3)), low, high)
    background = np.clip(rng.normal(size=(12, 3)), low, high)
    exact = np.einsum("nj,j->nj", np.cos(X), WEIGHTS)
    seen: list[Floats] = []

    def model(X: Floats) -> Floats:
        seen.append(X.copy())
        found: Floats = np.sin(X) @ WEIGHTS
        return found

    # The background's own probes, of the model's nature, are made once and not under test here.
    known: dict[str, Any] = {"precision": "float64", "piecewise_constant": False}
    found = t_explain(model, X, background=background, bounds=(low, high), **known)
    probes = np.concatenate(seen[1:])
    assert (probes >= low).all()
    assert (probes <= high).all()
    # In units of the output; a slope over a room of 1e-4 has fewer digits.
    assert (np.abs(found.gradient - exact) * robust_scale(background)).max() < 1e-7


def test_at_a_bound_a_fixed_step_is_divided_by_the_actual_distance() -> None:
    model = lambda X: np.exp(X[:, 0])  # noqa: E731
    background = draw(20, 1)
    for x, low, high in ((1.0, -9.0, 1.0), (1.0, 0.97, 9.0)):
        found = t_explain(model, [[x]], background=background, bounds=(low, high), h=0.1)
        up, down = min(x + 0.1, high), max(x - 0.1, low)
        expected = (np.exp(up) - np.exp(down)) / (up - down)
        assert found.gradient[0, 0] == pytest.approx(expected, rel=1e-12)
        assert found.h[0, 0] == pytest.approx((up - down) / 2, rel=1e-12)


def test_a_feature_without_room_has_no_slope_and_a_row_outside_is_let_be() -> None:
    X = [[0.5, 2.0, 0.0]]
    bounds = ([0.5, -1.0, -1.0], [0.5, 1.0, 1.0])
    found = t_explain(logistic, X, background=draw(20, 3), bounds=bounds)
    p = found.output[0]
    np.testing.assert_allclose(found.gradient[0], p * (1 - p) * np.array([0, -2.0, 0.5]), atol=1e-8)
    assert found.h[0, 0] == 0.0


# Models without slopes.


def forest(X: Floats) -> Any:
    """A sum of 60 steps for each of two features, in float32, that follows x0 - x1/2."""
    rng = np.random.default_rng(9)
    splits = rng.normal(size=(60, 2))
    single = X.astype(np.float32)[:, None, :2] > splits.astype(np.float32)
    return (single @ np.array([1.0, -0.5])).sum(axis=1).astype(np.float32) * np.float32(0.1)


def test_trees_get_the_average_slope_over_their_neighbourhood() -> None:
    X, background = draw(15, 3), draw(200, 3, 2)
    found = t_explain(forest, X, background=background)
    assert found.piecewise_constant
    for k, j in itertools.product(range(15), range(2)):
        column = np.sort(background[:, j])
        q = np.searchsorted(column, X[k, j]) / 200
        low, high = np.quantile(column, np.clip([q - 0.25, q + 0.25], 0, 1))
        ends = np.vstack([X[k], X[k]])
        ends[:, j] = min(low, X[k, j]), max(high, X[k, j])
        # A neighbourhood is at least as wide as the closest rows are apart.
        if min(ends[1, j] - X[k, j], X[k, j] - ends[0, j]) < 0.05:
            continue
        ends[:, j] = ends[:, j].astype(np.float32)
        bottom, top = forest(ends).astype(float)
        assert found.gradient[k, j] == pytest.approx((top - bottom) / np.ptp(ends[:, j]), rel=1e-6)
    assert np.abs(found.gradient[:, 2]).max() == 0.0
    assert (found.gradient[:, 0] > 0).all()
    assert (found.gradient[:, 1] < 0).all()
    # Said to have slopes, it is searched for one wide enough to see a split.
    wide = t_explain(forest, X, background=background, piecewise_constant=False)
    assert not wide.piecewise_constant
    assert (wide.gradient[:, 0] > 0).all()
    fixed = t_explain(forest, X, background=background, h=1e-5)
    assert np.abs(fixed.gradient).max() == 0.0


def test_smooth_models_are_not_taken_for_trees() -> None:
    model, _ = network(7)
    relu = lambda X: np.maximum(X @ np.eye(16, 5) - 1, 0).sum(axis=1)  # noqa: E731
    single = lambda X: X.astype(np.float32) @ np.ones(16, np.float32)  # noqa: E731
    for smooth in (model, relu, single, lambda X: X[:, 0], lambda X: np.zeros(len(X))):
        found = t_explain(smooth, draw(2, 16), background=draw(40, 16, 2))
        assert not found.piecewise_constant


def test_flat_is_flat_and_a_background_of_one_row_will_do() -> None:
    found = t_explain(lambda X: np.full(len(X), 7.0), draw(4, 3), background=draw(1, 3))
    assert not found.gradient.any()
    assert found.base_value == 7.0
    found = t_explain(logistic, draw(4, 3), background=np.zeros((1, 3)))
    p = found.output
    np.testing.assert_allclose(found.gradient, (p * (1 - p))[:, None] * WEIGHTS, atol=1e-8)
    tree = t_explain(forest, draw(4, 3), background=np.zeros((1, 3)))
    assert tree.piecewise_constant
    assert np.isfinite(tree.gradient).all()


# Categorical features.


def test_a_one_hot_group_is_contrasted_as_a_whole() -> None:
    table = np.array([[0.0, 2.0, -1.0], [3.0, 1.0, 0.5]])

    def model(X: Floats) -> Floats:
        # The levels' effect depends on the sign of the number: no slope could say it.
        return table[(X[:, 0] > 0).astype(int), X[:, 1:4].argmax(axis=1)] + X[:, 0]

    rng = np.random.default_rng(3)
    hot = np.eye(3)
    background = np.column_stack([rng.normal(size=50), hot[rng.choice(3, 50, p=[0.2, 0.5, 0.3])]])
    X = np.column_stack([[1.0, -1.0, 2.0], hot[[0, 1, 2]]])
    found = t_explain(model, X, background=background, categorical=[[1, 2, 3]])
    p = background[:, 1:4].mean(axis=0)
    for k in range(3):
        effects = table[int(X[k, 0] > 0)]
        own = int(X[k, 1:4].argmax())
        np.testing.assert_allclose(found.gradient[k, 1:4], effects - effects @ p, atol=1e-9)
        total = found.contributions[k, 1:4].sum()
        assert total == pytest.approx(effects[own] - effects @ p, abs=1e-9)
        np.testing.assert_allclose(found.contrasts[0].change[k], effects - effects[own], atol=1e-9)
    np.testing.assert_allclose(found.contrasts[0].frequency, p)
    np.testing.assert_allclose(found.gradient[:, 0], 1.0, atol=1e-8)
    assert not found.h[:, 1:].any()


def test_a_one_hot_group_never_shows_the_model_two_levels() -> None:
    def model(X: Floats) -> Floats:
        assert (X[:, 1:].sum(axis=1) == 1.0).all()
        assert np.isin(X[:, 1:], (0.0, 1.0)).all()
        found: Floats = X @ np.array([1.0, 2.0, 3.0])
        return found

    X = np.column_stack([draw(6, 1), np.eye(2)[[0, 1, 0, 1, 0, 1]]])
    found = t_explain(model, X, background=X, categorical=[(1, 2)])
    np.testing.assert_allclose(found.additivity_gap, 0.0, atol=1e-9)


def test_a_dropped_level_is_the_one_that_others_are_contrasted_with() -> None:
    effects = np.array([1.0, 4.0, 0.0])  # the last has no column
    model = lambda X: X @ effects[:2]  # noqa: E731
    X = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    background = np.repeat(X, [5, 2, 3], axis=0)
    found = t_explain(model, X, background=background, categorical=[[0, 1]])
    np.testing.assert_allclose(found.gradient, np.tile(effects[:2], (3, 1)), atol=1e-12)
    p = np.array([0.5, 0.2, 0.3])
    np.testing.assert_allclose(found.contributions.sum(axis=1), effects - effects @ p, atol=1e-12)


def test_codes_are_names_unless_there_are_two() -> None:
    effects = {0.0: 5.0, 1.0: -1.0, 7.0: 2.0, 9.0: 100.0}
    model = lambda X: np.array([effects[v] for v in X[:, 0]]) + 3 * X[:, 1]  # noqa: E731
    codes = np.repeat([0.0, 1.0, 7.0], [5, 3, 2])
    background = np.column_stack([codes, np.tile([0.0, 1.0], 5)])
    X = [[0.0, 1.0], [7.0, 0.0], [9.0, 1.0]]
    found = t_explain(model, X, background=background, categorical=[0, 1])
    average = 0.5 * 5 + 0.3 * -1 + 0.2 * 2
    expected = np.array([5.0, 2.0, 100.0]) - average
    np.testing.assert_allclose(found.contributions[:, 0], expected, atol=1e-12)
    np.testing.assert_allclose(found.gradient[:, 0], expected, atol=1e-12)
    # Two values: a slope between them, and the usual contribution.
    np.testing.assert_allclose(found.gradient[:, 1], 3.0, atol=1e-12)
    np.testing.assert_allclose(
        found.contributions[:, 1], 3 * np.array([0.5, -0.5, 0.5]), atol=1e-12
    )
    np.testing.assert_allclose(found.additivity_gap, 0.0, atol=1e-12)
    assert found.contrasts[0].levels[:, 0].tolist() == [0.0, 1.0, 7.0]
    assert found.contrasts[0].change[1].tolist() == [3.0, -3.0, 0.0]


def test_categorical_features_alone() -> None:
    X = np.array([[0.0, 1.0], [1.0, 2.0]])
    found = t_explain(lambda X: X[:, 0] * X[:, 1], X, background=X, categorical=[0, 1])
    np.testing.assert_allclose(found.gradient, [[1.0, 0.0], [2.0, 1.0]], atol=1e-12)


# What does not fit.


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"X": [1.0, 2.0, 3.0]}, r"X has shape \(3,\); expected \(n, d\)"),
        ({"X": np.empty((0, 3))}, "at least one row"),
        ({"X": [["a", "b", "c"]]}, "X must be numbers"),
        ({"X": [[1.0, np.nan, 0.0]]}, "X has nan in row 0, column 1"),
        ({"X": [[1.0, 2.0, np.inf]]}, "X has inf in row 0, column 2"),
        ({"background": draw(5, 4)}, "background has 4 columns; expected 3"),
        ({"background": np.full((2, 3), np.inf)}, "background has an infinity"),
        ({"background": [[1.0, np.nan, 1.0]]}, "column 1 is missing in every row"),
        ({"bounds": (0.0, [1.0, 2.0])}, r"bounds must be \(low, high\)"),
        ({"bounds": (2.0, 1.0)}, "bounds of column 0 are 2.0 and 1.0"),
        ({"bounds": 3.0}, r"bounds must be \(low, high\)"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"precision": "float8"}, "precision is 'float8'"),
        ({"h": 0.0}, "expected a step > 0"),
        ({"h": [0.1, 0.1]}, "one for each of 3 columns"),
        ({"h_max": 0.0}, "h_max is 0.0"),
        ({"categorical": [3]}, "names column 3"),
        ({"categorical": [[0, 1], 1]}, "names column 1 twice"),
        ({"categorical": ["x"]}, "expected a column or a list of columns"),
        ({"categorical": [[0, 1]]}, "expected zeros and at most a single 1"),
        ({"categorical": [0], "background": [[np.nan, 1, 1], [1, 1, 1]]}, "a code of its own"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: dict[str, Any], says: str) -> None:
    given_: dict[str, Any] = {"X": [[0.2, 0.4, 0.6]], "background": draw(5, 3), **arguments}
    with pytest.raises(ValueError, match=says):
        t_explain(logistic, given_.pop("X"), **given_)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (lambda X: np.full(len(X), np.nan), "returned nan in output 0 for the row"),
        (lambda X: np.where(X[:, :2] > 0, np.inf, 1.0), "returned inf in output"),
        (lambda X: X[:-1, 0], r"returned shape \(\d+,\) for a batch of \d+ rows"),
        (lambda X: X[:, :, None], "returned shape"),
        (lambda X: X[:, :0], "returned shape"),
        (lambda X: 1.0, "returned shape"),
        (lambda X: np.array(["a"] * len(X)), "expected real numbers"),
        (lambda X: X[:, 0] + 1j, "expected real numbers"),
        (lambda X: X[:, : 1 + len(X) % 2], "for one batch"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(model: Model, says: str) -> None:
    with pytest.raises(ModelOutputError, match=says):
        t_explain(model, draw(5, 3), background=draw(8, 3, 2), batch_size=16)


def test_an_error_of_the_model_comes_through() -> None:
    def fails(X: Floats) -> Floats:
        raise RuntimeError("out of memory on the device")

    with pytest.raises(RuntimeError, match="out of memory on the device"):
        t_explain(fails, draw(5, 3), background=draw(8, 3))


def test_hostile_numbers() -> None:
    """Constant columns, huge and tiny units, missing values in the background, bools, float32 rows."""
    background = draw(30, 4)
    background[:, 1] = 3.0
    background[::4, 2] = np.nan
    model = lambda X: np.nan_to_num(X[:, 0]) + 0.5 * np.nan_to_num(X[:, 2])  # noqa: E731
    found = t_explain(model, np.float32([[1, 3, 1, 0]]), background=background)
    np.testing.assert_allclose(found.gradient, [[1.0, 0.0, 0.5, 0.0]], atol=1e-6)
    for unit in (1e-300, 1e300):
        big = t_explain(
            lambda X, unit=unit: X[:, 0] / unit, [[unit]], background=[[unit], [2 * unit]]
        )
        assert big.gradient[0, 0] * unit == pytest.approx(1.0, rel=1e-6)
    booleans = t_explain(lambda X: X[:, 0] > 0, draw(3, 2), background=draw(20, 2))
    assert booleans.piecewise_constant


# The parts.


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 40), st.integers(1, 4))
def test_closest_pair_by_brute_force(seed: int, m: int, d: int) -> None:
    rows = np.random.default_rng(seed).integers(0, 6, size=(m, d)).astype(float)
    distances = [float(np.linalg.norm(a - b)) for a, b in itertools.combinations(rows, 2)]
    expected = min((v for v in distances if v > 0), default=0.0)
    assert closest_pair(rows) == pytest.approx(expected)


def test_scales_and_neighbourhoods() -> None:
    rng = np.random.default_rng(4)
    sparse = np.r_[np.zeros(90), np.ones(10)]
    columns = np.column_stack([rng.normal(5, 3, 100), sparse, np.full(100, 8.0), np.zeros(100)])
    found = robust_scale(columns)
    low, high = np.quantile(columns[:, 0], [0.25, 0.75])
    np.testing.assert_allclose(found, [(high - low) / 1.3489795, 0.3, 8.0, 1.0], rtol=1e-6)
    column = np.arange(101.0)
    low_, high_ = neighbourhood(np.array([50.0, 0.0, 200.0]), column, 0.1, 0.5)
    # 50 of 101 values lie below 50; one equals it.
    np.testing.assert_allclose(low_, [50 / 1.01 - 10, -0.5, 90.0], atol=1e-9)
    np.testing.assert_allclose(high_, [51 / 1.01 + 10, 1 / 1.01 + 10, 200.5], atol=1e-9)
