"""The shell around requests: reads them, has them computed off the event loop, answers, commits.

Every request ends in exactly one final answer, and its offset is committed after that is acknowledged. A
worker that takes over knows from the log what is answered (``AnswerLog``). During a rebalance no answer is
sent: whoever has the partition afterwards gives it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from mode import Service

from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics
from attributary.workers.ondemand.answering import Answering
from attributary.workers.ondemand.answers import AnswerLog
from attributary.workers.ondemand.backlog import Backlog
from attributary.workers.ondemand.cancellations import CancellationReader
from attributary.workers.ondemand.job import Job, Priority
from attributary.workers.ondemand.job_queue import JobQueue
from attributary.workers.ondemand.metrics import OnDemandMetrics
from attributary.workers.ondemand.options import OnDemandOptions
from attributary.workers.ondemand.progress import ProgressTeller
from attributary.workers.ondemand.scheduler import Scheduler
from attributary.workers.stream.group_service import GroupService
from attributary.workers.stream.outgoing import Outgoing

_log = logging.getLogger(__name__)

_POLL_MS = 200
_COMMIT_SECONDS = 0.2
_SCHEDULE_SECONDS = 0.5
_SENDING_SECONDS = 3.0


class RequestService(GroupService):
    """Reads its share of the two topics of requests, those of high priority first."""

    def __init__(
        self,
        connection: Connection,
        topics: Topics,
        options: OnDemandOptions,
        answering: Callable[[int], Answering],
        answers: AnswerLog,
        cancellations: CancellationReader,
        metrics: OnDemandMetrics,
        scheduler: Scheduler,
        worker: str,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            connection,
            [topics.requests_high, topics.requests],
            f"{topics.requests}-ondemand",
            options,
            **kwargs,
        )
        self._topics = topics
        self._options = options
        self._make_answering = answering
        self._answers = answers
        self._cancellations = cancellations
        self._metrics = metrics
        self._scheduler = scheduler
        self._worker = worker
        self._priority: dict[str, Priority] = {
            topics.requests_high: "high",
            topics.requests: "normal",
        }
        self._queue = JobQueue(options.queue, metrics.queued)
        self._backlogs: dict[TopicPartition, Backlog] = {}
        self._jobs: dict[TopicPartition, dict[int, Job]] = {}
        self._ended = asyncio.Condition()
        #: Set while it is known which partitions are this worker's.
        self._settled = asyncio.Event()
        self._sending = 0
        #: By id, the request that it is answered with.
        self._holders: dict[str, Job] = {}
        self._stopping = False

    async def on_start(self) -> None:
        """Join the group, and start as many workers as there may be requests at once."""
        await super().on_start()
        partitions = await self.producer.partitions(self._topics.explanations)
        self._answering = self._make_answering(partitions)
        self._progress = ProgressTeller(self._topics, partitions, self._worker, self.producer)
        self._threads = ThreadPoolExecutor(self._options.concurrency, thread_name_prefix="request")
        self._cancellations.on_cancel = self._cancel
        for _ in range(self._options.concurrency):
            self.add_future(self._work(self._queue.next))
        self.add_future(self._work(self._queue.next_over))  # answered at once

    async def take_over(self, partitions: list[TopicPartition]) -> None:
        """Go on with the partitions that were this worker's before, begin with others, drop the rest."""
        owned = set(partitions)
        gone = [partition for partition in self._backlogs if partition not in owned]
        if begun := self._begun(gone):
            await self._progress.release(begun)
        self._drop(gone)
        self._answers.own(owned)
        beginnings = await self.consumer.beginning_offsets(partitions) if partitions else {}
        for partition in partitions:
            committed = await self.consumer.committed(partition)
            start = max(committed or 0, beginnings[partition])
            backlog = self._backlogs.get(partition)
            if backlog is None:
                backlog = self._backlogs[partition] = Backlog(start)
                self._jobs[partition] = {}
            else:
                # It was another's in between, where the committed offset has moved.
                for offset in [offset for offset in self._jobs[partition] if offset < start]:
                    self._jobs[partition].pop(offset).lost.set()
                backlog.moved(start)
            self.consumer.seek(partition, backlog.position)
        self._settled.set()

    async def hand_over(self, partitions: list[TopicPartition]) -> None:
        """Commit, and hold answers back until it is known who has the partitions."""
        await self._commit()
        self._settled.clear()
        # An answer on its way must be in the log before another worker looks there for it.
        await self._until(lambda: not self._sending, _SENDING_SECONDS)

    async def finish(self) -> None:
        """Give the requests at hand a moment, let the others go, commit."""
        self._stopping = True
        self._queue.clear()
        if self._settled.is_set():
            await self._until(lambda: not self._in_flight(), self._options.drain_seconds)
        await self._commit()
        await self._progress.release(self._begun(self._backlogs))
        self._drop(list(self._backlogs))

    async def on_stop(self) -> None:
        """Stop in order, and close the models."""
        await super().on_stop()
        self._threads.shutdown(wait=False, cancel_futures=True)
        await self._answering.stop()

    async def _until(self, holds: Callable[[], bool], seconds: float) -> None:
        """Wait until something that ends with a job or an answer holds, at most so long."""
        async with self._ended:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ended.wait_for(holds), seconds)

    async def _tell_ended(self) -> None:
        async with self._ended:
            self._ended.notify_all()

    def _in_flight(self) -> list[Job]:
        return [job for jobs in self._jobs.values() for job in jobs.values() if job.working]

    def _begun(self, partitions: Iterable[TopicPartition]) -> list[Job]:
        jobs = [job for partition in partitions for job in self._jobs[partition].values()]
        return [job for job in jobs if job.working and job.begun and not job.lost.is_set()]

    def _drop(self, partitions: list[TopicPartition]) -> None:
        """Forget partitions that are no longer this worker's, with all that is under way for them."""
        gone = set(partitions)
        for partition in gone:
            self._backlogs.pop(partition, None)
            for job in self._jobs.pop(partition, {}).values():
                job.lost.set()
        self._queue.drop_lost()

    def _cancel(self, request_id: str) -> None:
        for jobs in self._jobs.values():
            for job in jobs.values():
                if job.id == request_id:
                    job.cancelled.set()

    # Reading

    @Service.task
    async def _read(self) -> None:
        while not self.should_stop:
            owned = list(self._backlogs) if self._settled.is_set() and not self._stopping else []
            room = {part: self._queue.room(self._priority[part.topic]) for part in owned}
            full = [part for part in owned if room[part] <= 0]
            free = [part for part in owned if room[part] > 0]
            try:
                self.consumer.pause(*full)
                self.consumer.resume(*free)
            except IllegalStateError:  # a rebalance has just begun
                continue
            self._metrics.paused.set(len(full))
            if not free:
                # A poll for nothing: a consumer that does not poll for minutes is put out of its group.
                nothing = TopicPartition(self._topics.requests, -1)
                await self.consumer.getmany(nothing, timeout_ms=0)
                await asyncio.sleep(0.05)
                continue
            most = min(room[part] for part in free)
            batches = await self.consumer.getmany(*free, timeout_ms=_POLL_MS, max_records=most)
            # Nothing here waits: a rebalance cannot come between the poll and the queue.
            for partition, records in batches.items():
                self._take_in(partition, records)
            if batches:
                await self._queue.tell()

    def _take_in(self, partition: TopicPartition, records: list[ConsumerRecord]) -> None:
        backlog = self._backlogs.get(partition)
        if backlog is None:
            return
        for record in records:
            if record.offset < backlog.position:
                continue
            backlog.read(record.offset)
            job = Job.of(record, self._priority[partition.topic])
            if job.id is not None and self._cancellations.cancelled(job.id):
                job.cancelled.set()
            self._jobs[partition][record.offset] = job
            self._queue.put(job)

    # Working

    async def _work(self, following: Callable[[], Awaitable[Job | None]]) -> None:
        while not self.should_stop:
            job = await following()
            if job is None:
                continue
            job.working = True
            try:
                await self._serve(job)
            except Exception as error:
                # Where the request stands is not known any more: let a new worker begin with it.
                await self.crash(error)
                raise
            finally:
                job.working = False
                await self._tell_ended()

    async def _serve(self, job: Job) -> None:
        partition = TopicPartition(job.origin.topic, job.origin.partition)
        await self._know_since(partition, job)
        if job.lost.is_set():
            return
        if self._answers.answered(job.origin, job.id):
            self._metrics.repeated.inc()
            self._done(job)
            return
        if not self._holds(job):
            # The same request once more, while it is computed: it is answered with that.
            self._queue.put(job)
            await asyncio.sleep(0.1)
            return
        self._metrics.waiting_seconds.labels(job.priority).observe(
            max(0.0, time.time() - job.record.timestamp / 1000)
        )
        self._metrics.in_flight.inc()
        try:
            records = await self._answering.answer(job, self._threads, self._begin)
            if not self._holds(job):
                # Its key says no id, and inside it has that of another one at hand.
                self._queue.put(job)
            elif records:
                await self._send(job, records)
        finally:
            self._metrics.in_flight.dec()
            if job.id is not None and self._holders.get(job.id) is job:
                del self._holders[job.id]

    def _holds(self, job: Job) -> bool:
        """Whether a request is the one that its id is answered with, now or already."""
        return job.id is None or self._holders.setdefault(job.id, job) is job

    async def _know_since(self, partition: TopicPartition, job: Job) -> None:
        """Know which requests of the partition are answered, from this one on."""
        while not job.lost.is_set():
            try:
                await self._answers.know_since(partition, job.since)
            except KafkaError as error:
                _log.warning("answers could not be read, tried again soon: %s", error)
                await asyncio.sleep(0.5)
            else:
                return

    async def _begin(self, job: Job) -> None:
        """Write down that the request is begun: a worker that dies of it leaves this behind."""
        job.attempt = self._answers.begun(job.origin) + 1
        job.begun = True
        await self._acknowledged([self._progress.started(job)], job)

    async def _send(self, job: Job, records: list[Outgoing]) -> None:
        """Send the final answer, unless it is another's to give; then count the request as done."""
        while not job.lost.is_set():
            # In a rebalance: wait for its end.
            await self._settled.wait()
            if job.lost.is_set():
                return
            if self._answers.answered(job.origin, job.id):
                self._metrics.repeated.inc()
                self._done(job)
                return
            self._sending += 1
            try:
                sent = await self._acknowledged(records, job)
                if sent:
                    # Before another of its id has its turn: the log is read a moment later.
                    self._answers.acknowledged(job.origin, job.id)
            finally:
                self._sending -= 1
                await self._tell_ended()
            if sent:
                self._answering.count(job)
                self._done(job)
                return

    async def _acknowledged(self, records: list[Outgoing], job: Job) -> bool:
        """Send records until they are acknowledged; False where the job is lost meanwhile."""
        wait = 0.1
        while not job.lost.is_set():
            try:
                await self.producer.send(records)
            except KafkaError as error:
                _log.warning("not acknowledged, tried again in %.1f s: %s", wait, error)
                await asyncio.sleep(wait)
                wait = min(wait * 2, 5.0)
            else:
                return True
        return False

    def _done(self, job: Job) -> None:
        partition = TopicPartition(job.origin.topic, job.origin.partition)
        if self._jobs.get(partition, {}).pop(job.origin.offset, None) is not None:
            self._backlogs[partition].done(job.origin.offset)

    # Beside it

    @Service.task
    async def _keep_up(self) -> None:
        """Commit, and tell progress."""
        last = time.monotonic()
        while not self.should_stop:
            await asyncio.sleep(_COMMIT_SECONDS)
            async with self.lock:
                await self._commit()
            await self._repeat()
            if time.monotonic() - last >= self._options.progress_seconds:
                last = time.monotonic()
                await self._progress.tell(self._begun(self._backlogs))

    @Service.task
    async def _schedule(self) -> None:
        """Send what the cards of the models in this worker's partitions ask for."""
        partitions = await self.producer.partitions(self._topics.requests)
        followed = False
        while not self.should_stop:
            await self.sleep(_SCHEDULE_SECONDS)
            if not self._settled.is_set() or self._stopping:
                continue
            if not followed and self._scheduler.wanted:
                await self.add_runtime_dependency(self._scheduler.windows)
                followed = True
            normal = self._topics.requests
            owned = {part.partition for part in self._backlogs if part.topic == normal}
            await self._scheduler.turn(owned, partitions, self.producer)

    async def _commit(self) -> None:
        commits = {
            partition: backlog.commit
            for partition, backlog in self._backlogs.items()
            if backlog.commit > backlog.committed
        }
        if not commits or not self._settled.is_set():
            return
        try:
            await self.consumer.commit(commits)
        except (CommitFailedError, IllegalStateError) as error:
            _log.info("not committed, the partitions have moved: %s", error)
        except KafkaError as error:
            _log.warning("not committed, tried again soon: %s", error)
        else:
            for partition, offset in commits.items():
                self._backlogs[partition].committed = offset
                self._answers.committed(partition, offset)

    async def _repeat(self) -> None:
        """Write the first answer once more behind a second one of this worker's."""
        while self._answers.to_repeat:
            partition, offset = self._answers.to_repeat.pop()
            self._metrics.duplicates.inc()
            try:
                record = await self._answers.read_at(partition, offset)
                if record is not None:
                    await self.producer.send([record])
            except KafkaError as error:
                _log.warning("the answer that holds could not be written again: %s", error)
