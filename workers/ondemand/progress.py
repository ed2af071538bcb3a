"""Tells how far requests are: begun, running, released."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Literal

from aiokafka.errors import KafkaError

from attributary.schemas.explanation import Progress
from attributary.schemas.topics import Topics
from attributary.workers.ondemand.answers import answer_record
from attributary.workers.ondemand.job import Job
from attributary.workers.stream.outgoing import Outgoing
from attributary.workers.stream.producer import AcknowledgedProducer

_log = logging.getLogger(__name__)

_RELEASE_SECONDS = 2.0


class ProgressTeller:
    """Writes to the explanations topic, of so many partitions."""

    def __init__(
        self, topics: Topics, partitions: int, worker: str, producer: AcknowledgedProducer
    ) -> None:
        self._topics = topics
        self._partitions = partitions
        self._worker = worker
        self._producer = producer
        # Of each job at hand: how much is done, of how much.
        self._told: dict[int, tuple[int, int]] = {}

    def started(self, job: Job) -> Outgoing:
        """Return what says that a request is begun."""
        return self._record(job, "started")

    async def tell(self, jobs: Sequence[Job]) -> None:
        """Tell of those of the jobs at hand that have gone on since the last time."""
        steps = {id(job): (job.done, job.total) for job in jobs}
        changed = [job for job in jobs if job.total and self._told.get(id(job)) != steps[id(job)]]
        try:
            await self._producer.send([self._record(job, "running") for job in changed])
        except KafkaError as error:
            _log.info("progress was not told: %s", error)
        self._told = steps

    async def release(self, jobs: Sequence[Job]) -> None:
        """Take back that requests were begun: this worker did not die of them, and lets them go."""
        for job in jobs:
            job.lost.set()
        try:
            await asyncio.wait_for(
                self._producer.send([self._record(job, "released") for job in jobs]),
                _RELEASE_SECONDS,
            )
        except (KafkaError, asyncio.TimeoutError) as error:
            _log.info("requests were not released: %s", error)

    def _record(self, job: Job, state: Literal["started", "running", "released"]) -> Outgoing:
        message = Progress(
            id=job.id or "",
            state=state,
            attempt=job.attempt,
            done=job.done,
            total=job.total,
            at=round(time.time() * 1000),
        )
        return answer_record(self._topics, self._partitions, message, job, self._worker)
