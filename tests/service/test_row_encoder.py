"""Objects of a serving process as rows: every accepted kind comes back from the decoder."""

from __future__ import annotations

import math
import time
import uuid
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from attributary.schemas.errors import Reason, RejectedError
from attributary.schemas.row import Row, decode_json_rows
from attributary.service.observed import observe
from attributary.service.row_encoder import MAX_ROW_BYTES, RowEncoder

NAMES = ["age", "income"]
ENCODER = RowEncoder("m", feature_names=NAMES)


def _decode(data: bytes, model: str | None = "m") -> Row:
    ((_, _, row),) = decode_json_rows(data, model=model).rows
    return row


def _row(features: Any, outputs: Any = 1.0, **options: Any) -> Row:
    return _decode(ENCODER.encode(features, outputs, **options))


def _reason(features: Any, outputs: Any = 1.0, **options: Any) -> Reason:
    with pytest.raises(RejectedError) as caught:
        ENCODER.encode(features, outputs, **options)
    return caught.value.reason


@pytest.mark.parametrize(
    "features",
    [
        {"age": 41.0, "income": 2.5},
        {"age": np.float32(41), "income": np.float64(2.5)},
        {"age": np.int64(41), "income": np.array(2.5)},
        pd.Series({"age": 41.0, "income": 2.5}),
        np.array([41.0, 2.5]),
        np.array([[41.0, 2.5]]),
        [41, 2.5],
        (41, 2.5),
        [[41, 2.5]],
    ],
    ids=lambda value: type(value).__name__,
)
def test_features_of_every_kind(features: Any) -> None:
    assert _row(features).features == {"age": 41.0, "income": 2.5}


def test_values_that_are_not_plain_numbers() -> None:
    found = _row(
        {
            "member": True,
            "flag": np.bool_(False),
            "plan": "pro",
            "kind": np.str_("x"),
            "gone": None,
            "nan": math.nan,
            "inf": np.float32("inf"),
            "big": 2**70,
        }
    ).features
    assert found == {
        "member": True, "flag": False, "plan": "pro", "kind": "x",
        "gone": None, "nan": None, "inf": None, "big": float(2**70),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("outputs", "found"),
    [
        (0.5, 0.5),
        (1, 1.0),
        (True, 1.0),
        (np.float32(0.5), 0.5),
        (np.array([0.5]), 0.5),
        (np.array([[0.5]]), 0.5),
        ([0.5, 0.25], [0.5, 0.25]),
        (np.array([[0.5, 0.25]]), [0.5, 0.25]),
        (math.nan, [None]),
        (np.array([math.inf]), [None]),
        (np.array([0.5, math.nan]), [0.5, None]),
        ({"a": np.float32(0.5), "b": None}, {"a": 0.5, "b": None}),
    ],
    ids=str,
)
def test_outputs_of_every_kind(outputs: Any, found: Any) -> None:
    assert _row([1, 2], outputs).outputs == found


def test_output_names_name_them() -> None:
    encoder = RowEncoder("m", output_names=["no", "yes"])
    assert _decode(encoder.encode({"x": 1}, np.array([0.25, 0.75]))).outputs == {
        "no": 0.25,
        "yes": 0.75,
    }
    with pytest.raises(RejectedError, match="1 outputs for 2 output_names"):
        encoder.encode({"x": 1}, 0.5)


@pytest.mark.parametrize(
    ("given", "found"),
    [("r1", "r1"), (7, 7), (np.int64(7), 7), (uuid.UUID(int=1), str(uuid.UUID(int=1)))],
)
def test_ids(given: Any, found: Any) -> None:
    assert _row([1, 2], id=given).id == found


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (0, 0),
        (1.5, 1.5),
        (np.float64(1.5), 1.5),
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0.0),
        (np.datetime64("1970-01-01T00:00:01.5"), 1.5),
        (pd.Timestamp("1970-01-01T00:00:01", tz="UTC"), 1.0),
    ],
    ids=str,
)
def test_times(given: Any, found: Any) -> None:
    assert _row([1, 2], time=given).time == found


def test_a_row_without_a_time_happens_now() -> None:
    before = time.time()
    found = _row([1, 2]).time
    assert isinstance(found, float)
    assert before - 0.001 <= found <= time.time() + 0.001


