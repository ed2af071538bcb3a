"""Staged rows to arrays: event times, far-future rows, ids, and refusals by record."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from streams import NOW, arrow, card, layout, record

from attributary.schemas.errors import Reason
from attributary.schemas.row import Row
from attributary.workers.maths.sample import hash_ids
from attributary.workers.stream.decode import Record, Staged, decode
from attributary.workers.stream.encode import Batch, Refusal, TimeRule, encode, refuse_all
from attributary.workers.stream.options import IngestOptions
from attributary.workers.stream.row_hashes import row_hashes

LAYOUT = layout(card("a"))
FUTURE = 3600.0


def _row(offset: int, time: Any = None, index: int = 0, **fields: Any) -> Staged:
    row = Row({"a": float(offset)}, 1.0, time=time, **fields)
    return Staged(Record(offset, NOW, b""), row, index)


def _arrow(offset: int, **columns: Any) -> Staged:
    taken = record(arrow({"a": [1.0, 2.0], "y": [1.0, 2.0], **columns}), offset, timestamp=NOW)
    ((_, staged),) = decode(taken, IngestOptions()).staged
    return staged


def _encode(*staged: Staged, place: str | None = None) -> list[Batch | Refusal]:
    return list(encode(staged, LAYOUT, TimeRule(FUTURE, 10_000, (), 1000), place))


def _times(*staged: Staged) -> list[int]:
    return [int(t) for part in _encode(*staged) if isinstance(part, Batch) for t in part.times]


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (None, NOW),
        (0, 0),
        (-1.5, -1500),
        (NOW / 1000 + FUTURE, NOW + 3_600_000),
        ("1969-12-31T23:59:59.250Z", -750),
        ("2023-11-14T22:13:20+00:00", NOW),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000),
        (-(2.0**52), -4_503_599_627_370_496_000),
    ],
)
def test_event_times_of_any_age_are_read(time: Any, expected: int) -> None:
    assert _times(_row(0, time)) == [expected]


@pytest.mark.parametrize(
    ("time", "reason"),
    [
        (NOW / 1000 + FUTURE + 0.001, Reason.FAR_FUTURE),
        (NOW, Reason.FAR_FUTURE),  # milliseconds where seconds are meant
        ("9999-12-31T23:59:59Z", Reason.FAR_FUTURE),
        (2.0**53, Reason.BAD_TIME),
        (1e300, Reason.BAD_TIME),
        ("tomorrow", Reason.BAD_TIME),
        ("", Reason.BAD_TIME),
        ("2023-13-01T00:00:00Z", Reason.BAD_TIME),
    ],
)
def test_times_too_far_ahead_or_impossible_are_refused(time: Any, reason: Reason) -> None:
    (refused,) = _encode(_row(3, time))
    assert isinstance(refused, Refusal)
    assert (refused.record.offset, refused.rows, refused.reason) == (3, 1, reason)


def test_arrow_times_are_seconds_or_timestamps() -> None:
    moment = datetime.datetime.fromtimestamp(NOW / 1000, datetime.timezone.utc)
    for column in (
        pa.array([NOW / 1000, -1.5]),
        pa.array([moment, moment - datetime.timedelta(days=30_000)], pa.timestamp("ns", tz="UTC")),
    ):
        first, second = _times(_arrow(0, _time=column))
        assert first == NOW
        assert second < 0


def test_far_future_rows_of_an_arrow_message_are_refused_alone() -> None:
    found = _encode(_arrow(7, _time=pa.array([NOW / 1000 + 4000, NOW / 1000])))
    batch, refused = found
    assert isinstance(batch, Batch)
    assert isinstance(refused, Refusal)
    np.testing.assert_array_equal(batch.X, [[2.0]])
    assert [(e.index, e.reason) for e in refused.errors] == [(0, Reason.FAR_FUTURE)]


def test_an_arrow_time_before_all_time_does_not_wrap_into_the_future() -> None:
    column = pa.array([-(2**63), 0], pa.int64()).cast(pa.timestamp("ms"))
    total = sum(
        len(part.times) if isinstance(part, Batch) else part.rows
        for part in _encode(_arrow(0, _time=column))
    )
    assert total == 2


def test_rows_stay_in_order_across_formats_and_weights_are_kept() -> None:
    parts = _encode(_row(0), _row(1, weight=2.5), _arrow(2), _arrow(3, _weight=[1.0, 4.0]), _row(4))
    batches = [part for part in parts if isinstance(part, Batch)]
    assert [batch.X[:, 0].tolist() for batch in batches] == [[0, 1], [1, 2], [1, 2], [4]]
    weights = [None if b.weight is None else b.weight.tolist() for b in batches]
    assert weights == [[1.0, 2.5], None, [1.0, 4.0], None]


def test_ids_are_hashed_where_rows_are_sampled_and_places_stand_in() -> None:
    rows = (_row(5, id="r1"), _row(6, id=17), _row(7, index=2), _row(8, id="\ud800"))
    (batch,) = _encode(*rows, place="rows/3")
    assert isinstance(batch, Batch)
    expected = hash_ids([b"r1", b"17", "\ud800".encode("utf-8", "surrogatepass")])
    assert batch.hashes is not None
    np.testing.assert_array_equal(batch.hashes[[0, 1, 3]], expected)
    assert batch.hashes[2] == row_hashes("rows/3", [7], [2], None)[0]
    (without,) = _encode(*rows)
    assert isinstance(without, Batch)
    assert without.hashes is None
    (sent,) = _encode(_arrow(9, _id=["x", None]), place="rows/3")
    assert isinstance(sent, Batch)
    assert sent.hashes is not None
    assert sent.hashes[0] == hash_ids([b"x"])[0]
    assert sent.hashes[1] == row_hashes("rows/3", [9], [1], None)[0]


def test_refused_rows_of_one_record_make_one_refusal() -> None:
    bad = Row({"a": "text"}, 1.0)
    staged = [
        Staged(Record(1, NOW, b""), bad, 0),
        Staged(Record(1, NOW, b""), Row({"a": 1.0}, 1.0), 1),
        Staged(Record(1, NOW, b""), Row({"a": 1.0}, 1.0, time="x"), 2),
        Staged(Record(2, NOW, b""), bad, 0),
    ]
    batch, first, second = _encode(*staged)
    assert isinstance(batch, Batch)
    assert isinstance(first, Refusal)
    assert isinstance(second, Refusal)
    assert batch.times.tolist() == [NOW]
    assert [(e.index, e.reason) for e in first.errors] == [
        (0, Reason.WRONG_TYPE),
        (2, Reason.BAD_TIME),
    ]
    assert (first.rows, second.rows, second.record.offset) == (2, 1, 2)


def test_an_arrow_message_that_does_not_fit_is_refused_whole() -> None:
    (refused,) = _encode(_arrow(4, a=pa.array(["x", "y"])))
    assert isinstance(refused, Refusal)
    assert (refused.rows, refused.reason, refused.errors) == (2, Reason.WRONG_TYPE, ())


def test_all_waiting_rows_of_a_record_are_refused_together() -> None:
    staged = [_row(1, index=0), _row(1, index=3), _arrow(2), _row(3)]
    found = list(refuse_all(staged, Reason.TOO_LARGE, "why"))
    assert [(r.record.offset, r.rows) for r in found] == [(1, 2), (2, 2), (3, 1)]
    assert [[e.index for e in r.errors] for r in found] == [[0, 3], [], [0]]
    assert {(r.reason, r.message) for r in found} == {(Reason.TOO_LARGE, "why")}


def test_a_block_takes_rows_in_so_many_panes_and_no_more() -> None:
    rule = TimeRule(FUTURE, 10_000, [NOW // 10_000], 2)
    times = [NOW, NOW - 20_000, NOW - 40_000, NOW - 19_999, NOW + 5]
    staged = [_row(offset, time / 1000) for offset, time in enumerate(times)]
    *_, refused = parts = list(encode(staged, LAYOUT, rule, None))
    assert isinstance(parts[0], Batch)
    # The second pane is that of the second row; the third row would make a third.
    assert parts[0].times.tolist() == [NOW, NOW - 20_000, NOW - 19_999, NOW + 5]
    assert isinstance(refused, Refusal)
    assert (refused.record.offset, refused.reason) == (2, Reason.TOO_MANY_PANES)
    assert "publish in time order" in refused.message


def test_panes_are_bounded_alike_in_arrow_rows() -> None:
    rule = TimeRule(FUTURE, 10_000, (), 1)
    columns = {"_time": pa.array([NOW / 1000 - 50, NOW / 1000 + 4000])}
    batch, refused = encode([_arrow(3, **columns)], LAYOUT, rule, None)
    assert isinstance(batch, Batch)
    assert isinstance(refused, Refusal)
    assert batch.times.tolist() == [NOW - 50_000]
    assert [error.reason for error in refused.errors] == [Reason.FAR_FUTURE]
    (again,) = encode([_arrow(4)], LAYOUT, rule, None)
    assert isinstance(again, Refusal)
    assert [error.reason for error in again.errors] == [Reason.TOO_MANY_PANES] * 2
