"""The publisher's bounded buffer: rows wait here until the broker has acknowledged them.

Every row ends in exactly one count, so that ``accepted = published + failed + abandoned + pending``
holds at every moment, and a row that never got in is ``dropped`` (no room, or closed) or ``invalid``.

While there is plenty of room a row goes in by one append, which no other thread can hold up, and is counted
later: a lock takes longer than all the rest. So many rows at most, and so small ones, that the bounds hold.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from attributary.schemas.row import JSON_CONTENT

Waiter = tuple[Callable[[], bool], "Future[bool]"]

#: Most rows that are not counted yet, and most bytes of one. Threads that add at the same moment may make
#: them twice as many.
UNCOUNTED_ROWS, UNCOUNTED_BYTES = 256, 8192


@dataclass(frozen=True)
class Parcel:
    """One message's worth of rows; ``number`` is the place of its first row among all accepted."""

    value: bytes
    rows: int
    content_type: str
    number: int = 0


class Later(Protocol):
    """A row that becomes JSON when it is taken. It can fail no more."""

    @property
    def size(self) -> int:
        """Bytes that it takes until then."""

    def encode(self) -> bytes:
        """Return it as JSON."""


Row = bytes | Later


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
        self._held = self._held_bytes = 0
        self._taken = 0
        self._closed = self._over = False
        self._uncounted: deque[Row] = deque()
        self._roomy = False
        self._lock = threading.Lock()
        self._queue: deque[Row | Parcel] = deque()
        self._returned: deque[Parcel] = deque()
        self._open: dict[int, Parcel] = {}
        self._waiters: list[Waiter] = []
        self._look_for_room()

    @property
    def pending(self) -> int:
        """Rows that are neither acknowledged nor given up."""
        with self._lock:
            self._count()
            return self._held

    @property
    def pending_bytes(self) -> int:
        """Bytes of these rows."""
        with self._lock:
            self._count()
            return self._held_bytes

    @property
    def waiting(self) -> int:
        """Entries that no parcel has been made of yet, and parcels to be sent again."""
        return len(self._uncounted) + len(self._queue) + len(self._returned)

    def add_row(self, row: Row) -> bool:
        """Queue one row as JSON; False where there is no room for it (it counts as dropped)."""
        uncounted = self._uncounted
        size = len(row) if isinstance(row, bytes) else row.size
        if self._roomy and len(uncounted) < UNCOUNTED_ROWS and size <= UNCOUNTED_BYTES:
            uncounted.append(row)
        elif not self._add(row, 1, size):
            return False
        if self.waker is not None:
            self._wake()
        return True

    def add_message(self, value: bytes, rows: int, content_type: str) -> bool:
        """Queue a message of ``rows`` rows as it is; False where there is no room for all of it."""
        if not self._add(Parcel(value, rows, content_type), rows, len(value)):
            return False
        if self.waker is not None:
            self._wake()
        return True

    def _add(self, entry: Row | Parcel, rows: int, size: int) -> bool:
        with self._lock:
            self._count()
            if self._closed or not self._fits(rows, size):
                self.dropped += rows
                return False
            self._queue.append(entry)
            self._held += rows
            self._held_bytes += size
            self._look_for_room()
        return True

    def _count(self) -> None:
        """Count the rows that came without the lock, which is held now."""
        # One by one: others append meanwhile.
        rows = [self._uncounted.popleft() for _ in range(len(self._uncounted))]
        if self._over:  # added by a thread that had looked before
            self.dropped += len(rows)
        elif rows:
            self._queue.extend(rows)
            self._held += len(rows)
            self._held_bytes += sum(map(_size, rows))
        self._look_for_room()

    def _look_for_room(self) -> None:
        rows = 2 * UNCOUNTED_ROWS
        self._roomy = not self._closed and self._fits(rows, rows * UNCOUNTED_BYTES)

    def _wake(self) -> None:
        waker = self.waker
        if waker is not None:  # not woken by another thread meanwhile
            waker()

    def _fits(self, rows: int, size: int) -> bool:
        return self._held + rows <= self.max_rows and self._held_bytes + size <= self.max_bytes

    def close(self) -> None:
        """Take nothing more: what comes now is dropped."""
        with self._lock:
            self._closed = True
            self._count()

    @property
    def _accepted(self) -> int:
        return self.published + self.failed + self.abandoned + self._held

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
            self._count()
            if self._returned:
                return self._returned.popleft()
            if not self._queue:
                return None
            first = self._queue[0]
            if isinstance(first, Parcel):
                self._queue.popleft()
                parcel = Parcel(first.value, first.rows, first.content_type, self._taken)
                return self._opened(parcel, len(parcel.value))
            oldest = list(islice(self._queue, max_rows))
        # Without the lock: this is what takes time. Nobody else takes any, only abandon does.
        rows: list[bytes] = []
        size = held = 0
        for entry in oldest:
            if isinstance(entry, Parcel):
                break
            row = entry if isinstance(entry, bytes) else entry.encode()
            if rows and size + len(row) > max_bytes:
                break
            rows.append(row)
            size += len(row)
            held += _size(entry)
        value = rows[0] if len(rows) == 1 else b"[" + b",".join(rows) + b"]"
        with self._lock:
            if self._over:
                return None
            for _ in rows:
                self._queue.popleft()
            return self._opened(Parcel(value, len(rows), JSON_CONTENT, self._taken), held)

    def _opened(self, parcel: Parcel, size: int) -> Parcel:
        # What it is now is more than what was added, by brackets and commas at least: the bound counts what
        # is really held.
        self._held_bytes += len(parcel.value) - size
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
            self._count()
            self._over = True
            rows = self._held
            self._taken = self._accepted
            self.abandoned += rows
            self._held = self._held_bytes = 0
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
            self._held -= parcel.rows
            self._held_bytes -= len(parcel.value)
            self._count()
            ready = self._ready()
        _resolve(ready)

    def drained(self) -> Future[bool]:
        """Return a future that is set once every row accepted so far has been settled."""
        with self._lock:
            self._count()
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
            self._count()
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


def _size(row: Row) -> int:
    return len(row) if isinstance(row, bytes) else row.size


def _resolve(futures: list[Future[bool]]) -> None:
    """Set the results outside the lock: a callback may call back into the outbox."""
    for future in futures:
        with contextlib.suppress(InvalidStateError):  # cancelled meanwhile
            future.set_result(True)