def test_the_model_is_in_the_row_only_where_the_header_does_not_name_it() -> None:
    assert _row([1, 2]).model is None
    assert _row([1, 2], model="m").model is None
    assert _row([1, 2], model="other").model == "other"


@pytest.mark.parametrize(
    ("features", "options", "reason"),
    [
        ({}, {}, Reason.FEATURES_MISSING),
        ([1, 2, 3], {}, Reason.WRONG_TYPE),
        (np.zeros((2, 2)), {}, Reason.WRONG_TYPE),
        (5, {}, Reason.WRONG_TYPE),
        ({"x": [1]}, {}, Reason.WRONG_TYPE),
        ({"x": np.zeros(2)}, {}, Reason.WRONG_TYPE),
        ({"x": b"bytes"}, {}, Reason.WRONG_TYPE),
        ({"x": datetime(2026, 1, 1, tzinfo=timezone.utc)}, {}, Reason.WRONG_TYPE),
        ({"x": np.datetime64("2026-01-01")}, {}, Reason.WRONG_TYPE),
        ({"x": 1j}, {}, Reason.WRONG_TYPE),
        ({"x": (1.0, 2.0)}, {}, Reason.WRONG_TYPE),
        ({"x": "\ud800"}, {}, Reason.WRONG_TYPE),
        ({"\ud800": 1}, {}, Reason.WRONG_TYPE),
        ({1.5j: 1}, {}, Reason.WRONG_TYPE),
        ({"x": "a" * MAX_ROW_BYTES}, {}, Reason.TOO_LARGE),
        ([1, 2], {"outputs": "high"}, Reason.WRONG_TYPE),
        ([1, 2], {"outputs": None}, Reason.OUTPUTS_MISSING),
        ([1, 2], {"outputs": {}}, Reason.OUTPUTS_MISSING),
        ([1, 2], {"outputs": []}, Reason.OUTPUTS_MISSING),
        ([1, 2], {"outputs": np.zeros((2, 2))}, Reason.WRONG_TYPE),
        ([1, 2], {"outputs": {"a": "x"}}, Reason.WRONG_TYPE),
        ([1, 2], {"weight": 0}, Reason.BAD_WEIGHT),
        ([1, 2], {"weight": -1.0}, Reason.BAD_WEIGHT),
        ([1, 2], {"weight": math.nan}, Reason.BAD_WEIGHT),
        ([1, 2], {"weight": math.inf}, Reason.BAD_WEIGHT),
        ([1, 2], {"weight": "much"}, Reason.BAD_WEIGHT),
        ([1, 2], {"time": "yesterday"}, Reason.BAD_TIME),
        ([1, 2], {"time": math.nan}, Reason.BAD_TIME),
        ([1, 2], {"time": True}, Reason.BAD_TIME),
        ([1, 2], {"time": datetime(2026, 1, 1)}, Reason.BAD_TIME),
        ([1, 2], {"time": np.datetime64("NaT")}, Reason.BAD_TIME),
        ([1, 2], {"time": pd.NaT}, Reason.BAD_TIME),
        ([1, 2], {"id": 1.5}, Reason.WRONG_TYPE),
        ([1, 2], {"id": True}, Reason.WRONG_TYPE),
        ([1, 2], {"model": "with space"}, Reason.NO_MODEL),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_no_row_is_refused_with_its_reason(
    features: Any, options: dict[str, Any], reason: Reason
) -> None:
    assert _reason(features, **options) == reason


def test_a_row_needs_a_model_and_an_array_needs_names() -> None:
    with pytest.raises(RejectedError, match="model='name'"):
        RowEncoder(None).encode({"x": 1}, 1)
    with pytest.raises(RejectedError, match="feature_names"):
        RowEncoder("m").encode([1, 2], 1)
    with pytest.raises(RejectedError, match="distinct"):
        RowEncoder("m", feature_names=["x", "x"])


def _keep(encoder: RowEncoder, features: Any, outputs: Any = 0.5, **options: Any) -> Any:
    given = dict.fromkeys(["name", "time", "weight", "model"])
    return encoder.keep(features, outputs, **{**given, **options})


@pytest.mark.parametrize(
    "vector",
    [
        np.array([41.5, np.nan]),
        np.array([41.5, np.inf], np.float32),
        np.array([41.5, 2.0], np.float16),
        np.array([41.5, 2.0], ">f8"),
        np.array([2**62, -3]),
        np.array([2**63 + 1, 3], np.uint64),
        np.array([7, 3], np.uint8),
        np.array([True, False]),
        np.arange(4.0)[::-2],
        np.asfortranarray(np.arange(6.0).reshape(2, 3))[:, 1],
    ],
    ids=lambda value: f"{value.dtype}-{value.strides}",
)
def test_a_vector_that_is_kept_is_the_row_that_encode_makes(vector: Any) -> None:
    expected = ENCODER.encode(vector.tolist(), 0.5, time=1.0)
    before = time.time()
    kept = _keep(ENCODER, vector)
    vector[:] = 0
    assert before <= kept.time <= time.time()
    assert msgspec.structs.replace(kept, time=1.0).encode() == expected
    assert vector.nbytes < kept.size < len(expected) + 150
    seen = observe(vector[None, :]).features
    vector[:] = 1
    assert _decode(_keep(ENCODER, seen).encode()).features == {"age": 0.0, "income": 0.0}


@pytest.mark.parametrize("outputs", [np.array([0.5, np.nan, -2.0]), np.array([1, 2, 3], np.int8)])
@pytest.mark.parametrize("features", [np.arange(6.0), np.arange(6, dtype=np.uint8)])
def test_a_batch_that_is_kept_is_the_rows_that_encode_makes(features: Any, outputs: Any) -> None:
    matrix = np.asfortranarray(features.reshape(3, 2))
    expected = [row for row in ENCODER.encode_batch(matrix, outputs) if isinstance(row, bytes)]
    kept = ENCODER.keep_batch(matrix, outputs)
    assert kept is not None
    found = [row if isinstance(row, bytes) else row.encode() for row in kept]
    assert len(found) == len(expected) == 3
    for row, other in zip(found, expected, strict=True):
        mine, its = _decode(row), _decode(other)
        assert (mine.features, mine.outputs) == (its.features, its.outputs)
        assert mine.time == pytest.approx(its.time, abs=10.0)


@pytest.mark.parametrize(
    ("features", "outputs"),
    [
        (np.zeros((3, 2)), np.zeros(2)),
        (np.zeros((3, 2)), np.zeros((3, 1))),
        (np.zeros((3, 3)), np.zeros(3)),
        (np.zeros(3), np.zeros(3)),
        (np.zeros((3, 2), object), np.zeros(3)),
        (np.zeros((3, 2)), np.array(["a", "b", "c"])),
        (np.zeros((3, 2)), [1.0, 2.0, 3.0]),
        ([[1.0, 2.0]], np.zeros(1)),
    ],
)
def test_what_might_be_no_batch_is_not_kept(features: Any, outputs: Any) -> None:
    assert ENCODER.keep_batch(features, outputs) is None


@pytest.mark.parametrize(
    ("features", "options"),
    [
        (np.zeros(3), {}),
        (np.zeros((1, 2)), {}),
        (np.zeros(2, np.complex128), {}),
        (np.zeros(2, np.longdouble), {}),
        (np.zeros(2, object), {}),
        (np.array(["a", "b"]), {}),
        (np.zeros(2, "datetime64[s]"), {}),
        ([0.0, 0.0], {}),
        (np.zeros(2), {"outputs": math.nan}),
        (np.zeros(2), {"outputs": -math.inf}),
        (np.zeros(2), {"outputs": np.float64(1)}),
        (np.zeros(2), {"outputs": "high"}),
        (np.zeros(2), {"outputs": None}),
        (np.zeros(2), {"name": "r1"}),
        (np.zeros(2), {"time": 1.0}),
        (np.zeros(2), {"weight": 2.0}),
        (np.zeros(2), {"model": "other"}),
    ],
)
def test_what_might_be_no_row_is_not_kept(features: Any, options: dict[str, Any]) -> None:
    assert _keep(ENCODER, features, **options) is None


def test_nothing_is_kept_that_could_fail_later() -> None:
    vector = np.full(2, -1.2345678901234567e-300)
    names = [f"{place:0100d}" for place in range(7000)]
    for encoder, row in (
        (RowEncoder(None, NAMES), vector),
        (RowEncoder("m"), vector),
        (RowEncoder("m", ["\ud800", "x"]), vector),
        (RowEncoder("m", NAMES, ["y"]), vector),
        (RowEncoder("m", names), np.full(7000, vector[0])),
    ):
        assert _keep(encoder, row) is None
    longest = _keep(RowEncoder("m", names[:6700]), np.full(6700, vector[0])).encode()
    assert 0.9 * MAX_ROW_BYTES < len(longest) <= MAX_ROW_BYTES


def test_what_came_before_makes_no_difference() -> None:
    rows: list[dict[str, Any]] = [
        {"age": 1.5, "income": 2},
        {"age": 1.5, "income": 2**2000},
        {"age": Fraction(1, 2), "income": 0.5},
        {"age": Decimal(1), "income": 2},
        {"age": np.float64(1.5), "income": 2.5},
        {"age": "x", "income": None},
        {"age": math.inf, "income": -math.inf},
        {"age": True, "income": False},
        {"age": [1.0], "income": 2.0},
    ]

    def said(encoder: RowEncoder, row: dict[str, Any]) -> Any:
        try:
            return _decode(encoder.encode(row, 0.5, time=1)).features
        except RejectedError as error:
            return error.reason

    alone = [said(RowEncoder("m"), row) for row in rows]
    assert [isinstance(found, dict) for found in alone] == [
        True, False, False, False, True, True, True, True, False
    ]  # fmt: skip
    for turn in range(len(rows)):
        encoder = RowEncoder("m")
        turned = [*rows[turn:], *rows[:turn]]
        assert [said(encoder, row) for row in turned] == [*alone[turn:], *alone[:turn]]


def test_the_caller_may_change_its_row_afterwards() -> None:
    features = {"x": 1.0}
    data = ENCODER.encode(features, 1.0)
    features["x"] = 2.0
    assert _decode(data).features == {"x": 1.0}


@pytest.mark.parametrize(
    "features",
    [
        np.array([[1.0, 2.0], [3.0, np.nan]]),
        pd.DataFrame({"age": [1.0, 3.0], "income": [2.0, np.nan]}),
        {"age": [1.0, 3.0], "income": np.array([2.0, np.nan])},
        [[1.0, 2.0], [3.0, np.nan]],
    ],
    ids=lambda value: type(value).__name__,
)
def test_batches_of_every_kind(features: Any) -> None:
    rows = list(
        ENCODER.encode_batch(
            features,
            np.array([[0.1, 0.9], [0.2, 0.8]]),
            ids=["a", "b"],
            times=np.array(["1970-01-01T00:00:01", "1970-01-01T00:00:02"], "datetime64[ns]"),
            weights=[1.0, 2.0],
        )
    )
    first, second = (_decode(row) for row in rows if isinstance(row, bytes))
    assert first == Row({"age": 1.0, "income": 2.0}, [0.1, 0.9], None, "a", 1.0, 1.0)
    assert second == Row({"age": 3.0, "income": None}, [0.2, 0.8], None, "b", 2.0, 2.0)


def test_a_bad_row_of_a_batch_leaves_the_others_alone() -> None:
    found = list(ENCODER.encode_batch([[1, 2], [3, 4], [5, 6]], [1, 2, 3], weights=[1, -1, 1]))
    assert [isinstance(row, bytes) for row in found] == [True, False, True]
    assert isinstance(found[1], RejectedError)
    assert found[1].reason == Reason.BAD_WEIGHT


def test_columns_of_outputs_keep_their_names() -> None:
    (row,) = ENCODER.encode_batch([[1, 2]], {"no": [0.25], "yes": [0.75]})
    assert isinstance(row, bytes)
    assert _decode(row).outputs == {"no": 0.25, "yes": 0.75}


@pytest.mark.parametrize(
    "options",
    [
        {"features": np.zeros((2, 3)), "outputs": [1, 2]},
        {"features": np.zeros(2), "outputs": [1, 2]},
        {"features": np.zeros((2, 2)), "outputs": [1]},
        {"features": np.zeros((2, 2)), "outputs": [1, 2], "ids": ["a"]},
        {"features": {"age": [1], "income": [1, 2]}, "outputs": [1]},
        {"features": {}, "outputs": []},
    ],
    ids=str,
)
def test_lengths_that_differ_are_refused_before_the_first_row(options: dict[str, Any]) -> None:
    with pytest.raises(RejectedError):
        ENCODER.encode_batch(**options)
