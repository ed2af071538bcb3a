"""The publisher's bounded buffer: rows wait here until the broker has acknowledged them.

Every row ends in exactly one count, so that ``accepted = published + failed + abandoned + pending``
holds at every moment, and a row that never got in is ``dropped`` (no room, or closed) or ``invalid``.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass

from attributary.schemas.row import JSON_CONTENT

Waiter = tuple[Callable[[], bool], "Future[bool]"]


@dataclass(frozen=True)
class Parcel:
    """One message's worth of rows; ``number`` is the place of its first row among all accepted."""

    value: bytes
    rows: int
    content_type: str
    number: int = 0


class Outbox:
    """Rows and ready-made messages in the order they came, bounded in rows and in bytes.

    Any thread may add; one sender takes parcels and says what became of each.
    """

    def __init__(
        self, *, max_rows: int, max_bytes: int, waker: Callable[[], None] | None = None
    ) -> None:
        """``waker`` is called by each thread that has added something. Who sleeps sets it, and then looks
        once more whether something waits."""
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.waker = waker
        self.published = self.failed = self.abandoned = self.dropped = self.invalid = 0
        self.pending = self.pending_bytes = 0
        self._taken = 0
        self._closed = False
        self._lock = threading.Lock()
        self._queue: deque[bytes | Parcel] = deque()
        self._returned: deque[Parcel] = deque()
        self._open: dict[int, Parcel] = {}
        self._waiters: list[Waiter] = []

    @property
    def waiting(self) -> int:
        """Entries that no parcel has been made of yet, and parcels to be sent again."""
        return len(self._queue) + len(self._returned)

    def add_row(self, row: bytes) -> bool:
        """Queue one row as JSON; False where there is no room for it (it counts as dropped)."""
        # Who calls the model waits for this: no call beyond it.
        with self._lock:
            size = self.pending_bytes + len(row)
            if self.pending >= self.max_rows or size > self.max_bytes or self._closed:
                self.dropped += 1
                return False
            self._queue.append(row)
            self.pending += 1
            self.pending_bytes = size
        if self.waker is not None:
            self._wake()
        return True

    def add_message(self, value: bytes, rows: int, content_type: str) -> bool:
        """Queue a message of ``rows`` rows as it is; False where there is no room for all of it."""
        with self._lock:
            if not self._fits(rows, len(value)) or self._closed:
                self.dropped += rows
                return False
            self._queue.append(Parcel(value, rows, content_type))
            self.pending += rows
            self.pending_bytes += len(value)
        if self.waker is not None:
            self._wake()
        return True

    def _wake(self) -> None:
        waker = self.waker
        if waker is not None:  # not woken by another thread meanwhile
            waker()

    def _fits(self, rows: int, size: int) -> bool:
        return self.pending + rows <= self.max_rows and self.pending_bytes + size <= self.max_bytes

    def close(self) -> None:
        """Take nothing more: what comes now is dropped."""
        with self._lock:
            self._closed = True

    @property
    def _accepted(self) -> int:
        return self.published + self.failed + self.abandoned + self.pending

    @property
    def settled(self) -> int:
        """Rows accepted first, of which each is acknowledged or refused for good."""
        with self._lock:
            return min(self._open, default=self._taken)

    def count_invalid(self, rows: int) -> None:
        """Count rows that could not be encoded."""
        with self._lock:
            self.invalid += rows

    def take(self, *, max_rows: int, max_bytes: int) -> Parcel | None:
        """Return the next message to send, or None: a returned one, else the oldest rows together."""
        with self._lock:
            if self._returned:
                return self._returned.popleft()
            if not self._queue:
                return None
            first = self._queue[0]
            if isinstance(first, Parcel):
                self._queue.popleft()
                parcel = Parcel(first.value, first.rows, first.content_type, self._taken)
                return self._opened(parcel, len(parcel.value))
            rows: list[bytes] = []
            size = 0
            while self._queue and len(rows) < max_rows:
                entry = self._queue[0]
                if isinstance(entry, Parcel) or (rows and size + len(entry) > max_bytes):
                    break
                self._queue.popleft()
                rows.append(entry)
                size += len(entry)
            value = rows[0] if len(rows) == 1 else b"[" + b",".join(rows) + b"]"
            parcel = Parcel(value, len(rows), JSON_CONTENT, self._taken)
            return self._opened(parcel, size)

    def _opened(self, parcel: Parcel, size: int) -> Parcel:
        # Brackets and commas of an array are bytes too: the bound counts what is really held.
        self.pending_bytes += len(parcel.value) - size
        self._taken += parcel.rows
        self._open[parcel.number] = parcel
        return parcel

    def acknowledge(self, parcel: Parcel) -> None:
        """The broker has it."""
        self._settle(parcel, published=parcel.rows)

    def fail(self, parcel: Parcel) -> None:
        """The broker will never take it."""
        self._settle(parcel, failed=parcel.rows)

    def give_back(self, parcel: Parcel) -> None:
        """It is not known to have arrived: the next ``take`` returns it again."""
        with self._lock:
            self._returned.append(parcel)

    def abandon(self) -> int:
        """Let go of everything that is not acknowledged, for ever; return how many rows that were."""
        with self._lock:
            self._closed = True
            rows = self.pending
            self._taken = self._accepted
            self.abandoned += rows
            self.pending = self.pending_bytes = 0
            for held in (self._queue, self._returned, self._open):
                held.clear()
            ready = self._ready()
        _resolve(ready)
        return rows

    def _settle(self, parcel: Parcel, *, published: int = 0, failed: int = 0) -> None:
        with self._lock:
            if self._open.pop(parcel.number, None) is None:
                return  # abandoned meanwhile
            self.published += published
            self.failed += failed
            self.pending -= parcel.rows
            self.pending_bytes -= len(parcel.value)
            ready = self._ready()
        _resolve(ready)

    def drained(self) -> Future[bool]:
        """Return a future that is set once every row accepted so far has been settled."""
        with self._lock:
            target = self._accepted
        return self._when(lambda: min(self._open, default=self._taken) >= target)

    def room(self, rows: int, size: int) -> Future[bool]:
        """Return a future that is set once ``rows`` more rows of ``size`` bytes fit."""
        return self._when(lambda: self._fits(rows, size))

    def forget(self, future: Future[bool]) -> None:
        """Drop a waiter that nobody waits for any more."""
        with self._lock:
            self._waiters = [waiter for waiter in self._waiters if waiter[1] is not future]

    def _when(self, condition: Callable[[], bool]) -> Future[bool]:
        future: Future[bool] = Future()
        with self._lock:
            if not condition():
                self._waiters.append((condition, future))
                return future
        future.set_result(True)
        return future

    def _ready(self) -> list[Future[bool]]:
        ready = [future for condition, future in self._waiters if condition()]
        if ready:
            self._waiters = [waiter for waiter in self._waiters if waiter[1] not in ready]
        return ready


def _resolve(futures: list[Future[bool]]) -> None:
    """Set the results outside the lock: a callback may call back into the outbox."""
    for future in futures:
        with contextlib.suppress(InvalidStateError):  # cancelled meanwhile
            future.set_result(True)
