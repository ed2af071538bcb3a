"""Requests that wait for their turn in one worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import get_args

from prometheus_client import Gauge

from attributary.workers.ondemand.job import Job, Priority


class JobQueue:
    """At most ``size`` jobs of each priority, the high one first. ``queued`` shows how many wait."""

    def __init__(self, size: int, queued: Gauge) -> None:
        self._size = size
        self._queued = queued
        self._waiting: dict[Priority, deque[Job]] = {name: deque() for name in get_args(Priority)}
        # Cancelled or expired before their turn.
        self._over: deque[Job] = deque()
        self._arrived = asyncio.Condition()

    def room(self, priority: Priority) -> int:
        """Return how many jobs may be put in still; a job put back may make it negative."""
        return self._size - len(self._waiting[priority])

    def put(self, job: Job) -> None:
        """Put a job behind the others; call ``tell`` when all have come."""
        self._waiting[job.priority].append(job)
        self._show()

    async def tell(self) -> None:
        """Wake who waits for a job."""
        async with self._arrived:
            self._arrived.notify_all()

    async def next(self) -> Job | None:
        """Return the next job, or None after a moment without one."""
        async with self._arrived:
            if not any(self._waiting.values()):
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._arrived.wait(), 0.5)
        for waiting in self._waiting.values():
            if waiting:
                job = waiting.popleft()
                self._show()
                return job
        return None

    async def next_over(self) -> Job | None:
        """Return the next job that needs no computing any more, or None after a moment without one."""
        for name, waiting in self._waiting.items():
            over = [job for job in waiting if job.cancelled.is_set() or job.expired]
            if over:
                self._over.extend(over)
                self._waiting[name] = deque(job for job in waiting if job not in self._over)
        if self._over:
            return self._over.popleft()
        await asyncio.sleep(0.1)
        return None

    def drop_lost(self) -> None:
        """Forget jobs that are no longer this worker's."""
        for name, waiting in self._waiting.items():
            self._waiting[name] = deque(job for job in waiting if not job.lost.is_set())
        self._over = deque(job for job in self._over if not job.lost.is_set())
        self._show()

    def clear(self) -> None:
        """Forget all jobs."""
        for waiting in [*self._waiting.values(), self._over]:
            waiting.clear()

    def _show(self) -> None:
        for name, waiting in self._waiting.items():
            self._queued.labels(name).set(len(waiting))
