"""Rows as requests give them, as methods see them and as models take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from attributary.schemas.card import Artefact, Feature, ModelCard
from attributary.schemas.explanation import ErrorCode
from attributary.schemas.grid import Column
from attributary.schemas.request import Instance
from attributary.schemas.row import Row
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.inputs import Inputs
from attributary.workers.stream.layout import Layout

NAN = np.nan
AGE, PLAN, INCOME = (
    Feature(name="age", low=18.0),
    Feature(name="plan", kind="categorical", levels=["free", "pro"]),
    Feature(name="income", low=0.0, high=9e5),
)


def card(*features: Feature, categories: str = "one-hot") -> ModelCard:
    artefact = Artefact(uri="/m.ubj", sha256="0" * 64, categories=categories)
    return ModelCard(
        model="churn", features=list(features), outputs=["margin", "other"], artefact=artefact
    )


def inputs(categories: str = "one-hot") -> Inputs:
    return Inputs(card(AGE, PLAN, INCOME, categories=categories))


def instance(age: Any = 41, plan: Any = "pro", income: Any = 10.5) -> Instance:
    return Instance(features={"income": income, "plan": plan, "age": age})


ROWS = [
    instance(),
    instance(plan="free"),
    instance(plan="gold", age=None),
    instance(plan=None, age=True),
]
# age, plan=free, plan=pro, plan=(other), income
COLUMNS = np.array(
    [
        [41, 0, 1, 0, 10.5],
        [41, 1, 0, 0, 10.5],
        [NAN, 0, 0, 1, 10.5],
        [1, NAN, NAN, NAN, 10.5],
    ]
)
CODES = np.array([[41, 1, 10.5], [41, 0, 10.5], [NAN, -1, 10.5], [1, NAN, 10.5]])
FOR_CODES = np.where(CODES == -1, NAN, CODES)
FOR_ONE_HOT = COLUMNS[:, [0, 1, 2, 4]]


def same(found: npt.NDArray[np.float64], expected: npt.NDArray[np.float64]) -> None:
    np.testing.assert_array_equal(found, expected)


def test_rows_are_encoded_as_the_stream_encodes_them() -> None:
    found = inputs()
    same(found.encode(ROWS, "instance"), COLUMNS)
    stream = Layout.learn(card(AGE, PLAN, INCOME), {}, [], max_levels=10)
    rows = [Row(row.features, [0.0, 0.0]) for row in ROWS]
    same(found.encode(ROWS, "instance"), stream.encode(rows).X)
    assert found.positions == ((0,), (1, 2, 3), (4,))
    assert found.columns_of("features") == ((0,), (1,), (2,))


def test_the_space_of_features_has_one_column_each() -> None:
    same(inputs().to_space(COLUMNS, "features"), CODES)
    assert inputs().to_space(COLUMNS, "columns") is COLUMNS


@pytest.mark.parametrize(
    ("categories", "expected"), [("codes", FOR_CODES), ("one-hot", FOR_ONE_HOT)]
)
@pytest.mark.parametrize("space", ["columns", "features"])
def test_the_model_gets_the_same_from_either_space(
    categories: str, expected: npt.NDArray[np.float64], space: Any
) -> None:
    found = inputs(categories)
    X = found.to_space(COLUMNS, space)
    model_rows = found.to_model(X, space)
    known = [0, 1, 2]
    same(model_rows[known], expected[known])
    if space == "columns":
        same(model_rows, expected)


def test_values_are_told_as_they_were_given() -> None:
    assert inputs().values(COLUMNS) == (
        (41.0, "pro", 10.5),
        (41.0, "free", 10.5),
        (None, "(other)", 10.5),
        (1.0, None, 10.5),
    )


def test_bounds_are_those_of_the_card() -> None:
    found = inputs().bounds()
    assert found is not None
    same(found[0], np.array([18, -np.inf, -np.inf, -np.inf, 0]))
    same(found[1], np.array([np.inf, np.inf, np.inf, np.inf, 9e5]))
    assert Inputs(card(Feature(name="a"))).bounds() is None


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"age": 1, "plan": "pro"}, "instance 1: no value for 'income'; send null"),
        ({"age": 1, "plan": "pro", "incme": 2}, "no feature 'incme': did you mean 'income'?"),
        ({"age": "old", "plan": "pro", "income": 2}, "instance 1: feature 'age' is numeric"),
        ({"age": float("inf"), "plan": "pro", "income": 2}, "feature 'age' is infinite"),
    ],
)
def test_what_is_wrong_with_a_row_is_said(row: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError) as caught:
        inputs().encode([instance(), Instance(features=row)], "instance")
    assert caught.value.code == ErrorCode.BAD_REQUEST
    assert said in str(caught.value)


def test_rows_of_the_stream_are_taken_by_the_columns_names() -> None:
    """An epoch may know other levels, in another order, and more features."""
    stream = [
        Column(feature="plan", level="gold", categorical=True),
        Column(feature="plan", level="pro", categorical=True),
        Column(feature="plan", categorical=True),
        Column(feature="extra"),
        Column(feature="age"),
    ]
    X = np.array([[1, 0, 0, 5, 30], [0, 1, 0, 5, 31], [0, 0, 1, 5, 32], [NAN, NAN, NAN, 5, 33.0]])
    expected = np.array(
        [
            [30, 0, 0, 1, NAN],
            [31, 0, 1, 0, NAN],
            [32, 0, 0, 1, NAN],
            [33, NAN, NAN, NAN, NAN],
        ]
    )
    same(inputs().project(X, stream), expected)
    own = inputs()
    assert own.project(COLUMNS, own.layout.columns) is COLUMNS


def test_the_stream_completes_a_card() -> None:
    columns = [
        Column(feature="plan", level="free", categorical=True),
        Column(feature="plan", level="pro", categorical=True),
        Column(feature="plan", categorical=True),
        Column(feature="age"),
    ]
    without_levels = card(AGE, Feature(name="plan", kind="categorical"))
    found = Inputs(without_levels, columns)
    assert found.features[1].levels == ["free", "pro"]
    assert [f.name for f in Inputs(card(), columns).features] == ["plan", "age"]
    with pytest.raises(RequestError, match="does not say the levels of 'plan'"):
        Inputs(without_levels)
    with pytest.raises(RequestError, match="names no features"):
        Inputs(card())
