"""A record of the rows topic to rows: told apart by content type or bytes, refused with a reason."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from streams import arrow, card, epoch, record

from attributary.schemas.errors import Reason, RejectedError
from attributary.schemas.row import Row
from attributary.schemas.row_shape import RowShapes
from attributary.workers.stream.block import Block
from attributary.workers.stream.decode import Decoded, decode
from attributary.workers.stream.lightweight import FULL
from attributary.workers.stream.options import IngestOptions

OPTIONS = IngestOptions(max_message_bytes=5000, max_message_rows=20)
ROW = b'{"model": "m", "features": {"a": 1}, "outputs": 2}'
ARROW = arrow({"a": [1.0, 2.0], "y": [1.0, 2.0]})


def _decode(value: bytes | None, *headers: tuple[str, bytes]) -> Decoded:
    return decode(record(value, headers=headers), OPTIONS)


def _refused(value: bytes | None, *headers: tuple[str, bytes]) -> tuple[Reason, int]:
    with pytest.raises(RejectedError) as caught:
        _decode(value, *headers)
    return caught.value.reason, caught.value.rows


@pytest.mark.parametrize(
    "content",
    [None, b"application/json", b"application/json; charset=utf-8", b"Application/JSON", b""],
)
def test_json_is_read_with_its_content_type_or_without(content: bytes | None) -> None:
    found = _decode(ROW, *([] if content is None else [("Content-Type", content)]))
    ((model, staged),) = found.staged
    assert (model, staged.rows, staged.index) == ("m", 1, 0)
    assert isinstance(staged.content, Row)
    assert not found.errors


@pytest.mark.parametrize(
    "content",
    [None, b"application/vnd.apache.arrow.stream", b"APPLICATION/vnd.apache.arrow.stream; v=1"],
)
def test_arrow_is_read_with_its_content_type_or_without(content: bytes | None) -> None:
    found = _decode(ARROW, *([] if content is None else [("content-type", content)]))
    ((model, staged),) = found.staged
    assert (model, staged.rows) == ("m", 2)


def test_the_models_name_may_come_in_a_header_and_the_rows_own_wins() -> None:
    nameless = (
        b'[{"features": {"a": 1}, "outputs": 2}, {"model": "n", "features": {}, "outputs": 2}]'
    )
    assert [name for name, _ in _decode(nameless, ("model", b"h")).staged] == ["h", "n"]
    found = _decode(nameless)
    assert [(e.index, e.reason) for e in found.errors] == [(0, Reason.NO_MODEL)]
    assert [name for name, _ in found.staged] == ["n"]


def test_bad_rows_of_an_array_are_told_apart_from_good_ones() -> None:
    rows = [ROW.decode(), "1", "null", "{}", ROW.decode(), '{"model": "m", "features": {"a": []}}']
    found = _decode(f"[{','.join(rows)}]".encode())
    assert [staged.index for _, staged in found.staged] == [0, 4]
    assert [error.index for error in found.errors] == [1, 2, 3, 5]
    assert {error.reason for error in found.errors} == {Reason.WRONG_TYPE}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, Reason.EMPTY),
        (b"", Reason.EMPTY),
        (b" \n", Reason.EMPTY),
        (b"[]", Reason.EMPTY),
        (b"x" * 5001, Reason.TOO_LARGE),
        (b"\x00\x01\x02", Reason.NOT_DECODABLE),
        (b'{"model": "m"', Reason.NOT_DECODABLE),
        (b"[" * 4000, Reason.NOT_DECODABLE),
        (b"\xff\xff\xff\xff", Reason.NOT_DECODABLE),
        (ARROW[:-20], Reason.NOT_DECODABLE),
        (b"\xff\xff\xff\xff" + b"\x00" * 100, Reason.NOT_DECODABLE),
        (b"1", Reason.WRONG_TYPE),
        (b'"text"', Reason.WRONG_TYPE),
        (b'{"model": "m", "features": {"a": 1}}', Reason.WRONG_TYPE),
        (ROW.replace(b'"m"', b'"a model"'), Reason.NO_MODEL),
        (ROW.replace(b'"m"', '"mödel"'.encode()), Reason.NO_MODEL),
        (ROW.replace(b'"m"', b'"' + b"m" * 201 + b'"'), Reason.NO_MODEL),
        (ROW[:-1] + b', "weight": -1}', Reason.BAD_WEIGHT),
        (ROW[:-1] + b', "weight": 1e200}', Reason.BAD_WEIGHT),
        (ROW[:-1] + b', "id": "\\ud800"}', Reason.NOT_DECODABLE),
        (ROW[:-1] + b', "id": "\\ud800", "weight": NaN}', Reason.NOT_DECODABLE),
        (ROW.replace(b"1}", b"1" + b"0" * 400 + b"}"), Reason.WRONG_TYPE),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_reason(
    value: bytes | None, reason: Reason
) -> None:
    assert _refused(value) == (reason, 1)


def test_a_message_of_too_many_rows_counts_all_of_them() -> None:
    many = b"[" + b",".join([ROW] * 21) + b"]"
    assert _refused(many) == (Reason.TOO_LARGE, 21)
    columns = {"a": [1.0] * 21, "y": [1.0] * 21}
    assert _refused(arrow(columns)) == (Reason.TOO_LARGE, 21)


def test_another_content_type_is_refused_whatever_the_bytes() -> None:
    for content in (b"text/csv", b"application/octet-stream", b"\xff"):
        assert _refused(ROW, ("content-type", content))[0] == Reason.NOT_DECODABLE
    assert _refused(ROW, ("content-type", b"application/vnd.apache.arrow.stream"))[0] == (
        Reason.NOT_DECODABLE
    )


@pytest.mark.parametrize("role", ["a", "_id", "_time", "_weight", "y"])
def test_arrow_columns_of_any_type_are_read_or_refused(role: str) -> None:
    """Types that Python cannot hold, such as a time in the year 10^11, once ended the worker."""
    tricky = [
        pa.array([2**62, 1], pa.int64()).cast(pa.timestamp("s"), safe=False),
        pa.array([1, 2], pa.timestamp("us", tz="Nowhere/Land")),
        pa.array([2**31 - 1, 1], pa.int32()).cast(pa.date32()),
        pa.array([1, 2], pa.duration("ns")),
        pa.array([1, 2], pa.time64("ns")),
        pa.array([(1, 2, 3)] * 2, pa.month_day_nano_interval()),
        pa.array([b"\xff", b"a"]),
        pa.array([[1], [2]]),
        pa.array([{"a": 1}] * 2),
        pa.RunEndEncodedArray.from_arrays([1, 2], pa.array([1.0, 2.0])),
        pa.array([1, 2]).cast(pa.decimal256(40, 3)),
        pa.array(["1", None], pa.string_view()),
        pa.array(["1", None], pa.large_string()),
        pa.array([1, None]).dictionary_encode(),
        pa.array([True, None]),
        pa.array([2**64 - 1, 0], pa.uint64()),
        pa.nulls(2),
    ]
    good = {"a": pa.array([1.0, 2.0]), "y": pa.array([1.0, 2.0])}
    for column in tricky:
        for model in ("m", "unknown"):
            block = Block("rows", 0, IngestOptions(), 0, 0, None, 0, lambda _: FULL)
            block.add(record(arrow({**good, role: column}, model=model)))
            if model in block.models:
                block.count(model, epoch(card("a")))
            state = block.models[model if model in block.models else ""]
            counted = sum(pane.rows for pane in state.panes.values())
            assert counted + sum(state.rejected.values()) == 2, column.type


def test_fuzzed_messages_end_in_rows_or_one_reason() -> None:
    rng = random.Random(5)
    sources = [ROW, b"[" + ROW + b"," + ROW + b"]", ARROW, json.dumps({"a": [1] * 50}).encode()]
    read = refused = 0
    for _ in range(3000):
        data = bytearray(rng.choice(sources))
        for _ in range(rng.randint(1, 3)):
            action = rng.random()
            at = rng.randrange(len(data) + 1)
            if action < 0.5 and at < len(data):
                data[at] = rng.randrange(256)
            elif action < 0.75:
                data[at:at] = rng.randbytes(rng.randint(1, 5))
            else:
                del data[at : at + rng.randint(1, 8)]
        try:
            found = _decode(bytes(data))
        except RejectedError:
            refused += 1
        else:
            assert found.staged or found.errors
            read += 1
    assert read > 100
    assert refused > 300


_LONG = "x" * 501


@pytest.mark.parametrize(
    "row",
    [
        {"features": {_LONG: 1}, "outputs": 1},
        {"features": {"": 1, "a": 1}, "outputs": 1},
        {"features": {"a": _LONG}, "outputs": 1},
        {"features": {"a": 1}, "outputs": {_LONG: 1}},
        {"features": {"a": 1}, "outputs": {"": 1}},
    ],
)
def test_a_row_with_a_name_that_no_grid_can_hold_is_refused_alone(row: dict[str, Any]) -> None:
    """A model's first rows make its columns: one such name must not end the worker, nor cost the others."""
    good: dict[str, Any] = {
        "features": {"a": 1.0, "b": 2.0, "c": 3.0, "d": "x" * 500},
        "outputs": {"y": 1},
    }
    shapes, options = RowShapes(), IngestOptions()
    for each in [good] * 20:
        decode(record(json.dumps([{"model": "m", **each}]).encode()), options, shapes)
    rows = [{"model": "m", **each} for each in (good, {**good, **row}, good)]
    rows.append({**rows[1], "features": {**good["features"], **row["features"]}})
    found = decode(record(json.dumps(rows).encode()), options, shapes)
    assert [entry.index for _, entry in found.staged] == [0, 2]
    assert [(error.index, error.reason) for error in found.errors] == [
        (1, Reason.WRONG_TYPE),
        (3, Reason.WRONG_TYPE),
    ]


@pytest.mark.parametrize(
    "columns",
    [
        {_LONG: [1.0], "y": [1.0]},
        {"": [1.0], "y": [1.0]},
        {"a": [_LONG], "y": [1.0]},
        {"a": pa.array([_LONG]).dictionary_encode(), "y": [1.0]},
        {"a": pa.array([_LONG], pa.string_view()), "y": [1.0]},
    ],
)
def test_an_arrow_message_with_such_a_name_is_refused(columns: dict[str, Any]) -> None:
    with pytest.raises(RejectedError) as error:
        decode(record(arrow(columns)), OPTIONS)
    assert error.value.reason == Reason.WRONG_TYPE
    assert len(str(error.value)) < 300
