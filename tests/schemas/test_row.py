"""Rows as JSON: what is read, what is refused and why, whatever the bytes."""

from __future__ import annotations

import json
import math
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attributary.schemas.errors import Reason, RejectedError
from attributary.schemas.row import (
    Row,
    decode_json_rows,
    encode_row,
    event_time_ms,
    model_name,
)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
ROWS = st.builds(
    Row,
    features=st.dictionaries(
        NAMES, st.one_of(NUMBERS, st.booleans(), TEXTS, st.none()), max_size=6
    ),
    outputs=st.one_of(
        NUMBERS,
        st.lists(st.one_of(NUMBERS, st.none()), max_size=4),
        st.dictionaries(NAMES, st.one_of(NUMBERS, st.none()), max_size=4),
    ),
    model=st.one_of(st.none(), st.from_regex(r"[\x21-\x7e]{1,30}", fullmatch=True)),
    id=st.one_of(st.none(), TEXTS, st.integers(-(2**63), 2**64 - 1)),
    weight=st.floats(min_value=1e-9, max_value=1e9),
)


def _reason(data: bytes, **options: object) -> Reason:
    with pytest.raises(RejectedError) as caught:
        decode_json_rows(data, **options)  # type: ignore[arg-type]
    assert str(caught.value), "a rejection says why"
    return caught.value.reason


@given(ROWS)
def test_a_row_comes_back_as_it_was_sent(row: Row) -> None:
    ((index, model, found),) = decode_json_rows(encode_row(row), model="fallback").rows
    assert (index, model) == (0, row.model or "fallback")
    assert found == row


@given(st.lists(ROWS, min_size=1, max_size=5))
def test_an_array_is_its_rows_in_order(rows: list[Row]) -> None:
    data = b"[" + b",".join(map(encode_row, rows)) + b"]"
    found = decode_json_rows(data, model="m")
    assert [row for _, _, row in found.rows] == rows
    assert [index for index, _, _ in found.rows] == list(range(len(rows)))
    assert not found.errors


@given(st.binary(max_size=300))
def test_any_bytes_are_rows_or_rejected_with_a_reason(data: bytes) -> None:
    try:
        found = decode_json_rows(data, model="m")
    except RejectedError as error:
        reason: Reason | None = error.reason
    else:
        reason = None
        assert found.rows or found.errors
    assert reason in (None, Reason.EMPTY, Reason.NOT_DECODABLE, Reason.WRONG_TYPE, Reason.NO_MODEL)


@given(ROWS, st.data())
def test_a_truncated_row_is_never_another_row(row: Row, data: st.DataObject) -> None:
    encoded = encode_row(row)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    assert _reason(encoded[:cut], model="m") in (Reason.EMPTY, Reason.NOT_DECODABLE)


def test_nan_and_infinity_as_python_writes_them_are_missing_or_infinite() -> None:
    data = json.dumps(
        {"features": {"a": math.nan, "b": -math.inf}, "outputs": [math.nan, 1.0]}
    ).encode()
    ((_, _, row),) = decode_json_rows(data, model="m").rows
    assert math.isnan(row.features["a"])  # type: ignore[arg-type]
    assert row.features["b"] == -math.inf
    assert isinstance(row.outputs, list)
    assert math.isnan(row.outputs[0] or 0.0)
    assert row.outputs[1] == 1.0


def test_nan_is_written_as_null() -> None:
    encoded = encode_row(Row(features={"a": math.nan, "b": math.inf}, outputs=[math.nan]))
    assert json.loads(encoded) == {"features": {"a": None, "b": None}, "outputs": [None]}


def test_a_bad_row_leaves_the_others_of_its_array_alone() -> None:
    good = '{"features":{"a":1},"outputs":2}'
    parts = [
        good,
        "5",
        '{"features":[],"outputs":2}',
        good,
        '{"outputs":1}',
        '{"features":{"a":NaN},"outputs":1}',
    ]
    found = decode_json_rows(f"[{','.join(parts)}]".encode(), model="m")
    assert [index for index, _, _ in found.rows] == [0, 3, 5]
    assert [error.index for error in found.errors] == [1, 2, 4]
    assert {error.reason for error in found.errors} == {Reason.WRONG_TYPE}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", Reason.EMPTY),
        (b" \n\t ", Reason.EMPTY),
        (b"[]", Reason.EMPTY),
        (b"[ ]", Reason.EMPTY),
        (b"hello", Reason.NOT_DECODABLE),
        (b"\x00\xff\xfe\x80", Reason.NOT_DECODABLE),
        (b'{"features":{"a":1},"outputs":1} trailing', Reason.NOT_DECODABLE),
        (b'[{"features":{"a":1},"outputs":1}', Reason.NOT_DECODABLE),
        (b"[" * 200_000, Reason.NOT_DECODABLE),
        (b'{"features":{"a":1},"outputs":1,"x":' + b"[" * 200_000, Reason.WRONG_TYPE),
        (b'{"features":{"a":1},"outputs":1,"time":' + b"9" * 5000 + b"}", Reason.WRONG_TYPE),
        (b'{"features":{"a":1},"outputs":1,"id":' + b"9" * 5000 + b"}", Reason.WRONG_TYPE),
        (b'{"features":' * 200_000, Reason.WRONG_TYPE),
        (b"null", Reason.WRONG_TYPE),
        (b"12", Reason.WRONG_TYPE),
        (b"{}", Reason.WRONG_TYPE),
        (b'{"features":{"a":1}}', Reason.WRONG_TYPE),
        (b'{"features":{"a":[1]},"outputs":1}', Reason.WRONG_TYPE),
        (b'{"features":{"a":{}},"outputs":1}', Reason.WRONG_TYPE),
        (b'{"features":{"a":1},"outputs":null}', Reason.WRONG_TYPE),
        (b'{"features":{"a":1},"outputs":"1"}', Reason.WRONG_TYPE),
        (b'{"features":{"a":1},"outputs":[[1]]}', Reason.WRONG_TYPE),
        (b'{"features":{"a":1e400},"outputs":1}', Reason.WRONG_TYPE),
        (b'{"features":{"a":' + b"9" * 5000 + b'},"outputs":1}', Reason.WRONG_TYPE),
        (b'{"features":{"a":1},"outputs":1,"schema":"attributary.row/2"}', Reason.WRONG_TYPE),
        (b'{"features":{"a":1},"outputs":1,"weight":"2"}', Reason.WRONG_TYPE),
        (b'{"features":{"a":1},"outputs":1,"weight":0}', Reason.BAD_WEIGHT),
        (b'{"features":{"a":1},"outputs":1,"weight":-1}', Reason.BAD_WEIGHT),
        (b'{"features":{"a":1},"outputs":1,"weight":NaN}', Reason.BAD_WEIGHT),
        (b'{"features":{"a":1},"outputs":1,"weight":Infinity}', Reason.BAD_WEIGHT),
        (b'{"features":{"a":"\\ud800"},"outputs":1}', Reason.NOT_DECODABLE),
        (b'{"features":{"\\uDFFF":1},"outputs":1}', Reason.NOT_DECODABLE),
        (b'{"features":{"a":1},"outputs":{"\\ud800":1}}', Reason.NOT_DECODABLE),
        (b'{"features":{"a":1},"outputs":1,"id":"\\ud800"}', Reason.NOT_DECODABLE),
        (b'{"features":{"a":1},"outputs":1,"model":"a b"}', Reason.NO_MODEL),
        (b'{"features":{"a":1},"outputs":1,"model":"m\\u0000"}', Reason.NO_MODEL),
    ],
    ids=lambda value: repr(value)[:50],
)  # fmt: skip
def test_what_is_no_row_is_refused_with_its_reason(data: bytes, reason: Reason) -> None:
    assert _reason(data, model="m") == reason


