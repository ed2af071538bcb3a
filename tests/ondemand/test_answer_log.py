"""What the log of answers knows, record by record: first answers, second ones, and begun requests."""

from __future__ import annotations

import pytest
from aiokafka import ConsumerRecord, TopicPartition

from attributary.schemas.connection import Connection
from attributary.schemas.dead_letter import Origin
from attributary.schemas.explanation import Explanation, Progress
from attributary.schemas.topics import Topics
from attributary.workers.ondemand import answers
from attributary.workers.ondemand.answers import AnswerLog, answer_record
from attributary.workers.ondemand.job import Job
from attributary.workers.stream.decode import Record

TOPICS = Topics()
HERE = Origin(TOPICS.requests, 0, 7)
HIGH = Origin(TOPICS.requests_high, 1, 3)


@pytest.fixture
def log() -> AnswerLog:
    made = AnswerLog(Connection(), TOPICS, "me")
    made.own([TopicPartition(*HERE[:2])])
    return made


def record(
    offset: int, message: Explanation | Progress, origin: Origin = HERE, worker: str = "me"
) -> ConsumerRecord:
    """Return a message as it is read back from the log."""
    job = Job(origin, Record(origin.offset, 0, b""), "normal", message.id, None)
    sent = answer_record(TOPICS, 1, message, job, worker)
    return ConsumerRecord(
        sent.topic, 0, offset, 0, 0, sent.key, sent.value, None, 0, 0, tuple(sent.headers)
    )


def final(request_id: str = "r") -> Explanation:
    return Explanation(
        id=request_id, model="m", method="t-explainer", outcome="cancelled", seed=0, attempt=1,
        requested_at=0, computed_at=0, seconds=0.0,
    )  # fmt: skip


def progress(state: str, attempt: int = 1) -> Progress:
    return Progress(id="r", state=state, attempt=attempt, done=0, total=0, at=0)


def test_an_answer_is_known_once_it_is_acknowledged(log: AnswerLog) -> None:
    assert not log.answered(HERE, "r")
    log.acknowledged(HERE, "r")
    assert log.answered(HERE, None)
    assert log.answered(HIGH, "r"), "the same request elsewhere"
    assert not log.answered(HIGH, "other")
    log.add(record(5, final()))
    assert log.answered(HIGH, "r")
    assert log.to_repeat == []


def test_a_letter_of_no_id_is_known_by_its_place(log: AnswerLog) -> None:
    log.acknowledged(HERE, None)
    assert log.answered(HERE, None)
    assert not log.answered(HERE._replace(offset=8), None)


@pytest.mark.parametrize("acknowledged_first", [True, False])
def test_an_own_answer_behind_another_workers_is_repeated(
    log: AnswerLog, acknowledged_first: bool
) -> None:
    if acknowledged_first:
        log.acknowledged(HERE, "r")
    log.add(record(4, final(), HIGH, worker="other"))
    if not acknowledged_first:
        log.acknowledged(HERE, "r")
    log.add(record(5, final()))
    assert log.to_repeat == [(TopicPartition(TOPICS.explanations, 0), 4)]


def test_an_own_answer_before_another_workers_holds(log: AnswerLog) -> None:
    log.acknowledged(HERE, "r")
    log.add(record(4, final()))
    log.add(record(5, final(), HIGH, worker="other"))
    log.add(record(4, final()))  # a look back
    assert log.to_repeat == []


def test_what_is_committed_is_forgotten(log: AnswerLog) -> None:
    log.acknowledged(HERE, None)
    log.committed(TopicPartition(*HERE[:2]), HERE.offset + 1)
    assert not log.answered(HERE, None)


def test_ids_are_kept_up_to_a_number(log: AnswerLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_MOST_IDS", 3)
    for number in range(5):
        log.acknowledged(HIGH, f"r{number}")
    assert [log.answered(HIGH, f"r{number}") for number in range(5)] == [False] * 2 + [True] * 3


def test_a_request_that_lies_twice_is_begun_once_each(log: AnswerLog) -> None:
    """Another worker with the same request of the other topic is no worker that died of this one."""
    log.add(record(1, progress("started"), HERE))
    log.add(record(2, progress("started"), HIGH, worker="other"))
    assert (log.begun(HERE), log.begun(HIGH)) == (1, 1)
    log.add(record(3, progress("released"), HERE))
    assert (log.begun(HERE), log.begun(HIGH)) == (0, 1)
    log.acknowledged(HERE, "r")
    log.add(record(4, progress("started", 2), HERE))
    assert log.begun(HERE) == 0


def test_a_release_that_comes_after_the_next_owner_began_takes_one_back(log: AnswerLog) -> None:
    log.add(record(1, progress("started")))
    log.add(record(2, progress("started", 2), worker="other"))
    log.add(record(3, progress("released")))
    assert log.begun(HERE) == 1
    log.add(record(4, progress("running", 2), worker="other"))
    assert log.begun(HERE) == 1
