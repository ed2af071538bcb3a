"""Requests for explanations and their answers, over the topics of one broker."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from aiokafka import AIOKafkaProducer, ConsumerRecord
from aiokafka.errors import KafkaError
from pydantic import ValidationError

from attributary.schemas.connection import Connection
from attributary.schemas.errors import (
    AttributaryError,
    BrokerError,
    ConfigurationError,
    RejectedError,
)
from attributary.schemas.explanation import FINAL, KIND_HEADER, PROGRESS, Explanation, Progress
from attributary.schemas.request import (
    DEADLINE_HEADER,
    PROGRESS_PREFIX,
    Cancellation,
    ExplanationRequest,
    Instance,
    MethodName,
    StreamWindow,
    Value,
)
from attributary.schemas.topics import Topics
from attributary.service.address import connection_of
from attributary.service.explainer import NoAnswerError
from attributary.service.reader import Reader

Features = Mapping[str, Value]
Rows = Features | Instance | Sequence[Features | Instance] | StreamWindow

_REQUEST_MS = 10_000
_MAX_BYTES = 8 * 2**20
# A worker says that a request has expired; where there is none, nobody does.
_GRACE_SECONDS = 5.0


class Exchange:
    """What an explainer does on its event loop: many requests may be under way at one time."""

    def __init__(self, bootstrap: str | Connection, model: str, topics: Topics | None) -> None:
        """Check the address (ConfigurationError)."""
        self._connection = connection_of(bootstrap)
        self._model = model
        self._topics = topics or Topics()
        self._producer: AIOKafkaProducer | None = None
        self._reader: Reader | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[str, _Waiting] = {}

    async def start(self) -> None:
        """Connect, unless it is connected. BrokerError: no broker there, or a topic missing."""
        if self._reading is not None and not self._reading.done():
            return
        await self.close()  # what a lost connection has left
        # Whoever reads from the end must be there before the request is sent.
        reader = Reader(self._connection, [self._topics.explanations])
        await reader.start()
        producer = AIOKafkaProducer(
            **self._connection.client_arguments(),
            acks="all",
            request_timeout_ms=_REQUEST_MS,
            max_request_size=_MAX_BYTES,
        )
        try:
            await producer.start()
        except KafkaError as error:
            await producer.stop()
            await reader.stop()
            raise BrokerError(f"{self._connection.bootstrap}: {error}") from None
        self._reader, self._producer = reader, producer
        self._reading = asyncio.create_task(self._read(reader))

    async def ask(
        self,
        instances: Rows,
        *,
        method: MethodName,
        output: str | int | None,
        background: Rows | None,
        parameters: Mapping[str, Any] | None,
        seed: int,
        timeout: float,
        priority: Literal["normal", "high"],
        on_progress: Callable[[Progress], None] | None,
    ) -> Explanation:
        """Send a request, and return its final answer. See ``Explainer.request``."""
        try:
            request = ExplanationRequest(
                id=uuid.uuid4().hex,
                model=self._model,
                method=method,
                output=output,
                instances=_rows(instances),
                background=None if background is None else _rows(background),
                parameters=dict(parameters or {}),
                seed=seed,
            )
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise ConfigurationError(f"request: {place}: {first['msg']}") from None
        await self.start()
        waiting = self._waiting[request.id] = _Waiting(on_progress)
        try:
            await self._send(request, timeout, priority)
            return await asyncio.wait_for(asyncio.shield(waiting.answer), timeout + _GRACE_SECONDS)
        except asyncio.TimeoutError:
            raise NoAnswerError(
                f"no answer after {timeout:g} s; is a worker running? (attributary ondemand)"
            ) from None
        except asyncio.CancelledError:
            await asyncio.shield(self._cancel(request.id))
            raise
        finally:
            del self._waiting[request.id]

    async def close(self) -> None:
        """Disconnect."""
        reading, self._reading = self._reading, None
        if self._reader is not None:
            await self._reader.stop()
            self._reader = None
        if reading is not None:
            with contextlib.suppress(AttributaryError):
                await reading
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    async def _send(
        self, request: ExplanationRequest, seconds: float, priority: Literal["normal", "high"]
    ) -> None:
        assert self._producer is not None  # noqa: S101
        topics = self._topics
        deadline = round((time.time() + seconds) * 1000)
        try:
            await self._producer.send_and_wait(
                topics.requests_high if priority == "high" else topics.requests,
                request.to_bytes(),
                request.id.encode(),
                headers=[(DEADLINE_HEADER, str(deadline).encode())],
            )
        except KafkaError as error:
            raise BrokerError(
                f"the request was not taken by {self._connection.bootstrap}: {error}"
            ) from None

    async def _cancel(self, request_id: str) -> None:
        """Take a request back; where that fails, its deadline ends it."""
        assert self._producer is not None  # noqa: S101
        with contextlib.suppress(KafkaError):
            await self._producer.send_and_wait(
                self._topics.cancellations,
                Cancellation(id=request_id).to_bytes(),
                request_id.encode(),
            )

    async def _read(self, reader: Reader) -> None:
        error: AttributaryError = BrokerError("the explainer is closed")
        try:
            while (records := await reader.read()) is not None:
                for record in records:
                    self._take(record)
        except AttributaryError as failure:
            error = failure
            raise
        finally:
            for waiting in self._waiting.values():
                if not waiting.answer.done():
                    waiting.answer.set_exception(error)

    def _take(self, record: ConsumerRecord) -> None:
        """Take a record of the explanations topic: of two final answers the first holds."""
        kind = dict(record.headers).get(KIND_HEADER)
        key = (record.key or b"").decode("ascii", "replace")
        waiting = self._waiting.get(key.removeprefix(PROGRESS_PREFIX) if kind == PROGRESS else key)
        if waiting is None or waiting.answer.done():
            return
        try:
            if kind == FINAL:
                waiting.answer.set_result(Explanation.from_bytes(record.value))
            elif kind == PROGRESS and waiting.on_progress is not None:
                waiting.on_progress(Progress.from_bytes(record.value))
        except RejectedError as error:
            if kind == FINAL:
                waiting.answer.set_exception(
                    BrokerError(f"the answer cannot be read by this version: {error}")
                )


class _Waiting:
    """One request under way."""

    def __init__(self, on_progress: Callable[[Progress], None] | None) -> None:
        self.on_progress = on_progress
        self.answer: asyncio.Future[Explanation] = asyncio.get_running_loop().create_future()


def _rows(given: Rows) -> list[Instance] | StreamWindow:
    if isinstance(given, StreamWindow):
        return given
    one = isinstance(given, (Mapping, Instance))
    rows: Sequence[Features | Instance] = [given] if one else list(given)  # type: ignore[list-item,arg-type]
    return [row if isinstance(row, Instance) else Instance(features=dict(row)) for row in rows]
