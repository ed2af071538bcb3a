"""The shell around merge: goes on from the newest snapshot, catches up, then publishes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError
from mode import Service
from prometheus_client import Gauge

from attributary.schemas.attribution import WindowAttribution, WindowDrift
from attributary.schemas.connection import Connection
from attributary.schemas.errors import RejectedError
from attributary.schemas.manifest import MANIFEST_KEY, Manifest
from attributary.schemas.sketch import decode_sketch
from attributary.schemas.topics import Topics
from attributary.workers.maths.wire import IncompatibleStateError
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.ends import CatchUp
from attributary.workers.stream.gauges import ModelGauges
from attributary.workers.stream.group_service import GroupService
from attributary.workers.stream.held import SourceKey
from attributary.workers.stream.merge import MergePartition
from attributary.workers.stream.metrics import StreamMetrics
from attributary.workers.stream.options import MergeOptions
from attributary.workers.stream.outgoing import Outgoing, result_record, sketch_partition
from attributary.workers.stream.resume import Resume
from attributary.workers.stream.snapshot_store import SnapshotStore
from attributary.workers.stream.turn import Cadence, Turn

_log = logging.getLogger(__name__)

_POLL_MS = 200
_POLL_RECORDS = 500
# Settled windows are published while merge catches up, so that they do not pile up.
_MOST_SETTLED = 64
# A snapshot at the end must not hold up a hand-over, nor the worker's stop.
_LAST_SNAPSHOT_SECONDS = 4.0


@dataclass
class _Owned:
    """One partition: its merge, where it has read to, and what it still waits for."""

    core: MergePartition
    position: int
    catch_up: CatchUp | None
    #: What a loaded snapshot takes from the log before the rest is read.
    resume: Resume | None = None
    #: A merge on other windows that has read up to an offset: its books are taken over there.
    older: tuple[MergePartition, int] | None = None


class MergeService(GroupService):
    """Reads its share of the sketches topic and publishes attributions and drift."""

    def __init__(
        self,
        connection: Connection,
        topics: Topics,
        options: MergeOptions,
        catalogue: ControlCatalogue,
        metrics: StreamMetrics,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            connection, [topics.sketches], f"{topics.sketches}-merge", options, **kwargs
        )
        self._topics = topics
        self._options = options
        self._catalogue = catalogue
        self._metrics = metrics
        self._gauges = ModelGauges(metrics, options.exported_features, options.series_per_model)
        self._owned: dict[TopicPartition, _Owned] = {}
        self._snapshots = SnapshotStore(connection, topics.snapshots, self.producer, metrics)
        self._snapshot_due = time.monotonic() + options.snapshot_seconds
        self._saving: asyncio.Future[None] | None = None
        self._unsent: list[Outgoing] = []
        self._turn = Turn()

    async def take_over(self, partitions: list[TopicPartition]) -> None:
        """Go on from the newest snapshots, or read the partitions from their beginning."""
        await self._forget_others(partitions)
        if not partitions:
            return
        beginnings = await self.consumer.beginning_offsets(partitions)
        for partition in partitions:
            new = await self._new_core(partition)
            core, resume = await self._snapshots.load(partition.partition, new)
            start = beginnings[partition]
            if resume is not None:
                start = max(start, resume.start)
                _log.info(
                    "%s/%d goes on from the snapshot at %d, reading from %d",
                    *partition, resume.position, start,
                )  # fmt: skip
            self.consumer.seek(partition, start)
            catch_up = CatchUp(self.consumer, [partition])
            self._owned[partition] = owned = _Owned(core, start, catch_up, resume)
            if resume is not None and resume.complete:
                self._resume(partition, owned)

    async def _read_again(self, partitions: list[TopicPartition]) -> None:
        """Read partitions from their beginning, for windows that a card has changed."""
        if not partitions:
            return
        beginnings = await self.consumer.beginning_offsets(partitions)
        for partition in partitions:
            before = self._owned[partition]
            core = (await self._new_core(partition))()
            self._gauges.forget(await self._owner(partition))
            older = before.older or (before.core, before.position)
            start = beginnings[partition]
            self.consumer.seek(partition, start)
            catch_up = CatchUp(self.consumer, [partition])
            self._owned[partition] = _Owned(core, start, catch_up, older=older)

    async def _forget_others(self, partitions: list[TopicPartition]) -> None:
        """Remove the series of the models of other partitions: another worker shows them now."""
        owners = [await self._owner(partition) for partition in partitions]
        self._gauges.forget(lambda model: not any(owns(model) for owns in owners))

    async def _owner(self, partition: TopicPartition) -> Callable[[str], bool]:
        """Return what tells whether a model's sketches come to this partition."""
        count = await self.producer.partitions(self._topics.sketches)
        return lambda model: sketch_partition(model, count) == partition.partition

    async def _new_core(self, partition: TopicPartition) -> Callable[[], MergePartition]:
        owner = await self._owner(partition)
        return lambda: MergePartition(self._catalogue, self._options, owner)

    async def hand_over(self, partitions: list[TopicPartition]) -> None:
        """Write a last snapshot and forget the partitions; their next owner goes on from there."""
        if any(partition in self._owned for partition in partitions):
            await self._leave(partitions)
        for partition in partitions:
            self._owned.pop(partition, None)
            self._snapshots.forget(partition.partition)
        for gauge in (self._metrics.gaps, self._metrics.beyond_end):
            gauge.clear()

    async def finish(self) -> None:
        """Publish what has changed, and write a last snapshot."""
        await self._leave(list(self._owned))

    @Service.task
    async def _read(self) -> None:
        cadence = Cadence(self._options.publish_seconds)
        while not self.should_stop:
            await self._poll(_POLL_MS)
            settled = sum(owned.core.settled_windows for owned in self._owned.values())
            if cadence.due or settled >= _MOST_SETTLED:
                with cadence:
                    async with self.lock:
                        news = await self._publish()
                        self._save_when_due()
                if not news:
                    # What comes next need not wait for its turn.
                    cadence.soon(_POLL_MS / 1000)

    async def _poll(self, timeout_ms: int) -> None:
        batches = await self.consumer.getmany(timeout_ms=timeout_ms, max_records=_POLL_RECORDS)
        polled_for = {partition: self._owned.get(partition) for partition in batches}
        async with self.lock:
            for partition, records in batches.items():
                owned = self._owned.get(partition)
                # After a rebalance meanwhile the records are read again, by whoever owns them now.
                if owned is not None and owned is polled_for[partition]:
                    await self._take(partition, owned, records)

    async def _take(
        self, partition: TopicPartition, owned: _Owned, records: Iterable[ConsumerRecord]
    ) -> None:
        for record in records:
            if owned.resume is not None:
                if owned.resume.complete:
                    self._resume(partition, owned)
                    return  # reading goes on where the snapshot was taken
                self._look(owned.resume, record)
            else:
                self._inherit(owned, record.offset)
                self._add(owned.core, record)
            owned.position = record.offset + 1
            await self._turn.give()

    def _look(self, resume: Resume, record: ConsumerRecord) -> None:
        if record.value is None or (record.key or b"").startswith(MANIFEST_KEY):
            return
        try:
            resume.take(*decode_sketch(record.value), record.offset, record.timestamp)
        except RejectedError:
            return  # it was reported when it was read first

    def _resume(self, partition: TopicPartition, owned: _Owned) -> None:
        """Put together what the snapshot and the log hold, and read on from where it was taken."""
        resume, owned.resume = owned.resume, None
        if resume is None:
            return
        lost = resume.finish()
        if lost:
            self._metrics.snapshot_failures.labels("incomplete").inc()
            _log.error(
                "%s/%d: sketches of %d rows in open windows and blocks are gone from the log, where the "
                "snapshot at %d points to; those windows are published without them",
                *partition, lost, resume.position,
            )  # fmt: skip
        end = self.consumer.highwater(partition)
        if end is not None and end < resume.position:
            self._metrics.snapshot_failures.labels("ahead").inc()
            _log.error(
                "%s/%d ends at %d, before its snapshot at %d: the topic is another one of the same name, "
                "or has lost its end; it is read from its beginning on the snapshot's books",
                *partition, end, resume.position,
            )  # fmt: skip
            owned.position = 0
            self.consumer.seek(partition, 0)  # out of range is reset to the beginning
            return
        owned.position = resume.position
        self.consumer.seek(partition, owned.position)

    def _inherit(self, owned: _Owned, offset: int) -> None:
        """Take over the books of a merge on other windows, where it has read to."""
        if owned.older is not None and offset >= owned.older[1]:
            owned.core.inherit(owned.older[0])
            owned.older = None

    async def _caught_up(self, partition: TopicPartition, owned: _Owned) -> bool:
        if owned.resume is not None:
            done = owned.resume.complete
            if not done and owned.catch_up is not None:
                done = await owned.catch_up.reached()
            if done and self._owned.get(partition) is owned:
                self._resume(partition, owned)
                owned.catch_up = CatchUp(self.consumer, [partition])
            return False
        if owned.catch_up is not None and not await owned.catch_up.reached():
            return False
        owned.catch_up = None
        self._inherit(owned, owned.position)
        return True

    def _add(self, core: MergePartition, record: ConsumerRecord) -> None:
        if record.value is None:
            return
        try:
            if (record.key or b"").startswith(MANIFEST_KEY):
                core.add_manifest(Manifest.from_bytes(record.value), record.timestamp)
            else:
                core.add_sketch(*decode_sketch(record.value), record.timestamp, record.offset)
                self._metrics.sketches_received.inc()
        except (RejectedError, IncompatibleStateError) as error:
            self._metrics.sketches_unusable.inc()
            _log.error(
                "skipped %s/%d offset %d: %s", record.topic, record.partition, record.offset, error
            )

    async def _publish(self, *, leaving: bool = False) -> bool:
        """Publish what has changed, if anything has: return that.

        ``leaving``: without asking the consumer, which is being reassigned.
        """
        started = time.monotonic()
        now = round(time.time() * 1000)
        if not leaving:
            await self._read_again([p for p, owned in self._owned.items() if self._is_stale(owned)])
        for partition, owned in list(self._owned.items()):
            core = owned.core
            ready = owned.catch_up is None and owned.resume is None
            if ready or (not leaving and await self._caught_up(partition, owned)):
                parts = core.publish_in_parts(now)
            else:
                parts = core.publish_settled_in_parts(now)
            for messages in parts:
                self._unsent += [result_record(message, self._topics) for message in messages]
                self._show(messages)
                await self._turn.give()
        self._export()
        news = bool(self._unsent)
        try:
            await self.producer.send(self._unsent)
            self._unsent = []
        except KafkaError as error:
            _log.warning("results were not acknowledged, tried again soon: %s", error)
        self._metrics.publish_seconds.observe(time.monotonic() - started)
        return news

    def _is_stale(self, owned: _Owned) -> bool:
        return owned.resume is None and owned.core.stale

    def _save_when_due(self) -> None:
        """Begin to write snapshots, of what is published; reading goes on meanwhile."""
        busy = self._saving is not None and not self._saving.done()
        if time.monotonic() >= self._snapshot_due and not busy and not self._unsent:
            self._snapshot_due = time.monotonic() + self._options.snapshot_seconds
            self._saving = self.add_future(self._save(list(self._owned)))

    def _save(self, partitions: list[TopicPartition]) -> Coroutine[Any, Any, None]:
        """Take the state of what has caught up as it is now, and return what writes it."""
        taken = []
        for partition in partitions:
            owned = self._owned.get(partition)
            # A settled window that is not published yet would be lost with the process.
            if (
                owned is not None
                and owned.catch_up is None
                and owned.older is None
                and not owned.core.settled_windows
            ):
                number = partition.partition
                drafts = self._snapshots.drafts(number, owned.core, owned.position)
                if drafts is not None:
                    taken.append((number, drafts, owned.position))

        async def write() -> None:
            for number, drafts, position in taken:
                await self._snapshots.write(number, drafts, position)

        return write()

    async def _leave(self, partitions: list[TopicPartition]) -> None:
        """Publish, and write last snapshots of the partitions as far as there is time."""
        await self._publish(leaving=True)
        if self._unsent:
            return  # a snapshot would say that it is published
        try:
            await asyncio.wait_for(self._save_last(partitions), _LAST_SNAPSHOT_SECONDS)
        except asyncio.TimeoutError:
            _log.warning("no time for a last snapshot: the next owner goes on from the one before")

    async def _save_last(self, partitions: list[TopicPartition]) -> None:
        if self._saving is not None:
            await asyncio.wait({self._saving})
        await self._save(partitions)

    def _export(self) -> None:
        metrics = self._metrics
        cores = [owned.core for owned in self._owned.values()]
        metrics.sketches_superseded.set(sum(each.superseded for each in cores))
        metrics.models_refused.set(sum(each.refused for each in cores))
        metrics.settled_early.set(sum(each.settled_early for each in cores))
        for core in cores:
            metrics.sketches_unusable.inc(len(core.troubles))
            for text in [*core.troubles, *core.refusals]:
                _log.error("%s", text)
            core.troubles.clear()
            core.refusals.clear()
            for model, watermark in core.watermarks().items():
                self._gauges.watermark(model, watermark)
        _show_most(metrics.gaps, [core.gaps() for core in cores])
        _show_most(metrics.beyond_end, [core.beyond_end() for core in cores])
        self._gauges.sweep()

    def _show(self, messages: list[WindowAttribution | WindowDrift]) -> None:
        for message in messages:
            if isinstance(message, WindowAttribution):
                self._metrics.windows_published.labels(message.model).inc()
                self._gauges.attributions(message)
            else:
                self._gauges.drift(message)


def _show_most(gauge: Gauge, books: Iterable[Mapping[SourceKey, int]]) -> None:
    """Show the most that any has: all partitions of sketches have the manifests, and one may lack some."""
    most: dict[SourceKey, int] = {}
    for found in books:
        for source, offsets in found.items():
            most[source] = max(offsets, most.get(source, 0))
    for (topic, partition), offsets in most.items():
        gauge.labels(topic, partition).set(offsets)
