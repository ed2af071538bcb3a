"""Rows as Arrow IPC: what is read, and that no corrupt bytes do more than be refused."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attributary.schemas import arrow
from attributary.schemas.arrow import (
    ID,
    TIME,
    WEIGHT,
    ArrowRows,
    decode_arrow_rows,
    encode_arrow_rows,
)
from attributary.schemas.arrow_columns import category, numbers, texts
from attributary.schemas.errors import Reason, RejectedError

COLUMNS: dict[str, Any] = {
    "age": [41.0, None, float("nan")],
    "count": [1, 2, 3],
    "member": [True, False, None],
    "plan": ["pro", None, "free"],
    "region": pa.array(["n", "s", "n"]).dictionary_encode(),
    "score": [0.5, -1.5, 2.0],
    ID: ["r1", "r2", "r3"],
    TIME: [1.0, 2.5, 3.0],
    WEIGHT: [1.0, 2.0, 0.5],
}
MESSAGE = encode_arrow_rows("churn", COLUMNS, ["score"])


def _read_everything(rows: ArrowRows) -> None:
    with contextlib.suppress(RejectedError):
        rows.features.matrix(tuple(rows.features))
    for name, column in rows.features.items():
        try:
            numbers(column, name)
        except RejectedError:
            texts(column, name)


def _outcome(data: bytes) -> Reason | None:
    """Read all that a worker would read; return why it is refused, None where it is not."""
    try:
        _read_everything(decode_arrow_rows(data))
    except RejectedError as error:
        return error.reason
    return None


def _reason(columns: dict[str, Any], outputs: list[str] | None = None) -> Reason | None:
    return _outcome(encode_arrow_rows("m", columns, ["score"] if outputs is None else outputs))


def _stream(table: Any, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_rows_come_back_as_they_were_sent() -> None:
    found = decode_arrow_rows(MESSAGE)
    assert (found.model, found.rows) == ("churn", 3)
    assert set(found.features) == {"age", "count", "member", "plan", "region"}
    np.testing.assert_array_equal(numbers(found.features["age"], "age"), [41.0, np.nan, np.nan])
    np.testing.assert_array_equal(numbers(found.features["member"], "member"), [1.0, 0.0, np.nan])
    assert texts(found.features["plan"], "plan") == ["pro", None, "free"]
    assert texts(found.features["region"], "region") == ["n", "s", "n"]
    np.testing.assert_array_equal(found.outputs["score"], [0.5, -1.5, 2.0])
    assert found.ids == [b"r1", b"r2", b"r3"]
    assert found.time is not None
    np.testing.assert_array_equal(found.time, [1000, 2500, 3000])
    assert found.weight is not None
    np.testing.assert_array_equal(found.weight, [1.0, 2.0, 0.5])


def test_the_reserved_columns_may_be_missing() -> None:
    found = decode_arrow_rows(encode_arrow_rows("m", {"x": [1], "score": [2]}, ["score"]))
    assert (found.ids, found.time, found.weight) == (None, None, None)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_timestamps_of_every_unit_are_utc_milliseconds(unit: str, zone: str | None) -> None:
    moments = np.array(["2013-01-01T05:00:00", "1969-12-31T23:59:59"], dtype=f"datetime64[{unit}]")
    column = pa.array(moments.astype(np.int64)).cast(pa.timestamp(unit, tz=zone))
    found = decode_arrow_rows(
        encode_arrow_rows("m", {"x": [1, 2], "score": [1, 2], TIME: column}, ["score"])
    )
    assert found.time is not None
    np.testing.assert_array_equal(found.time, [1_357_016_400_000, -1000])


def test_several_batches_in_one_stream_are_one_table() -> None:
    table = pa.table({"x": [1.0, 2.0, 3.0], "score": [1, 2, 3]})
    table = table.replace_schema_metadata(
        {"attributary.model": "m", "attributary.outputs": '["score"]'}
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=1)
    assert decode_arrow_rows(bytes(sink.getvalue())).rows == 3


def test_a_model_that_the_metadata_lacks_comes_from_the_header() -> None:
    table = pa.table({"x": [1.0], "score": [1]})
    data = _stream(table.replace_schema_metadata({"attributary.outputs": '["score"]'}))
    assert decode_arrow_rows(data, model="header").model == "header"
    assert _outcome(data) == Reason.NO_MODEL


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("column", ["numbers", "dictionary"])
def test_compressed_buffers_are_refused_before_they_unpack(codec: str, column: str) -> None:
    rows = 2_000_000
    plain = pa.array(np.zeros(rows))
    feature = plain if column == "numbers" else pa.array(["a" * 5000] * 100).dictionary_encode()
    score = plain if column == "numbers" else pa.array(np.zeros(100))
    table = pa.table({"x": feature, "score": score}).replace_schema_metadata(
        {"attributary.model": "m", "attributary.outputs": '["score"]'}
    )
    data = _stream(table, compression=codec)
    before = pa.total_allocated_bytes()
    with pytest.raises(RejectedError, match="compressed") as caught:
        decode_arrow_rows(data)
    assert caught.value.reason == Reason.NOT_DECODABLE
    assert pa.total_allocated_bytes() - before < 100_000


def test_truncated_anywhere_it_is_refused() -> None:
    whole = decode_arrow_rows(MESSAGE)
    for cut in range(len(MESSAGE)):
        reason = _outcome(MESSAGE[:cut])
        if reason is None:  # only the marker of the stream's end may be missing
            assert len(MESSAGE) - cut <= 8
            assert decode_arrow_rows(MESSAGE[:cut]).rows == whole.rows
        else:
            assert reason in (Reason.NOT_DECODABLE, Reason.EMPTY)


def test_corrupted_anywhere_it_is_read_or_refused() -> None:
    """A wrong offset or dictionary index once made the process read outside the buffer and die."""
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(6000):
        data = bytearray(MESSAGE)
        for place in rng.integers(len(data), size=rng.integers(1, 4)):
            data[place] = rng.integers(256)
        refused += _outcome(bytes(data)) is not None
    assert refused > 3000


@settings(max_examples=200)
@given(st.binary(max_size=400))
def test_any_bytes_are_refused(tail: bytes) -> None:
    assert _outcome(tail) is not None
    assert _outcome(b"\xff\xff\xff\xff" + tail) is not None


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"x": [], "score": []}, Reason.EMPTY),
        ({"x": [1], "score": ["high"]}, Reason.WRONG_TYPE),
        ({"x": [[1]], "score": [1]}, Reason.WRONG_TYPE),
        ({"x": [{"a": 1}], "score": [1]}, Reason.WRONG_TYPE),
        ({"x": [b"\xff"], "score": [1]}, Reason.WRONG_TYPE),
        ({"x": [1], "score": [1], WEIGHT: [0.0]}, Reason.BAD_WEIGHT),
        ({"x": [1], "score": [1], WEIGHT: [float("nan")]}, Reason.BAD_WEIGHT),
        ({"x": [1], "score": [1], WEIGHT: [float("inf")]}, Reason.BAD_WEIGHT),
        ({"x": [1], "score": [1], WEIGHT: pa.array([None], pa.float64())}, Reason.BAD_WEIGHT),
        ({"x": [1], "score": [1], WEIGHT: ["1"]}, Reason.WRONG_TYPE),
        ({"x": [1], "score": [1], TIME: ["today"]}, Reason.WRONG_TYPE),
        ({"x": [1], "score": [1], TIME: [float("nan")]}, Reason.BAD_TIME),
        ({"x": [1], "score": [1], TIME: [1e300]}, Reason.BAD_TIME),
        ({"x": [1], "score": [1], TIME: pa.array([None], pa.timestamp("ns"))}, Reason.BAD_TIME),
    ],
    ids=lambda value: str(value)[:60],
)
def test_columns_that_cannot_serve_are_refused(columns: dict[str, Any], reason: Reason) -> None:
    assert _reason(columns) == reason


def test_a_refused_message_counts_every_row_that_it_held() -> None:
    bad = [
        {"x": [1, 2, 3], "score": ["a", "b", "c"]},
        {"x": [1, 2, 3], "score": [1, 2, 3], WEIGHT: [1, 0, 1]},
        {"x": [1, 2, 3], "score": [1, 2, 3], TIME: [0, float("nan"), 0]},
    ]
    for columns in bad:
        with pytest.raises(RejectedError) as caught:
            decode_arrow_rows(encode_arrow_rows("m", columns, ["score"]))
        assert caught.value.rows == 3
    with pytest.raises(RejectedError) as caught:
        decode_arrow_rows(MESSAGE[:-100])
    assert caught.value.rows == 1, "too broken to tell"


def test_outputs_must_be_named_and_there() -> None:
    assert _reason({"x": [1], "score": [1]}, ["other"]) == Reason.OUTPUTS_MISSING
    assert _reason({"x": [1], "score": [1]}, []) == Reason.OUTPUTS_MISSING
    for listed in ("", "score", '"score"', "[1]", "{}", "[" * 100_000, '["\\ud800"]'):
        table = pa.table({"x": [1.0], "score": [1]}).replace_schema_metadata(
            {"attributary.model": "m", "attributary.outputs": listed}
        )
        assert _outcome(_stream(table)) == Reason.OUTPUTS_MISSING, listed[:20]


def test_a_column_named_twice_is_refused() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["x", "x", "score"])
    table = table.replace_schema_metadata(
        {"attributary.model": "m", "attributary.outputs": '["score"]'}
    )
    assert _outcome(_stream(table)) == Reason.WRONG_TYPE


def test_too_many_rows_are_refused_and_say_how_many_may_be() -> None:
    data = encode_arrow_rows("m", {"x": np.zeros(11), "score": np.zeros(11)}, ["score"])
    with pytest.raises(RejectedError, match="11 rows; send at most 10") as caught:
        decode_arrow_rows(data, max_rows=10)
    assert (caught.value.reason, caught.value.rows) == (Reason.TOO_LARGE, 11)
    assert decode_arrow_rows(data, max_rows=11).rows == 11


def test_columns_of_nulls_are_missing_numbers() -> None:
    found = decode_arrow_rows(
        encode_arrow_rows("m", {"x": pa.nulls(2), "score": [1, 2]}, ["score"])
    )
    assert np.isnan(numbers(found.features["x"], "x")).all()


@pytest.mark.parametrize(
    ("value", "name"),
    [(True, "true"), (False, "false"), (3, "3"), (3.0, "3"), (-0.0, "0"), (2.5, "2.5"), ("a", "a")],
)
def test_a_category_has_one_name_in_every_format(value: object, name: str) -> None:
    assert category(value) == name


def _matrix_columns() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    floats = rng.standard_normal(50)
    return {
        "double": pa.array(floats, mask=floats > 1),
        "other": pa.array(floats * 2),
        "single": pa.array(floats.astype(np.float32), mask=floats < -1),
        "long": pa.array(rng.integers(-(2**62), 2**62, 50)),
        "gaps": pa.array(rng.integers(0, 9, 50), mask=floats > 0),
        "byte": pa.array(rng.integers(-99, 99, 50).astype(np.int8), mask=floats > 0),
        "unsigned": pa.array(rng.integers(0, 2**63, 50).astype(np.uint64) * 2 + 1),
        "flag": pa.array(floats > 0, mask=floats > 1),
        "money": pa.array([None, *range(49)], pa.decimal128(9, 2)),
        "nothing": pa.nulls(50),
        "half": pa.array(floats.astype(np.float16)),
        "coded": pa.array([1.5, 2.5] * 25).dictionary_encode(),
    }


@pytest.mark.parametrize(
    "chosen",
    [("double",), ("double", "other"), ("long",), ("single",), tuple(_matrix_columns())],
    ids=["one", "two", "long", "single", "all"],
)
def test_a_matrix_holds_what_the_columns_hold_one_by_one(chosen: tuple[str, ...]) -> None:
    made = _matrix_columns()
    columns = {name: made[name] for name in chosen}
    # The output's type decides whether all of the batch is one type.
    for output in (np.arange(50.0), np.arange(50)):
        found = decode_arrow_rows(
            encode_arrow_rows("m", {**columns, "score": output}, ["score"])
        ).features
        for names in (chosen, chosen[::-1], ("absent", *chosen)):
            matrix = found.matrix(names)
            assert matrix.dtype == np.float64
            for name, column in zip(names, matrix.T, strict=True):
                expected = np.full(50, np.nan) if name == "absent" else numbers(found[name], name)
                np.testing.assert_array_equal(column, expected, err_msg=name)
    with pytest.raises(RejectedError, match="plan"):
        decode_arrow_rows(MESSAGE).features.matrix(("age", "plan"))


def test_schemas_that_change_with_every_message_are_not_all_remembered() -> None:
    for number in range(3 * arrow._MOST_SHAPES):
        decode_arrow_rows(encode_arrow_rows("m", {f"x{number}": [1.0], "score": [2]}, ["score"]))
    assert len(arrow._shapes) <= arrow._MOST_SHAPES