def test_escaped_text_that_is_whole_is_read() -> None:
    data = b'{"features":{"\\u00e9":"\\ud83d\\ude00"},"outputs":1}'
    ((_, _, row),) = decode_json_rows(data, model="m").rows
    assert row.features == {"é": "😀"}


def test_a_row_without_any_model_is_refused_and_says_where_to_name_it() -> None:
    with pytest.raises(RejectedError, match="set 'model' in the row or the header") as caught:
        decode_json_rows(b'{"features":{"a":1},"outputs":1}')
    assert caught.value.reason == Reason.NO_MODEL


def test_an_array_beyond_the_limit_is_refused_whole() -> None:
    row = b'{"features":{"a":1},"outputs":1}'
    data = b"[" + b",".join([row] * 11) + b"]"
    with pytest.raises(RejectedError, match="11 rows; send at most 10") as caught:
        decode_json_rows(data, model="m", max_rows=10)
    assert (caught.value.reason, caught.value.rows) == (Reason.TOO_LARGE, 11)
    assert len(decode_json_rows(data, model="m", max_rows=11).rows) == 11


def test_unknown_members_are_ignored() -> None:
    data = b'{"features":{"a":1},"outputs":1,"traceparent":"00-","extra":{"deep":[1]}}'
    assert len(decode_json_rows(data, model="m").rows) == 1


@pytest.mark.parametrize("name", ["m", "a" * 200, "team-a/churn:v3", "!~"])
def test_model_names_of_printable_ascii(name: str) -> None:
    assert model_name(name) == name


@pytest.mark.parametrize(
    "name", [None, "", "a" * 201, "with space", "tab\t", "é", "\x1b[31m", "a\n"]
)
def test_other_model_names_are_refused(name: str | None) -> None:
    with pytest.raises(RejectedError) as caught:
        model_name(name)
    assert caught.value.reason == Reason.NO_MODEL
    assert "\x1b" not in str(caught.value)


def test_a_space_in_a_model_name_is_named_as_what_is_wrong() -> None:
    with pytest.raises(RejectedError, match="no spaces, got 'a b'"):
        model_name("a b")


@pytest.mark.parametrize(
    ("time", "milliseconds"),
    [
        (None, 7),
        (0, 0),
        (1.5, 1500),
        (-1, -1000),
        (1_769_860_800.123, 1_769_860_800_123),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01T01:00:00.25+01:00", 250),
        ("2026-01-31T12:00:00z", 1_769_860_800_000),
        ("1970-01-01T00:00:00.5Z", 500),
        ("1970-01-01T00:00:00.123456789Z", 123),
    ],
)
def test_times_in_milliseconds(time: str | float | None, milliseconds: int) -> None:
    assert event_time_ms(time, default=7) == milliseconds


@given(
    st.datetimes(
        timezones=st.just(timezone.utc),
        min_value=datetime(1, 1, 2),
        max_value=datetime(9999, 12, 30),
    )
)
def test_rfc_3339_times_round_trip_to_the_millisecond(moment: datetime) -> None:
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    exact = (moment - epoch).total_seconds() * 1000
    assert abs(event_time_ms(moment.isoformat(), default=0) - exact) <= 0.51


@pytest.mark.parametrize(
    "time",
    [
        *("yesterday", "", "2026-13-01T00:00:00Z", "99999-01-01"),
        *(math.nan, math.inf, 1e300, 2**53, 10**400),
    ],
)
def test_impossible_times_are_refused(time: str | float) -> None:
    with pytest.raises(RejectedError) as caught:
        event_time_ms(time, default=0)
    assert caught.value.reason == Reason.BAD_TIME
