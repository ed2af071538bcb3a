"""Requests for explanations and their answers, over the topics of one broker."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from aiokafka import AIOKafkaProducer, ConsumerRecord
from aiokafka.errors import KafkaError, MessageSizeTooLargeError
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
from attributary.service.arrays import is_numpy
from attributary.service.explainer import NoAnswerError
from attributary.service.given_parameters import given_parameters
from attributary.service.given_rows import Named, given_rows
from attributary.service.reader import Reader
from attributary.service.refusals import refusal_of

Features = Mapping[str, Value]
Rows = Features | Instance | Named | Sequence[Features | Instance | Named] | StreamWindow

_REQUEST_MS = 10_000
_MAX_BYTES = 8 * 2**20
_LONGEST_SECONDS = 366 * 86_400
# A worker says that a request has expired: one that holds it unbegun does so within a tenth of a second.
# One that is computing may take longer to notice. Where there is none, nobody says anything.
_GRACE_SECONDS = 0.5
_BEGUN_GRACE_SECONDS = 5.0


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
        seconds = _seconds(timeout)
        if priority not in ("normal", "high"):
            raise ConfigurationError(f"priority: expected 'normal' or 'high', got {priority!r:.80}")
        rows = given_rows(instances, "instances")
        against = None if background is None else given_rows(background, "background")
        try:
            request = ExplanationRequest(
                id=uuid.uuid4().hex,
                model=self._model,
                method=method,
                output=_plain(output),
                instances=rows,
                background=against,
                parameters=given_parameters({} if parameters is None else parameters),
                seed=_plain(seed),
            )
        except ValidationError as error:
            raise ConfigurationError(f"request: {refusal_of(error)}") from None
        try:
            data = request.to_bytes()
        except ValueError:
            raise ConfigurationError(
                "request: a name or text in it is no Unicode: it has half of a surrogate pair"
            ) from None
        await self.start()
        waiting = self._waiting[request.id] = _Waiting(on_progress)
        try:
            await self._send(request, data, seconds, priority)
            return await self._answer(waiting, seconds)
        except asyncio.CancelledError:
            await asyncio.shield(self._cancel(request.id))
            raise
        finally:
            del self._waiting[request.id]

    async def _answer(self, waiting: _Waiting, seconds: float) -> Explanation:
        """Wait for the final answer until the deadline, and as long after it as a worker may take to say
        that it has passed. A worker that reads the request later says so too, and computes nothing."""
        await asyncio.wait({waiting.answer}, timeout=seconds + _GRACE_SECONDS)
        if waiting.answer.done():
            return waiting.answer.result()
        if not waiting.begun:
            raise NoAnswerError(
                f"no answer after {seconds:g} s, and no worker has begun with it: is a worker running "
                "(attributary ondemand), or are all of them busy?"
            )
        await asyncio.wait({waiting.answer}, timeout=_BEGUN_GRACE_SECONDS)
        if waiting.answer.done():
            return waiting.answer.result()
        raise NoAnswerError(
            f"no answer after {seconds:g} s from the worker that began with it; is it still running?"
        )

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
        self,
        request: ExplanationRequest,
        data: bytes,
        seconds: float,
        priority: Literal["normal", "high"],
    ) -> None:
        assert self._producer is not None  # noqa: S101
        topics = self._topics
        deadline = round((time.time() + seconds) * 1000)
        try:
            await self._producer.send_and_wait(
                topics.requests_high if priority == "high" else topics.requests,
                data,
                request.id.encode(),
                headers=[(DEADLINE_HEADER, str(deadline).encode())],
            )
        except MessageSizeTooLargeError:
            raise ConfigurationError(
                f"the request takes {len(data):,} bytes ({_counted(request)}), more than one message to "
                f"{self._connection.bootstrap} may: ask for fewer rows at a time"
            ) from None
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
        waiting.begun = True
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
        #: Whether a worker has said that it began.
        self.begun = False
        self.answer: asyncio.Future[Explanation] = asyncio.get_running_loop().create_future()


def _seconds(timeout: Any) -> float:
    """Return the time until the deadline; ConfigurationError where it is none."""
    try:
        found = float(timeout)
    except (TypeError, ValueError, OverflowError):
        found = 0.0
    if not 0 < found <= _LONGEST_SECONDS:
        raise ConfigurationError(
            f"timeout: expected seconds above 0, at most {_LONGEST_SECONDS:,}, got {timeout!r:.80}"
        )
    return found


def _plain(value: Any) -> Any:
    return value.item() if is_numpy(value) and value.ndim == 0 else value


def _counted(request: ExplanationRequest) -> str:
    """Say how many rows of its own a request has."""
    parts = []
    for rows, what in ((request.instances, "to explain"), (request.background, "of background")):
        if isinstance(rows, list):
            parts.append(f"{len(rows):,} row{'' if len(rows) == 1 else 's'} {what}")
    return " and ".join(parts) or "its parameters"
