"""The shell around snapshots: loads the newest of a partition, writes what has changed since the last."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Sequence

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from attributary.schemas.connection import Connection
from attributary.workers.maths.wire import IncompatibleStateError
from attributary.workers.stream.closing import close
from attributary.workers.stream.ends import CatchUp
from attributary.workers.stream.log_reader import lone_consumer
from attributary.workers.stream.merge import MergePartition
from attributary.workers.stream.merge_drafts import Draft
from attributary.workers.stream.metrics import StreamMetrics
from attributary.workers.stream.outgoing import Outgoing
from attributary.workers.stream.producer import AcknowledgedProducer
from attributary.workers.stream.resume import Resume
from attributary.workers.stream.snapshot_log import SnapshotRecord, SnapshotShelf, SnapshotWriter

_log = logging.getLogger(__name__)


class _Owned:
    """A partition that this process writes snapshots of."""

    def __init__(self, partition: int, old_keys: list[bytes]) -> None:
        self.writer = SnapshotWriter(partition, uuid.uuid4().hex)
        #: What earlier owners left, to be removed once the first snapshot holds.
        self.old_keys = old_keys
        #: An index that may be in the log or not: nothing may be overwritten before it is known.
        self.unsure: SnapshotRecord | None = None
        self.position: int | None = None


class SnapshotStore:
    """Snapshots of the sketches partitions that a merge process owns, in their topic."""

    def __init__(
        self,
        connection: Connection,
        topic: str,
        producer: AcknowledgedProducer,
        metrics: StreamMetrics,
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._producer = producer
        self._metrics = metrics
        self._owned: dict[int, _Owned] = {}
        self._lock = asyncio.Lock()

    async def load(
        self, partition: int, new_core: Callable[[], MergePartition]
    ) -> tuple[MergePartition, Resume | None]:
        """Return the merge that the newest usable snapshot makes, or a new one and None.

        One that cannot be used is reported and counted, and an older one is taken, or the log alone.
        """
        shelf = await self._read(partition)
        self._owned[partition] = _Owned(partition, shelf.keys())
        for trouble in shelf.troubles:
            self._report("unreadable", trouble)
        for index, parts in shelf.newest_first():
            core = new_core()
            try:
                found = await asyncio.to_thread(parts)
                return core, await asyncio.to_thread(core.restore, found, index.position)
            except IncompatibleStateError as error:
                self._report("unreadable", f"partition {partition}: {error}")
        return new_core(), None

    def forget(self, partition: int) -> None:
        """Write no more snapshots of a partition."""
        self._owned.pop(partition, None)
        with contextlib.suppress(KeyError):
            self._metrics.snapshot_time.remove(str(partition))

    def drafts(self, partition: int, core: MergePartition, position: int) -> list[Draft] | None:
        """Return what a snapshot of the partition must write; None where nothing was read since."""
        owned = self._owned.get(partition)
        if owned is None or owned.position == position:
            return None
        return list(core.drafts(owned.writer.versions))

    async def write(self, partition: int, drafts: Sequence[Draft], position: int) -> None:
        """Write a snapshot; one that fails is reported, counted and made up for by the next."""
        started = time.monotonic()
        async with self._lock:
            owned = self._owned.get(partition)
            if owned is None:
                return
            try:
                await self._write(owned, partition, drafts, position)
            except KafkaError as error:
                self._report("not_written", f"partition {partition}: {error}")
                return
        self._metrics.snapshot_seconds.observe(time.monotonic() - started)
        self._metrics.snapshot_time.labels(str(partition)).set(time.time())

    async def _write(
        self, owned: _Owned, partition: int, drafts: Sequence[Draft], position: int
    ) -> None:
        writer = owned.writer
        if owned.unsure is not None:
            await self._send(partition, [owned.unsure])
            await self._hold(owned, partition)
        writer.begin()
        for draft in drafts:
            if draft.make is None:
                writer.keep(draft.name)
            else:
                data = await asyncio.to_thread(draft.make)
                await self._send(
                    partition, writer.put(draft.name, draft.version, data, draft.needs)
                )
        await self._send(partition, writer.directory())
        owned.unsure = writer.index(position)
        await self._send(partition, [owned.unsure])
        await self._hold(owned, partition)
        owned.position = position

    async def _hold(self, owned: _Owned, partition: int) -> None:
        """Take the acknowledged snapshot as the one that holds, and remove what it replaces."""
        owned.unsure = None
        gone = owned.writer.acknowledged()
        old, owned.old_keys = owned.old_keys, []
        await self._send(partition, [*gone, *(SnapshotRecord(key, None) for key in old)])

    async def _send(self, partition: int, records: Sequence[SnapshotRecord]) -> None:
        if not records:
            return
        home = await self._home(partition)
        await self._producer.send(
            [Outgoing(self._topic, record.key, record.value, home) for record in records]
        )
        self._metrics.snapshot_bytes.inc(sum(len(record.value or b"") for record in records))

    async def _home(self, partition: int) -> int:
        """Return where a sketches partition's snapshots are: the topic may have fewer partitions."""
        return partition % await self._producer.partitions(self._topic)

    async def _read(self, partition: int) -> SnapshotShelf:
        shelf = SnapshotShelf(partition)
        consumer = lone_consumer(self._connection, wait_ms=100)
        try:
            await consumer.start()
            home = TopicPartition(self._topic, await self._home(partition))
            consumer.assign([home])
            await consumer.seek_to_beginning(home)
            catch_up = CatchUp(consumer, [home])
            while not await catch_up.reached():
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    for record in records:
                        shelf.add(record.key, record.value)
        finally:
            await close(consumer.stop())
        return shelf

    def _report(self, kind: str, text: str) -> None:
        _log.error("a snapshot was %s: %s", kind.replace("_", " "), text)
        self._metrics.snapshot_failures.labels(kind).inc()
