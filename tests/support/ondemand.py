"""Requests, their answers, and a request worker in the test's own process."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

from aiokafka import AIOKafkaProducer, ConsumerRecord
from handles import FunctionHandle
from prometheus_client import CollectorRegistry
from records import read_topic_async

from attributary.schemas.card import ModelCard
from attributary.schemas.connection import Connection
from attributary.schemas.explanation import KIND_HEADER, Explanation, Progress
from attributary.schemas.request import DEADLINE_HEADER, Cancellation, ExplanationRequest, Instance
from attributary.schemas.topics import Topics
from attributary.service.reader import Reader
from attributary.workers.ondemand.metrics import OnDemandMetrics
from attributary.workers.ondemand.options import OnDemandOptions
from attributary.workers.ondemand.worker import build_worker

FINAL = b"final"


def request(
    request_id: str, model: str = "m", value: float = 1.0, **fields: Any
) -> ExplanationRequest:
    """Return a request about features a and b, with a background of its own."""
    rows = [Instance(features={"a": x, "b": -x}) for x in (-1.0, 0.0, 1.0)]
    given = {
        "instances": [Instance(features={"a": value, "b": 0.5})],
        "background": rows,
        **fields,
    }
    return ExplanationRequest(id=request_id, model=model, **given)


def headers(seconds: float | None) -> list[tuple[str, bytes]]:
    """Return the headers of a deadline so many seconds from now."""
    if seconds is None:
        return []
    return [(DEADLINE_HEADER, str(round((time.time() + seconds) * 1000)).encode())]


class Sender:
    """Sends cards, requests and cancellations."""

    def __init__(self, connection: Connection, topics: Topics) -> None:
        self._connection = connection
        self.topics = topics
        self._producer: AIOKafkaProducer | None = None

    async def __aenter__(self) -> Sender:
        self._producer = AIOKafkaProducer(
            **self._connection.client_arguments(), max_request_size=8 * 2**20
        )
        await self._producer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._producer is not None
        await self._producer.stop()

    async def card(self, card: ModelCard) -> None:
        """Register a card."""
        await self.raw(self.topics.models, card.model.encode(), card.to_bytes())

    async def request(
        self, one: ExplanationRequest, seconds: float | None = None, *, high: bool = False
    ) -> None:
        """Send a request with a deadline."""
        topic = self.topics.requests_high if high else self.topics.requests
        await self.raw(topic, one.id.encode(), one.to_bytes(), headers(seconds))

    async def cancel(self, request_id: str) -> None:
        """Take a request back."""
        await self.raw(
            self.topics.cancellations, request_id.encode(), Cancellation(id=request_id).to_bytes()
        )

    async def raw(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Any] = (),
        partition: int | None = None,
    ) -> None:
        """Send any bytes; ``partition`` None: the key decides."""
        assert self._producer is not None
        await self._producer.send_and_wait(topic, value, key, partition, headers=list(headers))


class Answers:
    """What lies in the explanations topic."""

    def __init__(self) -> None:
        self.final: dict[str, list[Explanation]] = {}
        self.progress: dict[str, list[Progress]] = {}

    def add(self, records: Iterable[ConsumerRecord]) -> None:
        """Take more records."""
        for record in records:
            if dict(record.headers)[KIND_HEADER] == FINAL:
                answer = Explanation.from_bytes(record.value)
                assert record.key == answer.id.encode()
                self.final.setdefault(answer.id, []).append(answer)
            else:
                progress = Progress.from_bytes(record.value)
                self.progress.setdefault(progress.id, []).append(progress)

    def the(self, request_id: str) -> Explanation:
        """Return the one final answer of a request."""
        (answer,) = self.final[request_id]
        return answer


async def answers(
    connection: Connection, topics: Topics, ids: Iterable[str], seconds: float = 30.0
) -> Answers:
    """Return the answers once every id has a final one, and what else came by then."""
    wanted = set(ids)
    deadline = time.monotonic() + seconds
    found = Answers()
    reader = Reader(connection, [topics.explanations], from_beginning=True)
    await reader.start()
    try:
        while not wanted <= found.final.keys():
            missing = sorted(wanted - found.final.keys())
            assert time.monotonic() < deadline, f"no answer to {missing[:5]} ({len(missing)})"
            with contextlib.suppress(asyncio.TimeoutError):
                found.add(await asyncio.wait_for(reader.read(), 1.0) or ())
    finally:
        await reader.stop()
    # And what is there besides: a second answer to one of them, say.
    every = Answers()
    every.add(await read_topic_async(connection, topics.explanations))
    return every


async def until(holds: Callable[[], Awaitable[bool]], seconds: float = 15.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not await holds():
        assert time.monotonic() < deadline, "not in time"
        await asyncio.sleep(0.05)


class Worker:
    """A request worker in this process; models are functions."""

    def __init__(
        self,
        connection: Connection,
        topics: Topics,
        open_model: Callable[[ModelCard], FunctionHandle],
        **options: Any,
    ) -> None:
        self.registry = CollectorRegistry()
        self._connection = connection
        self._topics = topics
        self._open = open_model
        self._options = OnDemandOptions(**{"session_seconds": 6.0, **options})

    async def __aenter__(self) -> Worker:
        self.hosted = build_worker(
            self._connection,
            self._topics,
            self._options,
            self._open,
            OnDemandMetrics.build(self.registry),
            asyncio.get_running_loop(),
        )
        for service in [*self.hosted.readers, *self.hosted.groups]:
            await service.start()
        await asyncio.wait_for(self.hosted.groups[0].joined.wait(), 30)
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        services = [*self.hosted.groups, *self.hosted.readers]
        for service in services:
            await service.stop()
        crashes = [service.crash_reason for service in services if service.crash_reason]
        assert not crashes, crashes

    def metric(self, name: str, **labels: str) -> float:
        """Return the value of one of its metrics; 0 where it has none yet."""
        return self.registry.get_sample_value(f"attributary_ondemand_{name}", labels) or 0.0
