"""Rows and parameters as callers have them at hand: what is taken, and what is refused before it is sent."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from attributary import Explainer
from attributary.schemas.errors import ConfigurationError
from attributary.schemas.request import Instance, StreamWindow
from attributary.service.embedded import free_port
from attributary.service.given_parameters import given_parameters
from attributary.service.given_rows import given_rows

FRAME = pd.DataFrame({"age": [41, 18], "plan": ["pro", None], "on": [True, False]})
ROW = {"age": 41.0, "plan": "pro", "on": True}


def features(given: Any) -> list[dict[str, Any]]:
    rows = given_rows(given, "instances")
    assert isinstance(rows, list)
    return [row.features for row in rows]


@pytest.mark.parametrize(
    "given",
    [
        ROW,
        [ROW],
        (row for row in [ROW]),
        Instance(features=ROW),
        FRAME[:1],
        FRAME.iloc[0],
        [FRAME.iloc[0]],
        {"age": np.float32(41), "plan": np.str_("pro"), "on": np.bool_(True)},
        {"age": np.array(41), "plan": "pro", "on": True},
        FRAME[:1].to_dict("records"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_row_in_every_natural_form(given: Any) -> None:
    assert features(given) == [ROW]


def test_a_frame_has_a_row_in_each_line_and_marks_what_is_missing() -> None:
    frame = FRAME.assign(debt=pd.array([1, pd.NA], dtype="Int64"), tax=[math.nan, 2.0])
    first, second = features(frame)
    assert first == {**ROW, "debt": 1.0, "tax": None}
    assert second == {"age": 18.0, "plan": None, "on": False, "debt": None, "tax": 2.0}


def test_ids_and_windows_stay() -> None:
    (row,) = given_rows([Instance(features=ROW, id="7")], "instances")  # type: ignore[misc]
    assert row.id == "7"
    assert given_rows(StreamWindow(rows=3), "instances") == StreamWindow(rows=3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"age": math.inf}, "instances: feature 'age' is infinite; send a finite number, or null"),
        ([ROW, {"age": -math.inf}], "instances, row 1: feature 'age' is infinite"),
        ({"age": np.float32("inf")}, "feature 'age' is infinite"),
        ({"age": 10**400}, "feature 'age' is infinite"),
        (FRAME.assign(age=math.inf), "instances, row 0: feature 'age' is infinite"),
        (Instance(features={"age": math.inf}), "feature 'age' is infinite"),
        (np.ones(3), "instances: ndarray has no names of features: give each row as a mapping"),
        (np.ones((2, 3)), "instances, row 0: ndarray has no names of features"),
        ([1.0, 2.0], "instances: list has no names of features"),
        ([[1.0, 2.0]], "instances, row 0: list has no names of features"),
        ("age", "expected a mapping of features, or several, got str"),
        (7, "expected a mapping of features, or several, got int"),
        ([FRAME], "instances, row 0: expected features by name, got DataFrame"),
        ([], "instances: expected a row or several, got none"),
        (FRAME[:0], "instances: expected a row or several, got none"),
        ({}, "instances: features: expected"),
        ({"age": [1]}, "feature 'age' must be a number, a boolean, a string or None, got list"),
        ({"age": Decimal(1)}, "got Decimal"),
        ({"age": np.datetime64("2026-01-01")}, "got datetime64"),
        ({None: 1.0}, "a feature's name must be a text, got None"),
        ({1: 1.0, "1": 2.0}, "feature '1' is given twice"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "names a column twice: 'a'"),
    ],
)
def test_rows_that_cannot_be_sent(given: Any, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        given_rows(given, "instances")
    assert said in str(caught.value)


def test_parameters_are_plain() -> None:
    given = {
        "step": np.float32(0.5), "rows": np.int64(3), "on": np.bool_(True), "sizes": np.arange(2),
        "inner": {"a": (1, None, "x")},
    }  # fmt: skip
    found = given_parameters(given)
    assert found == {
        "step": 0.5, "rows": 3, "on": True, "sizes": [0, 1], "inner": {"a": [1, None, "x"]}
    }  # fmt: skip
    assert [type(value) for value in found.values()] == [float, int, bool, list, dict]


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (math.nan, "parameter 'step' must be finite, got nan"),
        ([{"a": -math.inf}], "parameter 'step' must be finite, got -inf"),
        (np.float32("nan"), "must be finite, got nan"),
        (np.array([1.0, np.inf]), "must be finite, got inf"),
        (object(), "parameter 'step' must be a number, a text, a boolean, None, or a list"),
        ({1, 2}, "got set"),
        ({1: 2}, "a name must be a text, got 1"),
        (nested(100_000), "nested more than 20 deep"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_parameters_that_cannot_be_sent(value: Any, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        given_parameters({"step": value})
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"timeout": math.nan}, "timeout: expected seconds above 0, at most 31,622,400, got nan"),
        ({"timeout": math.inf}, "timeout: expected seconds above 0"),
        ({"timeout": 0}, "timeout: expected seconds above 0"),
        ({"timeout": "soon"}, "timeout: expected seconds above 0"),
        ({"instances": {"a": math.inf}}, "feature 'a' is infinite"),
        ({"background": [{"a": math.inf}]}, "background, row 0: feature 'a' is infinite"),
        ({"parameters": {"step": math.nan}}, "parameter 'step' must be finite"),
        ({"parameters": [1]}, "parameters: expected a mapping by name, got list"),
        ({"seed": -1}, "request: seed: expected greater than or equal to 0, got -1"),
        ({"output": 1.5}, "request: output: expected a valid string or a valid integer"),
        ({"method": "shap"}, "request: method: expected 't-explainer', 'ordshap' or 'mcir-m'"),
        ({"priority": "low"}, "priority: expected 'normal' or 'high', got 'low'"),
        ({"instances": {"a": "\ud800"}}, "request: a name or text in it is no Unicode"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_there_is_a_broker(
    changes: dict[str, Any], said: str
) -> None:
    given = {"instances": {"a": 1.0}, **changes}
    explainer = Explainer(f"127.0.0.1:{free_port()}", model="m")
    with pytest.raises(ConfigurationError) as caught:
        explainer.request(**given)
    explainer.close()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "type=" not in str(caught.value)
