"""How requests of one id meet in a worker: one of them is computed. Broker and methods are stood in for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiokafka import ConsumerRecord, TopicPartition
from prometheus_client import CollectorRegistry

from attributary.schemas.connection import Connection
from attributary.schemas.explanation import Explanation, Progress
from attributary.schemas.topics import Topics
from attributary.workers.ondemand.answers import AnswerLog, answer_record
from attributary.workers.ondemand.cancellations import CancellationReader
from attributary.workers.ondemand.job import Job
from attributary.workers.ondemand.metrics import OnDemandMetrics
from attributary.workers.ondemand.options import OnDemandOptions
from attributary.workers.ondemand.progress import ProgressTeller
from attributary.workers.ondemand.request_service import RequestService
from attributary.workers.stream.outgoing import Outgoing

TOPICS = Topics()
NORMAL = TopicPartition(TOPICS.requests, 0)
HIGH = TopicPartition(TOPICS.requests_high, 0)


class Producer:
    """Takes everything, and keeps it."""

    def __init__(self) -> None:
        self.sent: list[Outgoing] = []

    async def send(self, records: Sequence[Outgoing]) -> None:
        await asyncio.sleep(0.01)
        self.sent += records

    @property
    def finals(self) -> list[Explanation]:
        values = [one.value for one in self.sent if not (one.key or b"").startswith(b"p|")]
        return [Explanation.from_bytes(value) for value in values]

    @property
    def begun(self) -> list[Progress]:
        values = [one.value for one in self.sent if (one.key or b"").startswith(b"p|")]
        return [Progress.from_bytes(value) for value in values]


class KnownLog(AnswerLog):
    """A log that reads nothing back: what is answered it knows from acknowledgements alone."""

    async def know_since(self, partition: TopicPartition, time_ms: int) -> None:
        """All is known."""


class Methods:
    """Answers every request after a moment, or with nothing where it is lost by then."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()

    async def answer(
        self, job: Job, threads: Any, begin: Callable[[Job], Awaitable[None]]
    ) -> list[Outgoing]:
        if job.id is None:  # read from the value
            job.id = "r"
        else:
            await begin(job)
        await self.let_go.wait()
        if job.lost.is_set():
            return []
        message = Explanation(
            id=job.id, model="m", method="t-explainer", outcome="cancelled", seed=0,
            attempt=job.attempt, requested_at=0, computed_at=0, seconds=0.0,
        )  # fmt: skip
        return [answer_record(TOPICS, 1, message, job, "me")]

    def count(self, job: Job) -> None:
        """Nothing is counted."""


def service() -> tuple[RequestService, Producer, Methods]:
    metrics = OnDemandMetrics.build(CollectorRegistry())
    log = KnownLog(Connection(), TOPICS, "me")
    made: Any = RequestService(
        Connection(), TOPICS, OnDemandOptions(), None, log,  # type: ignore[arg-type]
        CancellationReader(Connection(), TOPICS), metrics, None, "me",  # type: ignore[arg-type]
    )  # fmt: skip
    producer, methods = Producer(), Methods()
    made.producer, made._answering, made._threads = producer, methods, None
    made._progress = ProgressTeller(TOPICS, 1, "me", producer)  # type: ignore[arg-type]
    made._settled.set()
    log.own([NORMAL, HIGH])
    return made, producer, methods


def job(where: TopicPartition, offset: int, key: bytes | None = b"r") -> Job:
    record = ConsumerRecord(where.topic, where.partition, offset, 0, 0, key, b"", None, 0, 0, ())
    return Job.of(record, "high" if where == HIGH else "normal")


async def serve(made: RequestService, *jobs: Job) -> None:
    """Serve jobs at one time, and those that are put back until none is."""
    serving = {asyncio.create_task(made._serve(one)) for one in jobs}
    while serving:
        _, serving = await asyncio.wait(serving, timeout=0.02)
        while any(made._queue._waiting.values()):
            again = await made._queue.next()
            assert again is not None
            serving.add(asyncio.create_task(made._serve(again)))


async def test_the_same_id_on_both_topics_is_computed_once() -> None:
    made, producer, methods = service()
    asyncio.get_running_loop().call_later(0.15, methods.let_go.set)
    await serve(made, job(NORMAL, 1), job(NORMAL, 2), job(HIGH, 1))
    await serve(made, job(HIGH, 2))
    assert [one.id for one in producer.finals] == ["r"]
    assert [(one.state, one.attempt) for one in producer.begun] == [("started", 1)]
    assert made._holders == {}


async def test_an_id_that_only_the_value_says_is_answered_once() -> None:
    made, producer, methods = service()
    methods.let_go.set()
    await serve(made, job(NORMAL, 1, None), job(NORMAL, 2, None), job(HIGH, 1))
    assert [one.id for one in producer.finals] == ["r"]
    assert made._holders == {}


async def test_an_id_whose_partition_is_lost_is_free_for_the_same_request_of_another() -> None:
    made, producer, methods = service()
    first, second = job(NORMAL, 1), job(HIGH, 1)
    serving = asyncio.create_task(serve(made, first))
    await asyncio.sleep(0.05)
    waiting = asyncio.create_task(serve(made, second))
    await asyncio.sleep(0.05)
    first.lost.set()
    methods.let_go.set()
    await asyncio.gather(serving, waiting)
    assert [one.id for one in producer.finals] == ["r"]
    assert [one.attempt for one in producer.begun] == [1, 1]
    assert made._answers.answered(second.origin, "r")
    assert made._holders == {}


class Consumer:
    """Has committed nothing, and seeks nowhere."""

    async def beginning_offsets(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    async def committed(self, partition: TopicPartition) -> None:
        return None

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Nothing is read."""


async def test_requests_of_a_partition_that_moves_are_released() -> None:
    made, producer, methods = service()
    hidden: Any = made
    hidden._consumer = Consumer()
    await made.take_over([NORMAL, HIGH])
    going, staying = job(NORMAL, 1), job(HIGH, 1, b"s")
    for one, where in ((going, NORMAL), (staying, HIGH)):
        hidden._jobs[where][1] = one
        one.working = True
    serving = asyncio.gather(made._serve(going), made._serve(staying))
    await asyncio.sleep(0.1)
    await made.take_over([HIGH])
    assert going.lost.is_set()
    assert not staying.lost.is_set()
    told = [(one.id, one.state) for one in producer.begun]
    assert told == [("r", "started"), ("s", "started"), ("r", "released")]
    methods.let_go.set()
    await serving
    assert [one.id for one in producer.finals] == ["s"]
