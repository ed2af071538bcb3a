"""Rows onto columns: what the card says, what is learnt, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from streams import arrow, card, layout

from attributary.schemas.arrow import decode_arrow_rows
from attributary.schemas.card import Feature, ModelCard
from attributary.schemas.errors import Reason, RejectedError
from attributary.schemas.grid import Column
from attributary.schemas.row import Row
from attributary.workers.stream.layout import Layout, output_names

COLOUR = Feature(name="colour", kind="categorical", levels=["red", "green"])
NAN = math.nan


def _reasons(made: Layout, *rows: Row) -> list[tuple[int, Reason]]:
    return [(error.index, error.reason) for error in made.encode(rows).errors]


def test_numbers_booleans_and_nulls_become_a_row_of_columns() -> None:
    made = layout(card("a", "b", "c"))
    encoded = made.encode([Row({"c": None, "a": True, "b": -2.5}, 7.0), Row({"a": 1.0}, [None])])
    np.testing.assert_array_equal(encoded.X, [[1.0, -2.5, NAN], [1.0, NAN, NAN]])
    np.testing.assert_array_equal(encoded.Y, [[7.0], [NAN]])
    assert encoded.weight is None
    assert encoded.kept == [0, 1]


def test_infinite_and_huge_values_are_data() -> None:
    made = layout(card("a"))
    encoded = made.encode([Row({"a": math.inf}, 1e308), Row({"a": -1e308}, -math.inf)])
    np.testing.assert_array_equal(encoded.X, [[math.inf], [-1e308]])
    np.testing.assert_array_equal(encoded.Y, [[1e308], [-math.inf]])


def test_a_categorical_is_one_column_per_level_and_one_for_the_others() -> None:
    made = layout(card("a", COLOUR))
    assert [c.name for c in made.columns] == [
        "a",
        "colour=red",
        "colour=green",
        "colour=(other)",
    ]
    assert made.groups == {"colour": [1, 2, 3]}
    given = ["green", "blue", None, NAN, "red", "(other)", "", "Grün"]
    encoded = made.encode([Row({"a": 0.0, "colour": value}, 1.0) for value in given])
    other, missing = [0, 0, 1], [NAN, NAN, NAN]
    np.testing.assert_array_equal(
        encoded.X[:, 1:],
        [[0, 1, 0], other, missing, missing, [1, 0, 0], other, other, other],
    )


def test_numbers_and_booleans_are_one_category_in_json_and_arrow() -> None:
    feature = Feature(name="k", kind="categorical", levels=["1", "2.5", "true", "1000000"])
    made = layout(card(feature))
    values: list[Any] = [1.0, 2.5, True, 1e6]
    rows = made.encode([Row({"k": value}, 0.0) for value in values])
    np.testing.assert_array_equal(rows.X, np.eye(4, 5))
    for column, expected in (
        (pa.array([1.0, 2.5, NAN, None, 1e6]), [0, 1, None, None, 3]),
        (pa.array([1, 1_000_000, None], pa.int64()), [0, 3, None]),
        (pa.array(["1", "2.5", None, "x"]).dictionary_encode(), [0, 1, None, 4]),
        (pa.array([True, None]), [2, None]),
    ):
        data = arrow({"k": column, "y": pa.nulls(len(column), pa.float64())})
        X = made.encode_arrow(decode_arrow_rows(data)).X
        found = [None if np.isnan(row).all() else int(row.argmax()) for row in X]
        assert found == expected
        assert all(row.sum() == 1 for row, at in zip(X, expected, strict=True) if at is not None)


def test_levels_are_learnt_from_values_the_most_common_first_and_no_more_than_the_limit() -> None:
    feature = Feature(name="k", kind="categorical")
    values = {"k": ["b", "a", "b", None, NAN, 3.0, 3, "rare"]}
    made = Layout.learn(card(feature), values, ["y"], max_levels=3)
    assert [c.level for c in made.columns] == ["3", "a", "b", None]
    none = Layout.learn(card(feature), {}, ["y"], max_levels=3)
    assert [c.level for c in none.columns] == [None]
    np.testing.assert_array_equal(none.encode([Row({"k": "a"}, 0.0)]).X, [[1.0]])


def test_without_a_card_a_feature_with_any_text_is_categorical() -> None:
    values = {"n": [1.0, None], "t": [None, "x"], "mixed": [1.0, "y"], "nothing": [None]}
    made = Layout.learn(None, values, ["o"], max_levels=5)
    assert [c.name for c in made.columns] == [
        "n",
        "t=x",
        "t=(other)",
        "mixed=1",
        "mixed=y",
        "mixed=(other)",
        "nothing",
    ]
    assert made.outputs == ("o",)


def test_a_text_in_a_numeric_feature_rejects_that_row_alone() -> None:
    made = layout(card("a", "b"))
    rows = [Row({"a": 1.0, "b": 1.0}, 1.0), Row({"a": "1", "b": 1.0}, 1.0), Row({"a": 2.0}, 1.0)]
    encoded = made.encode(rows)
    assert encoded.kept == [0, 2]
    assert [(e.index, e.reason) for e in encoded.errors] == [(1, Reason.WRONG_TYPE)]
    assert "'a' is numeric" in encoded.errors[0].message


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        ({"a": 1.0}, Reason.FEATURES_MISSING),
        ({"colour": "red"}, Reason.FEATURES_MISSING),
        ({"a": 1.0, "colour": None}, None),
        ({"a": 1.0, "colour": "red", "z": 1.0}, Reason.FEATURES_UNKNOWN),
        ({"a": 1.0, "z": 1.0}, Reason.FEATURES_MISSING),
        ({}, Reason.FEATURES_MISSING),
    ],
)
def test_a_strict_card_rejects_missing_and_extra_features(
    features: dict[str, Any], reason: Reason | None
) -> None:
    made = layout(card("a", COLOUR, strict=True))
    assert _reasons(made, Row(features, 1.0)) == ([] if reason is None else [(0, reason)])
    columns = {name: pa.array([value]) for name, value in features.items()}
    rows = decode_arrow_rows(arrow({**columns, "y": pa.array([1.0])}))
    if reason is None:
        assert made.encode_arrow(rows).kept == [0]
    else:
        with pytest.raises(RejectedError) as caught:
            made.encode_arrow(rows)
        assert caught.value.reason == reason


def test_a_lenient_card_takes_missing_and_extra_features_but_not_only_strangers() -> None:
    made = layout(card("a", COLOUR))
    accepted = [{"a": 1.0, "z": "?"}, {"colour": "red"}, {"a": None}]
    assert _reasons(made, *(Row(f, 1.0) for f in accepted)) == []
    strangers: list[dict[str, Any]] = [{"z": 1.0}, {}, {"A": 1.0}]
    assert _reasons(made, *(Row(f, 1.0) for f in strangers)) == [
        (index, Reason.FEATURES_MISSING) for index in range(3)
    ]


@pytest.mark.parametrize(
    ("outputs", "found"),
    [
        ({"y1": 1.0, "y2": 2.0}, [1.0, 2.0]),
        ({"y2": 2.0, "y1": None, "y3": 5.0}, [NAN, 2.0]),
        ([1.0, None], [1.0, NAN]),
        (1.0, None),
        ([1.0], None),
        ([], None),
        ([1.0, 2.0, 3.0], None),
        ({"y1": 1.0}, None),
        ({}, None),
    ],
)
def test_outputs_come_by_name_by_order_or_not_at_all(
    outputs: Any, found: list[float] | None
) -> None:
    made = layout(card("a", outputs=["y1", "y2"]))
    encoded = made.encode([Row({"a": 1.0}, outputs)])
    if found is None:
        assert [e.reason for e in encoded.errors] == [Reason.OUTPUTS_MISSING]
        assert encoded.X.shape == (0, 1)
        assert encoded.Y.shape == (0, 2)
    else:
        np.testing.assert_array_equal(encoded.Y, [found])


def test_the_names_of_outputs_without_a_card() -> None:
    assert output_names(1.0) == output_names([1.0]) == ["output"]
    assert output_names([1.0, 2.0]) == ["0", "1"]
    assert output_names({"p": 1.0, "q": 2.0}) == ["p", "q"]


def test_weights_are_kept_where_any_differs_from_one() -> None:
    made = layout(card("a"))
    rows = [
        Row({"a": 1.0}, 1.0),
        Row({"a": "x"}, 1.0, weight=9.0),
        Row({"a": 2.0}, 1.0, weight=3.0),
    ]
    weight = made.encode(rows).weight
    assert weight is not None
    np.testing.assert_array_equal(weight, [1.0, 3.0])
    assert made.encode(rows[:2]).weight is None


def test_names_are_any_unicode() -> None:
    names = ["größe", "数", "a b", "🙂", "x" * 500]
    made = layout(card(*names))
    np.testing.assert_array_equal(
        made.encode([Row(dict(zip(names, range(5), strict=True)), 0.0)]).X, [[0, 1, 2, 3, 4]]
    )


def test_arrow_columns_that_are_no_numbers_reject_the_message() -> None:
    made = layout(card("a"))
    for column in (
        pa.array(["1"]),
        pa.array([[1]]),
        pa.array([b"1"]),
        pa.array([1], pa.timestamp("s")),
        pa.array([1], pa.duration("s")),
    ):
        with pytest.raises(RejectedError) as caught:
            made.encode_arrow(decode_arrow_rows(arrow({"a": column, "y": pa.array([1.0])})))
        assert caught.value.reason == Reason.WRONG_TYPE


def test_arrow_columns_of_every_numeric_type_are_read() -> None:
    made = layout(card("a"))
    for kind in ("int8", "uint64", "float16", "float32", "bool", "decimal", "null", "dictionary"):
        column = {
            "float16": lambda: pa.array(np.array([1, 0], np.float16)),
            "bool": lambda: pa.array([True, False]),
            "decimal": lambda: pa.array([1, 0]).cast(pa.decimal256(40, 3)),
            "null": lambda: pa.nulls(2),
            "dictionary": lambda: pa.array([1.0, 0.0]).dictionary_encode(),
        }.get(kind, lambda kind=kind: pa.array([1, 0], getattr(pa, kind)()))()
        X = made.encode_arrow(decode_arrow_rows(arrow({"a": column, "y": pa.nulls(2)}))).X
        np.testing.assert_array_equal(X[:, 0], [NAN, NAN] if kind == "null" else [1.0, 0.0])


def test_an_arrow_message_must_hold_the_models_outputs() -> None:
    made = layout(card("a", outputs=["y1", "y2"]))
    data = arrow({"a": [1.0], "y2": [2.0], "y1": [1.0]}, outputs=["y2", "y1"])
    np.testing.assert_array_equal(made.encode_arrow(decode_arrow_rows(data)).Y, [[1.0, 2.0]])
    with pytest.raises(RejectedError) as caught:
        made.encode_arrow(decode_arrow_rows(arrow({"a": [1.0], "y1": [1.0]}, outputs=["y1"])))
    assert caught.value.reason == Reason.OUTPUTS_MISSING


def test_a_categorical_without_a_column_for_other_levels_is_refused() -> None:
    with pytest.raises(ValueError, match="other levels"):
        Layout([Column(feature="k", level="a", categorical=True)], ["y"])


def test_a_card_without_outputs_takes_the_names_of_the_rows() -> None:
    made = Layout.learn(ModelCard(model="m"), {"a": [1.0]}, ["p", "q"], max_levels=5)
    assert made.outputs == ("p", "q")


def test_layouts_are_equal_when_their_columns_and_outputs_are() -> None:
    first, second = layout(card("a", COLOUR)), layout(card("a", COLOUR, strict=True))
    assert first == second
    assert hash(first) == hash(second)
    assert first != layout(card(COLOUR, "a"))
    assert first != layout(card("a", COLOUR, outputs=["z"]))
    assert first != "a layout"
