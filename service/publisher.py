"""The publisher: three lines in a serving process that never block, slow down or break its model.

What it imports is light: the Kafka client, asyncio and pydantic are loaded by the thread that sends.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import functools
import logging
import math
import os
import sys
import threading
import time as clock
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar, overload

from attributary.schemas.errors import ConfigurationError, Reason, RejectedError
from attributary.schemas.row import DEFAULT_TOPIC
from attributary.service.address import check_broker
from attributary.service.outbox import Outbox, Row
from attributary.service.row_encoder import RowEncoder
from attributary.service.sending import Sending, loading
from attributary.service.watch import Chosen, watched

if TYPE_CHECKING:
    from attributary.schemas.connection import Connection

logger = logging.getLogger("attributary.publisher")

_Function = TypeVar("_Function", bound=Callable[..., Any])
_LOG_SECONDS = 60.0
_JOIN_SECONDS = 3.0


class Publisher:
    """Publishes (features, outputs) rows from any thread, process or event loop.

    ::

        publisher = Publisher("broker:9092", model="churn")
        ...
        publisher.publish({"age": 41, "plan": "pro"}, 0.73)     # beside model.predict

    ``publish`` turns the row into bytes and puts it into a bounded buffer; a background thread with its
    own connection does the rest, so a call takes microseconds and raises nothing. Where the buffer is full
    the row is dropped and counted; while the broker is away rows wait and are sent later, logged once. Rows
    without a ``time`` happen when ``publish`` is called, whenever they arrive.

    Messages have no key: rows spread evenly over the partitions, and no result depends on where a row
    lies. ``keyed=True`` writes the model's name as their key instead, and so all of them to one partition:
    better for very many models with few rows each. Delivery is at least once: a row is repeated only where
    the broker took it and could not say so.

    ``await publisher.aflush()`` and ``async with`` serve asyncio; everything else is the same there. A forked
    child starts with an empty buffer and a thread of its own. At interpreter exit the buffer is flushed
    for at most ``exit_timeout`` seconds.

    ``strict=True`` is for tests and development: bad rows raise RejectedError.
    """

    def __init__(
        self,
        bootstrap: str | Connection = "localhost:9092",
        *,
        model: str | None = None,
        topic: str = DEFAULT_TOPIC,
        feature_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        strict: bool = False,
        max_rows: int = 100_000,
        max_bytes: int = 64 * 2**20,
        linger_seconds: float = 0.05,
        keyed: bool = False,
        exit_timeout: float = 5.0,
    ) -> None:
        """Check the arguments (ConfigurationError); the connection is made with the first row."""
        check_broker(bootstrap)
        self._broker = bootstrap
        try:
            self._encoder = RowEncoder(model, feature_names, output_names)
        except RejectedError as error:
            raise ConfigurationError(str(error)) from None
        if max_rows < 1 or max_bytes < 1 or linger_seconds < 0:
            raise ConfigurationError(
                "max_rows and max_bytes must be at least 1, linger_seconds at least 0; got "
                f"{max_rows}, {max_bytes}, {linger_seconds}"
            )
        if keyed and model is None:
            raise ConfigurationError("keyed needs model=...: its name is the key of all rows")
        self._keyed = keyed
        self._topic = topic
        self._strict = strict
        self._bounds = (max_rows, max_bytes)
        self._linger = linger_seconds
        self._exit_timeout = exit_timeout
        self._closed = False
        self._logged: dict[str, float] = {}
        self._reset()
        _living.add(self)
        _register_fork_hook()
        atexit.register(self._at_exit)

    def _reset(self) -> None:
        """Start with an empty buffer and no thread: at first, and in a forked child."""
        self._starting = threading.Lock()
        self._sending: Sending | None = None
        self._outbox = Outbox(
            max_rows=self._bounds[0], max_bytes=self._bounds[1], waker=self._start
        )

    @property
    def published(self) -> int:
        """Rows that the broker has acknowledged."""
        return self._outbox.published

    @property
    def settled(self) -> int:
        """How many of the rows queued first are all acknowledged, or refused for good."""
        return self._outbox.settled

    @property
    def pending(self) -> int:
        """Rows in the buffer or on their way."""
        return self._outbox.pending

    @property
    def dropped(self) -> int:
        """Rows lost because the buffer was full, the publisher closed, or the process ended first."""
        return self._outbox.dropped + self._outbox.abandoned

    @property
    def invalid(self) -> int:
        """Rows that could not be encoded."""
        return self._outbox.invalid

    @property
    def failed(self) -> int:
        """Rows that the broker refused for good."""
        return self._outbox.failed

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """What arrays of features are called, in order."""
        return self._encoder.feature_names

    def publish(
        self,
        features: Any,
        outputs: Any,
        *,
        id: str | int | None = None,  # noqa: A002 - the row's own field name
        time: Any = None,
        weight: float | None = None,
        model: str | None = None,
    ) -> bool:
        """Queue one row; return whether it is in the buffer. Neither blocks nor raises.

        ``features``: a mapping (dict, pandas Series) of numbers, booleans, strings and None, or a vector
        in the order of ``feature_names``. ``outputs``: a number, a vector or a mapping: values, margins or
        logits. ``time``: an aware datetime, seconds since 1970 or RFC 3339. ``weight``: above 0.
        """
        try:
            row: Row | None = None
            if type(features) is not dict:
                row = self._encoder.keep(features, outputs, id, time, weight, model)
            if row is None:
                row = self._encoder.encode(features, outputs, id, time, weight, model)
        except Exception as error:
            return self.refuse(error)
        return self._outbox.add_row(row) or self._not_taken()

    def publish_batch(
        self,
        features: Any,
        outputs: Any,
        *,
        ids: Any = None,
        times: Any = None,
        weights: Any = None,
        model: str | None = None,
    ) -> int:
        """Queue many rows; return how many are in the buffer. Neither blocks nor raises.

        ``features``: (n, d) in the order of ``feature_names``, or a data frame or mapping of columns;
        ``outputs`` (n,) or (n, c); the others (n,) or None. A bad row leaves the others alone.
        """
        try:
            rows: Iterable[Row | RejectedError] | None = None
            if ids is None and times is None and weights is None and model is None:
                rows = self._encoder.keep_batch(features, outputs)
            if rows is None:
                rows = self._encoder.encode_batch(
                    features, outputs, ids=ids, times=times, weights=weights, model=model
                )
        except Exception as error:
            self.refuse(error, _length(outputs))
            return 0
        taken = 0
        for row in rows:
            if isinstance(row, RejectedError):
                self.refuse(row)
            elif self._outbox.add_row(row):
                taken += 1
            else:
                self._not_taken()
        return taken

    @overload
    def watch(self, function: _Function) -> _Function: ...

    @overload
    def watch(
        self,
        *,
        features: Chosen = ...,
        outputs: Callable[[Any], Any] | None = ...,
        ids: Chosen = ...,
    ) -> Callable[[_Function], _Function]: ...

    @overload
    def watch(
        self,
        function: _Function,
        *,
        features: Chosen = ...,
        outputs: Callable[[Any], Any] | None = ...,
        ids: Chosen = ...,
    ) -> _Function: ...

    def watch(
        self,
        function: Any = None,
        *,
        features: Chosen = None,
        outputs: Callable[[Any], Any] | None = None,
        ids: Chosen = None,
    ) -> Any:
        """Return a predict function that publishes what it is given and what it says.

        ::

            predict = publisher.watch(model.predict)     # or @publisher.watch above a function or method

        Sync and async; data frames, arrays, tensors, lists, mappings and records, one row or many. Its
        arguments, result and exceptions are untouched, and nothing is published of a call that raises.

        ``features``: the argument that holds them, or what makes them of all arguments [default: the first].
        ``outputs``: what makes them of the result, such as ``lambda p: p[:, 1]``. ``ids``: like ``features``.
        An array's names are the publisher's ``feature_names``, else those that a fitted model carries.
        """

        def decorate(given: Any) -> Any:
            return watched(self, given, features=features, outputs=outputs, ids=ids)

        return decorate if function is None else decorate(function)

    def publish_message(self, value: bytes, rows: int, content_type: str) -> bool:
        """Queue a message of ``rows`` encoded rows as it is; return whether it is in the buffer."""
        return self._outbox.add_message(value, rows, content_type) or self._not_taken()

    def wait_for_room(self, rows: int, size: int, timeout: float) -> bool:
        """Wait until ``rows`` more rows of ``size`` bytes fit; for jobs that had rather wait than drop."""
        return self._await(self._outbox.room(rows, size), timeout)

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until every row queued so far is settled; return whether that was in time.

        Settled rows are acknowledged (``published``) or refused by the broker (``failed``).
        """
        return self._await(self._draining(), timeout)

    async def aflush(self, timeout: float = 10.0) -> bool:
        """Like ``flush``, for asyncio: other tasks go on meanwhile."""
        import asyncio  # who awaits has loaded it

        future = self._draining()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), timeout)
        except asyncio.TimeoutError:
            return False
        finally:
            self._outbox.forget(future)

    def close(self, timeout: float = 10.0) -> bool:
        """Flush, then end the thread; later rows are dropped. Return whether every row was settled."""
        self._outbox.close()
        self._closed = True
        in_time = self.flush(timeout)
        self._end()
        return in_time

    async def aclose(self, timeout: float = 10.0) -> bool:
        """Like ``close``, for asyncio."""
        import asyncio

        self._outbox.close()
        self._closed = True
        in_time = await self.aflush(timeout)
        await asyncio.to_thread(self._end)
        return in_time

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Publisher:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _not_taken(self) -> bool:
        """Say why the outbox takes no more."""
        if self._closed:
            self._say("closed", "the publisher is closed: rows are dropped")
        else:
            self._say("full", "the buffer is full: %d rows dropped so far", self.dropped)
        return False

    def _start(self) -> None:
        """Start the thread, with the first row."""
        try:
            with self._starting:
                if self._sending is None and not self._closed:
                    self._outbox.waker = None  # the thread's own from now on
                    self._sending = Sending(
                        self._outbox,
                        self._broker,
                        self._topic,
                        model=self._encoder.model,
                        linger_seconds=self._linger,
                        keyed=self._keyed,
                    )
                    _finish_with_process(self._at_exit)
        except RuntimeError as error:  # no more threads: the next row tries again
            self._outbox.waker = self._start
            self._say("thread", "cannot start the publisher's thread: %s", error)

    def refuse(self, error: Exception, rows: int = 1) -> bool:
        """Count rows that cannot be published as ``invalid``; logged once a minute for each reason."""
        self._outbox.count_invalid(rows)
        if self._strict:
            if isinstance(error, RejectedError):
                raise error
            raise RejectedError(Reason.WRONG_TYPE, f"not a row: {error!r}") from error
        reason = error.reason.value if isinstance(error, RejectedError) else type(error).__name__
        self._say(reason, "row not published (%s): %s; %d so far", reason, error, self.invalid)
        return False

    def _say(self, kind: str, message: str, *values: object) -> None:
        now = clock.monotonic()
        if now - self._logged.get(kind, -math.inf) >= _LOG_SECONDS:
            self._logged[kind] = now
            logger.warning(message, *values)

    def _draining(self) -> Future[bool]:
        future = self._outbox.drained()
        if self._sending is not None:
            self._sending.hurry()
        return future

    def _await(self, future: Future[bool], timeout: float) -> bool:
        try:
            return future.result(timeout)
        except (TimeoutError, concurrent.futures.TimeoutError):
            return False
        finally:
            self._outbox.forget(future)

    def _end(self) -> None:
        atexit.unregister(self._at_exit)
        with self._starting:
            sending, self._sending = self._sending, None
        if sending is not None:
            sending.stop(_JOIN_SECONDS)
        rows = self._outbox.abandon()
        if rows:
            logger.warning("%d rows were not acknowledged in time and are dropped", rows)

    def _at_exit(self) -> None:
        self.close(self._exit_timeout)

    def _forked(self) -> None:
        """In a child: forget the parent's rows and thread, without touching what both share."""
        _parents.append((self._sending, self._outbox))
        self._reset()


_living: weakref.WeakSet[Publisher] = weakref.WeakSet()
_parents: list[object] = []
"""What sends in the parent process. Collecting one in a child would close an event loop there, and with it
unregister the parent's descriptors from the epoll instance that both processes share."""


@functools.cache
def _register_fork_hook() -> None:
    def forked() -> None:
        loading.release()
        for publisher in list(_living):
            publisher._forked()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=loading.acquire, after_in_parent=loading.release, after_in_child=forked
        )


def _finish_with_process(close: Callable[[], None]) -> None:
    """Close at the end of a multiprocessing child: one that was forked skips atexit."""
    process = sys.modules.get("multiprocessing.process")  # such a child has it
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, close, exitpriority=10)


def _length(values: Any) -> int:
    """Return how many rows a refused batch had, as far as that can be told."""
    try:
        return len(values)
    except TypeError:
        return 1
