"""What the publisher's thread runs: an event loop of its own, one producer, and patience.

A message that is not acknowledged is sent again, for as long as it takes, by a new producer: rows are lost
only where the outbox is full or the process ends. A resend after an unanswered request may repeat rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    InvalidMessageError,
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    NodeNotReadyError,
    RecordListTooLargeError,
    UnknownTopicOrPartitionError,
)
from aiokafka.partitioner import DefaultPartitioner

from attributary.schemas.connection import Connection
from attributary.schemas.errors import AttributaryError
from attributary.schemas.row import CONTENT_HEADER, MODEL_HEADER
from attributary.service.outbox import Outbox, Parcel
from attributary.service.quiet import quiet_this_thread
from attributary.service.reach import refusal

logger = logging.getLogger("attributary.publisher")

MESSAGE_ROWS = 1000
MESSAGE_BYTES = 256 * 1024
REQUEST_BYTES = 1024 * 1024  # Kafka's default for message.max.bytes, which bounds a whole batch
REQUEST_TIMEOUT_MS = 10_000
_IN_FLIGHT = 16
# Waking a thread costs its caller 50 µs, ten times a row. So the thread looks for rows itself, unless there
# were none for so long, or it is not to wait for more of them.
WATCHFUL_SECONDS = 30.0
_SHORTEST_LOOK = 0.01
_BACKOFF, _LONGEST_BACKOFF = 0.1, 5.0  # seconds
_LEAVE_SECONDS = 1.0
_PROBE_SECONDS = 1.0
_NEVER_ACCEPTED = (MessageSizeTooLargeError, RecordListTooLargeError, InvalidMessageError)


class _Loop(asyncio.SelectorEventLoop):
    """Resolves names in its own thread, and authenticates there if it must: a loop's usual helper
    threads are gone by the time an exiting interpreter sends the last rows."""

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        return socket.getaddrinfo(host, port, **options)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        try:
            return super().run_in_executor(executor, func, *args)
        except RuntimeError:  # the interpreter ends: no new threads
            done: asyncio.Future[Any] = self.create_future()
            try:
                done.set_result(func(*args))
            except Exception as error:
                done.set_exception(error)
            return done


class _Spread:
    """Partitions in turn: rows need no common partition, and one model must not fill a single one."""

    def __init__(self) -> None:
        self._next = random.randrange(1000)  # short-lived processes must not all begin alike

    def __call__(self, key: bytes | None, everything: list[int], available: list[int]) -> int:
        partitions = sorted(available or everything)
        self._next += 1
        return partitions[self._next % len(partitions)]


class Sender:
    """Sends what the outbox holds, in the thread that runs it; the others may only say things to it."""

    def __init__(
        self,
        outbox: Outbox,
        connection: Connection,
        topic: str,
        *,
        model: str | None,
        linger_seconds: float,
        keyed: bool = False,
    ) -> None:
        self._outbox = outbox
        self._connection = connection
        self._topic = topic
        self._model = model
        self._linger = linger_seconds
        self._keyed = keyed
        self._away = False
        self._delay = _BACKOFF
        self._closing = False
        self._loop = _Loop()
        self._filled = asyncio.Event()
        self._hurry = asyncio.Event()
        self._main: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Say that the outbox is no longer empty."""
        self._outbox.waker = None  # once is enough
        self._call(self._filled.set)

    def hurry(self) -> None:
        """Send without waiting for more rows to share a message with."""

        def set_both() -> None:
            self._hurry.set()
            self._filled.set()

        self._call(set_both)

    def stop(self) -> None:
        """End what runs; what is still in the outbox stays there."""

        def cancel() -> None:
            self._closing = True
            if self._main is not None:
                self._main.cancel()

        self._call(cancel)

    def _call(self, function: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing left to tell
            self._loop.call_soon_threadsafe(function)

    def run(self) -> None:
        """Send until stopped, in the calling thread."""
        quiet_this_thread()
        asyncio.set_event_loop(self._loop)
        self._main = self._loop.create_task(self._work())
        try:
            self._loop.run_until_complete(self._main)
        except asyncio.CancelledError:
            pass
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            if left:
                self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            asyncio.set_event_loop(None)
            self._loop.close()

    async def _work(self) -> None:
        while not self._closing:
            await self._some_rows()
            producer = None
            try:
                producer = await self._connect()
                if not self._closing:
                    await self._pump(producer)
            except Exception as error:  # whatever it is, giving up would lose every later row
                self._lost(error)
            finally:
                if producer is not None:
                    await _leave(producer)
            await asyncio.sleep(self._delay)
            self._delay = min(2 * self._delay, _LONGEST_BACKOFF)

    async def _connect(self) -> AIOKafkaProducer:
        """Return a started producer, idempotent where the broker can be asked for it."""
        for idempotent in (True, False):
            producer = AIOKafkaProducer(
                **self._connection.client_arguments(),
                acks="all",
                enable_idempotence=idempotent,
                partitioner=DefaultPartitioner() if self._keyed else _Spread(),
                max_batch_size=2 * MESSAGE_BYTES,
                max_request_size=REQUEST_BYTES,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
            )
            try:
                await asyncio.wait_for(producer.start(), 2 * REQUEST_TIMEOUT_MS / 1000)
            except BaseException as error:
                await _leave(producer)
                refused = isinstance(error, KafkaError) and not isinstance(
                    error, KafkaConnectionError
                )
                if idempotent and refused and not self._closing:
                    logger.debug("no idempotent producer: %r", error)
                    continue
                raise
            return producer
        raise AssertionError("unreachable: the second attempt returns or raises")

    async def _pump(self, producer: AIOKafkaProducer) -> None:
        """Send parcels until one cannot be sent; raise what stopped it once the others settled."""
        sending: set[asyncio.Task[None]] = set()
        try:
            while True:
                parcel = self._outbox.take(max_rows=MESSAGE_ROWS, max_bytes=MESSAGE_BYTES)
                if parcel is not None:
                    sending.add(asyncio.create_task(self._send(producer, parcel)))
                    if len(sending) < _IN_FLIGHT:
                        continue
                    waiting: set[asyncio.Task[Any]] = set(sending)
                else:
                    waiting = {*sending, asyncio.create_task(self._some_rows())}
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in waiting - sending - done:
                    task.cancel()
                sending -= done
                failures = [task.exception() for task in done]
                for failure in filter(None, failures):
                    raise failure
        finally:
            if self._closing:
                for task in sending:
                    task.cancel()
            if sending:
                await asyncio.gather(*sending, return_exceptions=True)

    async def _send(self, producer: AIOKafkaProducer, parcel: Parcel) -> None:
        headers = [(CONTENT_HEADER, parcel.content_type.encode())]
        if self._model is not None:
            headers.append((MODEL_HEADER, self._model.encode()))
        try:
            key = self._model.encode() if self._keyed and self._model is not None else None
            await producer.send_and_wait(self._topic, parcel.value, key, headers=headers)
        except _NEVER_ACCEPTED as error:
            self._outbox.fail(parcel)
            logger.error("%d rows refused by the broker: %s", parcel.rows, error)
        except BaseException:
            self._outbox.give_back(parcel)
            raise
        else:
            self._outbox.acknowledge(parcel)
            self._delay = _BACKOFF
            if self._away:
                self._away = False
                logger.warning("rows are flowing to %s again", self._connection.bootstrap)

    async def _some_rows(self) -> None:
        """Wait for rows, and a moment for more of them to share a message with."""
        watched = self._linger >= _SHORTEST_LOOK
        idle = self._loop.time()
        while not self._outbox.waiting:
            if watched and self._loop.time() - idle < WATCHFUL_SECONDS:
                await self._pause()
            else:
                await self._sleep()
                watched = False
        if not watched and self._outbox.waiting < MESSAGE_ROWS:
            await self._pause()

    async def _sleep(self) -> None:
        """Wait for the first row."""
        self._filled.clear()
        self._hurry.clear()
        # Whoever adds a row looks at this afterwards, and we at the rows: one of the two sees the other.
        self._outbox.waker = self.wake
        try:
            if not self._outbox.waiting:
                await self._filled.wait()
        finally:
            self._outbox.waker = None

    async def _pause(self) -> None:
        """Wait for the linger, or until somebody is in a hurry; that is over then."""
        # Not wait_for: before Python 3.12 it swallows a cancellation that comes with the event.
        timer = self._loop.call_later(self._linger, self._hurry.set)
        try:
            await self._hurry.wait()
        finally:
            timer.cancel()
        self._hurry.clear()

    def _lost(self, error: Exception) -> None:
        """Log once per outage, however many rows wait."""
        if self._away:
            return
        self._away = True
        if isinstance(error, UnknownTopicOrPartitionError):
            problem = f"no topic {self._topic!r} (create it: attributary topics create)"
        elif isinstance(error, (KafkaConnectionError, NodeNotReadyError)):
            # aiokafka does not say why. This blocks, once per outage, a loop that waits anyway.
            problem = self._refusal() or "no broker answers"
        else:
            problem = str(error) or type(error).__name__
        logger.warning(
            "cannot publish to %s: %s; up to %d rows wait, further ones are dropped and counted",
            self._connection.bootstrap,
            problem,
            self._outbox.max_rows,
        )

    def _refusal(self) -> str | None:
        try:
            return refusal(self._connection, _PROBE_SECONDS)
        except AttributaryError as error:  # a file has gone
            return str(error)


async def _leave(producer: AIOKafkaProducer) -> None:
    """Stop a producer, within a moment: its own stop waits for a broker that may be gone."""
    try:
        await asyncio.wait_for(producer.stop(), _LEAVE_SECONDS)
    except (KafkaError, OSError, asyncio.TimeoutError):
        with contextlib.suppress(KafkaError, OSError, asyncio.TimeoutError):
            await asyncio.wait_for(producer.client.close(), _LEAVE_SECONDS)
