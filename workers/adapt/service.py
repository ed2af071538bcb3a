"""The shell around the bridge: polls foreign topics, sends rows, commits what is acknowledged."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import CommitFailedError, KafkaError
from mode import Service

from attributary.schemas.adapters.convert import Converter
from attributary.schemas.adapters.formats import Adapter
from attributary.schemas.adapters.framed import schema_id
from attributary.schemas.adapters.pairing import Limits
from attributary.schemas.connection import Connection
from attributary.schemas.errors import BrokerError
from attributary.schemas.topics import Topics
from attributary.workers.adapt.core import AdaptCore, Work
from attributary.workers.adapt.metrics import AdaptMetrics
from attributary.workers.adapt.options import AdaptOptions
from attributary.workers.adapt.recovery import read_published
from attributary.workers.adapt.registry import SchemaRegistry
from attributary.workers.stream.group_service import GroupService
from attributary.workers.stream.series import remove

_log = logging.getLogger(__name__)

_POLL_MS = 200
_POLL_RECORDS = 2000
_MOST_MODELS = 1000

Batches = dict[TopicPartition, list[ConsumerRecord]]


class AdaptService(GroupService):
    """Reads its share of the foreign topics. ``totals`` counts rows and messages since the start."""

    def __init__(
        self,
        connection: Connection,
        topics: Topics,
        foreign: Sequence[str],
        group: str,
        adapter: Adapter,
        options: AdaptOptions,
        metrics: AdaptMetrics,
        **kwargs: Any,
    ) -> None:
        super().__init__(connection, foreign, group, options, **kwargs)
        # The same partitions of all topics go to one member: requests and responses have one key.
        self._consumer_arguments["partition_assignment_strategy"] = [RangePartitionAssignor]
        self.totals: Counter[str] = Counter()
        self.converter = Converter(
            adapter, Limits(options.pair_halves, options.pair_bytes, options.pair_seconds)
        )
        self._connection = connection
        self._topics = topics
        self._options = options
        self._metrics = metrics
        self._registry: SchemaRegistry | None = None
        if options.registry is not None:
            password = options.registry_password
            self._registry = SchemaRegistry(
                options.registry,
                options.registry_user,
                None if password is None else password.get_secret_value(),
            )
        self._core = AdaptCore(
            self.converter,
            topics,
            batch_rows=options.batch_rows,
            schemas=None if self._registry is None else self._registry.decoders,
        )
        self._assignment = 0
        # False while records are counted in the core whose rows are not acknowledged: nothing is committed.
        self._settled = True
        self._fresh: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._counted: Counter[tuple[str, str]] = Counter()
        self._models: set[str] = set()

    async def take_over(self, partitions: list[TopicPartition]) -> None:
        """Start at the committed offset: the oldest record that was not published then."""
        self._assignment += 1
        beginnings = await self.consumer.beginning_offsets(partitions)
        for partition in partitions:
            committed = await self.consumer.committed(partition)
            start = max(committed or 0, beginnings[partition])
            self.consumer.seek(partition, start)
            self._core.begin((partition.topic, partition.partition), start)
            self._fresh[partition] = start

    async def hand_over(self, partitions: list[TopicPartition]) -> None:
        """Commit, and leave what waits to the next owner."""
        self._assignment += 1
        await self._commit()
        for partition in partitions:
            self._core.end((partition.topic, partition.partition))
            self._fresh.pop(partition, None)
            self._committed.pop(partition, None)
            remove(self._metrics.lag, tuple(map(str, partition)))

    async def finish(self) -> None:
        """Commit what is acknowledged."""
        await self._commit()

    @Service.task
    async def _run(self) -> None:
        committed = time.monotonic()
        while not self.should_stop:
            batches = await self.consumer.getmany(timeout_ms=_POLL_MS, max_records=_POLL_RECORDS)
            assignment = self._assignment
            async with self.lock:
                # After a rebalance these records are read again, by whoever has their partitions now.
                if assignment == self._assignment and not self.should_stop:
                    await self._take(batches)
            if time.monotonic() - committed >= self._options.commit_seconds:
                async with self.lock:
                    await self._commit()
                committed = time.monotonic()

    async def _take(self, batches: Batches) -> None:
        """Publish what records make. A KafkaError ends the process: the next one reads them again."""
        if fresh := [partition for partition in batches if partition in self._fresh]:
            await self._recover(fresh, batches)
        if self._registry is not None:
            values = (record.value or b"" for records in batches.values() for record in records)
            ids = dict.fromkeys(map(schema_id, values))
            await self._registry.fetch(number for number in ids if number is not None)
        self._settled = False
        now = time.monotonic()
        work = Work()
        for partition, records in batches.items():
            self._core.add((partition.topic, partition.partition), records, now, work)
        self.converter.pairing.expire(now)
        try:
            await self.producer.send(work.letters)
            await self.producer.send(work.messages)
        except KafkaError as error:
            raise BrokerError(f"rows were not acknowledged: {error}") from error
        self._settled = True
        self._count(batches, work)

    async def _recover(self, fresh: list[TopicPartition], batches: Batches) -> None:
        """Learn what a former owner has published of the records that come now."""
        oldest = min(batches[partition][0].timestamp for partition in fresh)
        starts = {(part.topic, part.partition): self._fresh[part] for part in fresh}
        since = oldest - round(self._options.clock_seconds * 1000)
        published = self._core.published
        read = await read_published(self._connection, self._topics.rows, since, starts, published)
        for partition in fresh:
            del self._fresh[partition]
        _log.info("read %d messages of rows: %d records are published", read, len(published))

    async def _commit(self) -> None:
        if not self._settled:
            return
        offsets = {
            partition: offset
            for (topic, number), offset in self._core.commits().items()
            if self._committed.get(partition := TopicPartition(topic, number)) != offset
            and partition not in self._fresh
        }
        if not offsets:
            return
        try:
            await self.consumer.commit(offsets)
            self._committed.update(offsets)
        except CommitFailedError as error:
            _log.warning("offsets were not committed, the group has changed: %s", error)
        except KafkaError as error:
            _log.warning("offsets were not committed, tried again soon: %s", error)

    def _count(self, batches: Batches, work: Work) -> None:
        metrics, pairing = self._metrics, self.converter.pairing
        for partition, records in batches.items():
            metrics.messages.labels(partition.topic).inc(len(records))
            size = sum(len(record.value or b"") for record in records)
            metrics.message_bytes.labels(partition.topic).inc(size)
            end = self.consumer.highwater(partition) or 0
            metrics.lag.labels(*partition).set(max(0, end - records[-1].offset - 1))
            self.totals["messages"] += len(records)
        for model, rows in work.rows.items():
            # Whoever writes the foreign topics chooses the names, and must not choose how many series.
            if len(self._models) < _MOST_MODELS:
                self._models.add(model)
            metrics.rows.labels(model if model in self._models else "(other)").inc(rows)
            self.totals["rows"] += rows
        for reason, rows in work.rejected.items():
            metrics.rejected.labels(reason).inc(rows)
            self.totals["rejected"] += rows
        metrics.repeated.inc(work.repeated)
        metrics.waiting.set(len(pairing))
        metrics.waiting_bytes.set(pairing.bytes)
        for kind, counts, counter in (
            ("skipped", self.converter.skipped, metrics.skipped),
            ("lost", pairing.lost, metrics.lost),
        ):
            for reason, count in counts.items():
                counter.labels(reason).inc(count - self._counted[kind, reason])
                self._counted[kind, reason] = count
