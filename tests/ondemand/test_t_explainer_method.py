"""T-Explainer as a request sees it: contributions per feature, missing values, categoricals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from method_context import numeric_context

from attributary.schemas.card import Feature, ModelCard
from attributary.schemas.explanation import ErrorCode, TExplainerResult
from attributary.schemas.request import Instance
from attributary.workers.explainers.t_explainer import t_explain
from attributary.workers.ondemand.compute import parameters_of
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.inputs import Inputs
from attributary.workers.ondemand.methods import find_method
from attributary.workers.ondemand.methods.method import Context
from attributary.workers.ondemand.methods.t_explainer import METHOD, TExplainerParameters

FEATURES = (
    Feature(name="a"),
    Feature(name="plan", kind="categorical", levels=["free", "pro"]),
    Feature(name="b", low=-2.0, high=2.0),
)
INPUTS = Inputs(ModelCard(model="m", features=list(FEATURES)))
RNG = np.random.default_rng(3)
BACKGROUND = [
    Instance(features={"a": a, "plan": plan, "b": b})
    for a, plan, b in zip(
        RNG.normal(size=40).tolist(),
        RNG.choice(["free", "pro", "gold"], size=40).tolist(),
        RNG.uniform(-2, 2, size=40).tolist(),
        strict=True,
    )
]


def model(X: np.ndarray) -> np.ndarray:
    """Of a, plan=free, plan=pro, plan=(other), b; a missing number counts as 10."""
    a, b = np.nan_to_num(X[:, 0], nan=10.0), np.nan_to_num(X[:, 4], nan=10.0)
    return a**2 + a * b + 3.0 * X[:, 2] - X[:, 1]


def explain(
    instances: list[dict[str, Any]],
    of: Any = model,
    outputs: tuple[str, ...] = ("y",),
    background: list[Instance] = BACKGROUND,
    **parameters: Any,
) -> TExplainerResult:
    rows = [Instance(features=features) for features in instances]
    X = INPUTS.encode(rows, "instance")
    steps: list[tuple[int, int]] = []
    context = Context(
        features=INPUTS.features, positions=INPUTS.positions, outputs=outputs,
        ids=(None,) * len(rows), values=INPUTS.values(X), bounds=INPUTS.bounds(),
        rng=np.random.default_rng(0), batch_size=100, precision="float64",
        piecewise_constant=False, progress=lambda done, total: steps.append((done, total)),
    )  # fmt: skip
    found = METHOD.run(
        of, X, INPUTS.encode(background, "background row"),
        TExplainerParameters(**parameters), context,
    )  # fmt: skip
    assert isinstance(found, TExplainerResult)
    assert steps[0] == (0, len(rows))
    return found


def test_contributions_are_those_of_the_explainer_summed_over_levels() -> None:
    row = {"a": 0.7, "plan": "pro", "b": -1.0}
    (local,) = explain([row]).explanations
    X = INPUTS.encode([Instance(features=row)], "instance")
    direct = t_explain(
        model, X, background=INPUTS.encode(BACKGROUND, "b"), categorical=[[1, 2, 3]],
        bounds=INPUTS.bounds(), precision="float64", piecewise_constant=False, batch_size=100,
    )  # fmt: skip
    by_name = {one.feature: one for one in local.features}
    parts = direct.contributions[0]
    assert by_name["a"].contribution == parts[0]
    assert by_name["plan"].contribution == parts[1:4].sum()
    assert by_name["a"].gradient == pytest.approx(2 * 0.7 - 1.0, abs=1e-6)
    assert by_name["b"].gradient == pytest.approx(0.7, abs=1e-6)
    assert by_name["plan"].gradient is None
    assert by_name["plan"].value == "pro"
    # pro counts 3, free -1, others 0: against their mean in the background.
    worth = {"free": -1.0, "pro": 3.0, "gold": 0.0}
    mean = np.mean([worth[str(one.features["plan"])] for one in BACKGROUND])
    assert by_name["plan"].contribution == pytest.approx(3.0 - mean, abs=1e-9)
    total = sum(one.contribution or 0.0 for one in local.features)
    assert local.base_value + total + local.additivity_gap == pytest.approx(local.prediction)


def test_a_missing_number_is_held_missing() -> None:
    rows = [
        {"a": 0.7, "plan": "pro", "b": None},
        {"a": 0.7, "plan": "free", "b": 1.0},
        {"a": None, "plan": "pro", "b": 1.0},
    ]
    found = explain(rows)
    first, _, third = found.explanations
    assert [one.instance for one in found.explanations] == [0, 1, 2]
    assert {one.feature: one.contribution is None for one in first.features} == {
        "a": False, "plan": False, "b": True
    }  # fmt: skip
    assert first.prediction == pytest.approx(model(np.array([[0.7, 0, 1, 0, np.nan]]))[0])
    by_name = {one.feature: one for one in first.features}
    assert by_name["a"].gradient == pytest.approx(2 * 0.7 + 10.0, abs=1e-6)
    assert third.features[0].contribution is None
    assert any("missing" in note for note in found.notes)
    assert explain(rows[1:2]).explanations[0].features == found.explanations[1].features
    assert explain(rows[1:2]).notes == []


def test_a_missing_category_is_none_of_the_levels() -> None:
    missing, other = explain(
        [{"a": 0.0, "plan": None, "b": 0.0}, {"a": 0.0, "plan": "gold", "b": 0.0}]
    ).explanations
    assert missing.features[1].value is None
    assert other.features[1].value == "(other)"
    assert missing.features[1].contribution == other.features[1].contribution


def test_outputs_are_explained_one_by_one() -> None:
    def both(X: np.ndarray) -> np.ndarray:
        return np.column_stack([model(X), -2.0 * model(X)])

    one, two = explain([{"a": 1, "plan": "pro", "b": 0}], both, ("y", "z")).explanations
    assert (one.output, two.output) == ("y", "z")
    for first, second in zip(one.features, two.features, strict=True):
        assert second.contribution == pytest.approx(-2.0 * (first.contribution or 0.0), abs=1e-6)


def test_a_background_without_a_value_is_refused() -> None:
    background = [Instance(features={"a": 1, "plan": "pro", "b": None})]
    with pytest.raises(RequestError, match="no row of the background has a value of 'b'") as caught:
        explain([{"a": 1, "plan": "pro", "b": 0}], background=background)
    assert caught.value.code == ErrorCode.BAD_REQUEST


@pytest.mark.parametrize(
    "parameters", [{"step": 0}, {"step": "x"}, {"h": 1}, {"max_iterations": 0}]
)
def test_parameters_are_checked(parameters: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        TExplainerParameters(**parameters)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"steps": 1},
            "parameters: steps: there is none; there are ",
        ),
        ({"step": 0}, "parameters: step: expected greater than 0"),
        ({"step": "x"}, "parameters: step: expected a valid number"),
    ],
)
def test_a_parameter_that_cannot_be_used_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError) as caught:
        parameters_of(METHOD, given)
    assert str(caught.value).startswith(said)


def test_a_fixed_step_is_in_robust_scales() -> None:
    (local,) = explain([{"a": 0.5, "plan": "pro", "b": 0.0}], step=0.25).explanations
    values = np.array([float(one.features["a"]) for one in BACKGROUND])
    low, high = np.quantile(values, [0.25, 0.75])
    assert local.features[0].step == pytest.approx(0.25 * (high - low) / 1.3489795, rel=1e-6)


def test_exact_derivatives_are_taken_where_the_model_has_them() -> None:
    features = (Feature(name="a"), Feature(name="b"))
    inputs = Inputs(ModelCard(model="m", features=list(features)))
    rows = [Instance(features={"a": 0.5, "b": 2.0}), Instance(features={"a": 1.0, "b": None})]
    X = inputs.encode(rows, "instance")

    def smooth(X: np.ndarray) -> np.ndarray:
        return np.exp(X[:, 0]) * np.nan_to_num(X[:, 1], nan=3.0)

    def gradient(X: np.ndarray) -> np.ndarray:
        b = np.nan_to_num(X[:, 1], nan=3.0)
        return np.stack([np.exp(X[:, 0]) * b, np.exp(X[:, 0])], axis=1)[:, None, :]

    def ask(exact: Any) -> TExplainerResult:
        context = Context(
            features=features, positions=inputs.positions, outputs=("y",), ids=(None, None),
            values=inputs.values(X), rng=np.random.default_rng(0), batch_size=100,
            precision="float64", piecewise_constant=False, gradient=exact,
        )  # fmt: skip
        background = np.array([[0.0, 1.0], [1.0, 2.0], [0.3, -1.0]])
        found = METHOD.run(
            smooth, X, background, TExplainerParameters(derivatives="exact"), context
        )
        assert isinstance(found, TExplainerResult)
        return found

    first, second = ask(gradient).explanations
    assert [one.gradient for one in first.features] == [np.exp(0.5) * 2.0, np.exp(0.5)]
    assert [one.gradient for one in second.features] == [np.exp(1.0) * 3.0, None]
    with pytest.raises(RequestError, match="this model has no exact ones") as caught:
        ask(None)
    assert caught.value.code == ErrorCode.BAD_REQUEST


NAMES = ("a", "b", "c", "d")


def in_bfloat16(X: np.ndarray) -> np.ndarray:
    """tanh(X · w), the numbers cut to bfloat16 on the way, as autocast does."""
    A = cut(cut(X) @ np.array([1.0, -0.5, 0.25, 0.0]))
    return cut(np.tanh(A))


def cut(values: np.ndarray) -> np.ndarray:
    m, e = np.frexp(values)
    return np.ldexp(np.round(m * 256.0) / 256.0, e)


def ask_in(precision: str, gradient: Any = None, far: float = 0.0, **parameters: Any) -> Any:
    rng = np.random.default_rng(4)
    X, background = far + rng.normal(size=(6, 4)), far + rng.normal(size=(60, 4))
    context = numeric_context(
        NAMES, 6, precision=precision, gradient=gradient, values=tuple(map(tuple, X.tolist()))
    )
    found = METHOD.run(in_bfloat16, X, background, TExplainerParameters(**parameters), context)
    slopes = np.array([[one.gradient for one in row.features] for row in found.explanations])
    steps = np.array([[one.step for one in row.features] for row in found.explanations])
    w = np.array([1.0, -0.5, 0.25, 0.0])
    exact = w / np.cosh(X @ w)[:, None] ** 2
    return found, slopes, steps, exact


def test_a_low_precision_is_said_and_gets_wide_steps() -> None:
    found, slopes, steps, exact = ask_in("bfloat16")
    assert np.abs(slopes - exact).max() < 0.1
    assert steps.min() > 0.15
    (note,) = found.notes
    assert "computes in bfloat16" in note
    assert "differences over tenths" in note
    # The feature that does nothing has no slope beyond its error.
    assert int(note.split(": ")[1].split(" of ")[0]) >= 6
    assert " of 24 have an error" in note


def test_a_low_precision_takes_the_models_own_derivatives_by_default() -> None:
    def gradient(X: np.ndarray) -> np.ndarray:
        w = np.array([1.0, -0.5, 0.25, 0.0])
        return cut(w / np.cosh(X @ w)[:, None] ** 2)[:, None, :]

    found, slopes, steps, exact = ask_in("bfloat16", gradient)
    np.testing.assert_allclose(slopes, exact, rtol=0.005)
    assert not steps.any()
    assert "the model's own derivatives" in found.notes[0]
    for asked in ({"derivatives": "differences"}, {"step": 0.3}):
        assert ask_in("bfloat16", gradient, **asked)[2].all()
    # In float32 differences are as good.
    assert ask_in("float32", gradient)[2].all()


def test_values_too_far_from_zero_are_said() -> None:
    found, *_ = ask_in("float32", far=1e7)
    (note,) = found.notes
    assert note.startswith("24 gradients cannot be told from rounding")
    assert "float32" in note


def test_methods_are_found_by_name() -> None:
    assert find_method("t-explainer") is METHOD
    with pytest.raises(RequestError) as caught:
        find_method("magic")
    assert caught.value.code == ErrorCode.METHOD_UNKNOWN
