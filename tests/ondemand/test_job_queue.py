"""Jobs that wait: which comes next, and which need not wait."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, Gauge

from attributary.schemas.dead_letter import Origin
from attributary.workers.ondemand.job import Job, Priority
from attributary.workers.ondemand.job_queue import JobQueue
from attributary.workers.stream.decode import Record


def _queue(size: int = 3) -> tuple[JobQueue, CollectorRegistry]:
    registry = CollectorRegistry()
    return JobQueue(size, Gauge("queued", "", ["priority"], registry=registry)), registry


def _job(name: str, priority: Priority = "normal", deadline: int | None = None) -> Job:
    return Job(Origin("requests", 0, 0), Record(0, 0, b""), priority, name, deadline)


def _queued(registry: CollectorRegistry) -> list[float | None]:
    return [registry.get_sample_value("queued", {"priority": p}) for p in ("high", "normal")]


async def test_the_high_priority_comes_first_and_of_each_the_first() -> None:
    queue, registry = _queue()
    for name, priority in (("a", "normal"), ("b", "high"), ("c", "normal"), ("d", "high")):
        queue.put(_job(name, priority))  # type: ignore[arg-type]
    assert _queued(registry) == [2, 2]
    assert (queue.room("high"), queue.room("normal")) == (1, 1)
    found = [await queue.next() for _ in range(4)]
    assert [job and job.id for job in found] == ["b", "d", "a", "c"]
    assert _queued(registry) == [0, 0]


async def test_who_waits_is_woken() -> None:
    queue, _ = _queue()
    waiting = asyncio.create_task(queue.next())
    await asyncio.sleep(0)
    queue.put(_job("a"))
    await queue.tell()
    job = await waiting
    assert job is not None
    assert job.id == "a"
    assert await queue.next() is None


async def test_what_is_cancelled_or_expired_needs_no_turn() -> None:
    queue, _ = _queue()
    cancelled = _job("b", "high")
    for job in (_job("a"), cancelled, _job("c", deadline=1), _job("d")):
        queue.put(job)
    cancelled.cancelled.set()
    over = [await queue.next_over() for _ in range(3)]
    assert [job and job.id for job in over] == ["b", "c", None]
    assert queue.room("normal") == 1


async def test_lost_jobs_are_dropped_wherever_they_wait() -> None:
    queue, registry = _queue()
    jobs = [_job("a"), _job("b", deadline=1), _job("c", deadline=1)]
    for job in jobs:
        queue.put(job)
    assert await queue.next_over() is jobs[1]
    jobs[0].lost.set()
    jobs[2].lost.set()
    queue.drop_lost()
    assert _queued(registry) == [0, 0]
    assert [await queue.next(), await queue.next_over()] == [None, None]
    queue.put(_job("d"))
    queue.clear()
    assert await queue.next() is None
