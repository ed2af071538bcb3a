"""The method ``ordshap`` of the request workers: parameters in, a message out."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from attributary.schemas.card import Feature
from attributary.schemas.explanation import ErrorCode, OrdShapResult
from attributary.workers.explainers.ordshap import ordshap
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.methods import find_method
from attributary.workers.ondemand.methods.method import Context

WORDS = ["[PAD]", "not", "good", "bad"]
FEATURES = tuple(Feature(name=f"w{k}", kind="token", levels=WORDS) for k in range(4))
ASKED: list[int] = []


def model(X: Any) -> Any:
    """Two outputs: sentiment, which a preceding "not" turns, and its negative doubled."""
    ASKED.append(len(X))
    score = np.zeros(len(X))
    for k in range(X.shape[1]):
        turned = (X[:, :k] == 1).any(axis=1)
        worth = np.where(X[:, k] == 2, 1.0, np.where(X[:, k] == 3, -1.0, 0.0))
        score += np.where(turned, -worth, worth) / (k + 1)
    return np.column_stack([score, -2 * score])


def context(**changes: Any) -> Context:
    given: dict[str, Any] = {
        "features": FEATURES,
        "positions": tuple((k,) for k in range(4)),
        "outputs": ("mood", "gloom"),
        "ids": ("a", None),
        "values": (("not", "good", "bad", "good"), ("bad", "[PAD]", "good", "not")),
        "rng": np.random.default_rng(0),
        "batch_size": 32,
        "precision": "float64",
        "piecewise_constant": False,
        **changes,
    }
    return Context(**given)


X = np.array([[1.0, 2, 3, 2], [3, 0, 2, 1]])


def explain(changes: dict[str, Any] | None = None, **parameters: Any) -> OrdShapResult:
    method = find_method("ordshap")
    background = parameters.pop("background", None)
    result = method.run(
        model, X, background, method.parameters(**parameters), context(**(changes or {}))
    )
    assert isinstance(result, OrdShapResult)
    return result


def test_every_instance_and_output_is_explained() -> None:
    ASKED.clear()
    result = explain(mask="[PAD]", estimator="exact")
    assert [(e.instance, e.id, e.output) for e in result.explanations] == [
        (0, "a", "mood"), (0, "a", "gloom"), (1, None, "mood"), (1, None, "gloom"),
    ]  # fmt: skip
    for entry in result.explanations:
        column = ["mood", "gloom"].index(entry.output)
        x = X[entry.instance]
        truth = ordshap(model, x, mask=0, method="exact", output=column)
        assert truth.gamma is not None
        for k, feature in enumerate(entry.features):
            assert feature.feature == f"w{k}"
            assert feature.value == context().values[entry.instance][k]
            assert feature.value_importance == pytest.approx(truth.value_importance[k])
            assert feature.position_importance == pytest.approx(truth.position_importance[k])
            assert feature.gamma == pytest.approx(truth.gamma[k].tolist())
        assert entry.prediction == pytest.approx(model(x[None])[0, column])
        assert entry.base_value == 0.0
        assert abs(entry.completeness_gap) < 1e-12
        assert entry.positions == [0, 1, 2, 3]
    # "not" turns what follows: it is worth more the earlier it stands, the way the rest leans.
    first = result.explanations[0].features
    assert first[0].position_importance > 0 > first[0].value_importance
    json.loads(result.model_dump_json())


def test_the_second_output_costs_no_calls() -> None:
    ASKED.clear()
    explain(mask=0.0, permutations=40)
    both = sum(ASKED)
    ASKED.clear()
    explain({"outputs": ("mood",)}, mask=0.0, permutations=40)
    assert sum(ASKED) == both


def test_fixed_groups_and_positions() -> None:
    result = explain(mask=0, estimator="exact", fixed=["w0"], positions=[0, 5, 5, 9])
    entry = result.explanations[0]
    assert [feature.feature for feature in entry.features] == ["w1", "w2", "w3"]
    assert entry.positions == [5, 9]
    # The fixed word "not" stays in what the base value is of.
    assert entry.base_value == 0.0
    entry = explain(mask=0, estimator="exact", groups=[["w0", "w1"], ["w2", "w3"]]).explanations[0]
    assert [feature.feature for feature in entry.features] == ["w0 w1", "w2 w3"]
    assert entry.features[0].value == "not good"
    entry = explain(mask=0, estimator="exact", groups=[["w0", "w1"]]).explanations[0]
    assert entry.base_value == pytest.approx(model(np.array([[0.0, 0, 3, 2]]))[0, 0])


def test_a_background_in_place_of_a_mask() -> None:
    rows = np.array([[3.0, 3, 3, 3], [2, 2, 2, 2]])
    result = explain(background=rows, estimator="exact")
    entry = result.explanations[0]
    assert entry.base_value == pytest.approx(model(rows)[:, 0].mean())
    assert "background" in result.notes[0]
    assert abs(entry.completeness_gap) < 1e-12


def test_the_same_request_gives_the_same_bytes_and_progress_ends_within_its_total() -> None:
    told: list[tuple[int, int]] = []
    changes = {"progress": lambda done, total: told.append((done, total))}
    first = explain(changes, mask=0, permutations=24).model_dump_json()
    for size in (1, 7, 4_096):
        assert explain({"batch_size": size}, mask=0, permutations=24).model_dump_json() == first
    done, total = zip(*told, strict=True)
    assert list(done) == sorted(done)
    assert 0 < done[0] <= done[-1] <= total[0] == 4_000


def test_cancelled_between_explanations() -> None:
    class StopError(Exception):
        pass

    def check() -> None:
        raise StopError

    with pytest.raises(StopError):
        explain({"check": check}, mask=0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "parameters.mask"),
        ({"mask": "maybe"}, "'maybe' is no level"),
        ({"mask": 0, "fixed": ["w9"]}, "no feature 'w9'"),
        ({"mask": 0, "groups": [["w0", "w2"]]}, "no run"),
        ({"mask": 0, "positions": [1.0]}, "positions"),
        ({"mask": 0, "fixed": ["w0", "w1", "w2", "w3"]}, "every element is fixed"),
    ],
)
def test_bad_requests_are_named(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        explain(**parameters)
    assert caught.value.code is ErrorCode.BAD_REQUEST


def test_features_that_mean_different_things_cannot_change_places() -> None:
    mixed = (Feature(name="age"), *FEATURES[1:])
    names = {"features": mixed}
    with pytest.raises(RequestError, match="'age' and 'w1' differ"):
        explain(names, mask=0)
    changed = (Feature(name="age"), *FEATURES[1:])
    entry = explain({"features": changed}, mask=0, fixed=["age"]).explanations[0]
    assert len(entry.features) == 3


def test_unknown_parameters_are_refused() -> None:
    with pytest.raises(ValidationError):
        find_method("ordshap").parameters(permutation=3)
