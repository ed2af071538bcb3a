"""One request: how it is read, and what ends it."""

from __future__ import annotations

import time

import pytest
from aiokafka import ConsumerRecord

from attributary.schemas.explanation import ErrorCode
from attributary.schemas.request import DEADLINE_HEADER, ExplanationRequest, Instance
from attributary.workers.ondemand.errors import (
    CancelledRequestError,
    ExpiredError,
    LostError,
    RequestError,
)
from attributary.workers.ondemand.job import Job

REQUEST = ExplanationRequest(id="r1", model="m", instances=[Instance(features={"a": 1})])


def job(
    value: bytes | None = None, key: bytes | None = b"r1", deadline: bytes | None = None
) -> Job:
    headers = () if deadline is None else ((DEADLINE_HEADER, deadline),)
    record = ConsumerRecord(
        topic="requests", partition=2, offset=7, timestamp=1000, timestamp_type=1, key=key,
        value=REQUEST.to_bytes() if value is None else value, checksum=None,
        serialized_key_size=0, serialized_value_size=0, headers=headers,
    )  # fmt: skip
    return Job.of(record, "normal")


def now_ms(seconds: float = 0.0) -> bytes:
    return str(round((time.time() + seconds) * 1000)).encode()


def test_a_request_is_read() -> None:
    found = job(deadline=now_ms(60))
    assert found.request(10_000) == REQUEST
    assert str(found.origin) == "requests/2/7"
    found.check()


@pytest.mark.parametrize("key", [None, b"", b"two words", b"\xff", b"x" * 201])
def test_a_key_that_is_no_id_gives_way_to_the_id_in_the_message(key: bytes | None) -> None:
    found = job(key=key)
    assert found.id is None
    with pytest.raises(RequestError, match="must be the request's id 'r1'") as caught:
        found.request(10_000)
    assert caught.value.code == ErrorCode.BAD_REQUEST
    assert found.id == "r1"


@pytest.mark.parametrize("value", [b"", b"\x00junk", b"{}", b'{"id":"r1"}', b"[" * 10_000])
def test_junk_is_a_bad_request(value: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        job(value).request(100_000)
    assert caught.value.code == ErrorCode.BAD_REQUEST


def test_a_request_too_large_is_not_read() -> None:
    with pytest.raises(RequestError, match="reads at most 100: ask for fewer") as caught:
        job(b"[" * 101).request(100)
    assert caught.value.code == ErrorCode.LIMIT_EXCEEDED


@pytest.mark.parametrize("deadline", [b"", b"soon", b"-5", b"1e9", b"9" * 30, b"\xff"])
def test_a_deadline_that_cannot_be_read_is_none(deadline: bytes) -> None:
    assert job(deadline=deadline).deadline is None


def test_what_ends_a_request_is_raised_in_order() -> None:
    found = job(deadline=now_ms(-1))
    with pytest.raises(ExpiredError):
        found.check()
    found.cancelled.set()
    with pytest.raises(CancelledRequestError):
        found.check()
    found.lost.set()
    with pytest.raises(LostError):
        found.check()


def test_time_to_compute_is_limited() -> None:
    found = job()
    found.limit(0.01)
    time.sleep(0.02)
    with pytest.raises(RequestError, match=r"not done after 0\.01 s") as caught:
        found.check()
    assert caught.value.code == ErrorCode.LIMIT_EXCEEDED


def test_answers_to_a_scheduled_request_are_looked_for_from_the_tick_before_on() -> None:
    assert job(deadline=b"5000").since == 1000
    # Whoever sends it once more may do so until the next tick, by another clock.
    assert job(key=b"scheduled|900|m", deadline=b"1100").since == 700
    assert job(key=b"scheduled|900|m").since == 900
    assert job(key=b"scheduled|4000|m", deadline=b"5000").since == 1000
    assert job(key=b"scheduled|x|m", deadline=b"5000").since == 1000
