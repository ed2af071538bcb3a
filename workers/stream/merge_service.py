"""The shell around merge: reads sketches from the beginning, catches up, then publishes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError
from mode import Service

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
from attributary.workers.stream.merge import MergePartition
from attributary.workers.stream.metrics import StreamMetrics
from attributary.workers.stream.options import MergeOptions
from attributary.workers.stream.outgoing import Outgoing, result_record, sketch_partition

_log = logging.getLogger(__name__)

_POLL_MS = 200
_POLL_RECORDS = 500


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
        super().__init__(connection, topics.sketches, f"{topics.sketches}-merge", options, **kwargs)
        self._topics = topics
        self._options = options
        self._catalogue = catalogue
        self._metrics = metrics
        self._gauges = ModelGauges(metrics, options.exported_features)
        self._cores: dict[TopicPartition, MergePartition] = {}
        self._catching_up: dict[TopicPartition, CatchUp] = {}
        self._unsent: list[Outgoing] = []

    async def take_over(self, partitions: list[TopicPartition]) -> None:
        """Read the partitions from their beginning."""
        if not partitions:
            return
        beginnings = await self.consumer.beginning_offsets(partitions)
        count = await self.producer.partitions(self._topics.sketches)
        for partition in partitions:
            self.consumer.seek(partition, beginnings[partition])
            self._cores[partition] = MergePartition(
                self._catalogue, self._options, _owner(partition.partition, count)
            )
            self._catching_up[partition] = CatchUp(self.consumer, [partition])

    async def hand_over(self, partitions: list[TopicPartition]) -> None:
        """Forget the partitions; their next owner reads the same log."""
        for partition in partitions:
            self._cores.pop(partition, None)
            self._catching_up.pop(partition, None)
        self._gauges.forget()

    async def finish(self) -> None:
        """Publish what has changed."""
        await self._publish()

    @Service.task
    async def _read(self) -> None:
        published = time.monotonic()
        while not self.should_stop:
            await self._poll(_POLL_MS)
            if time.monotonic() - published >= self._options.publish_seconds:
                published = time.monotonic()
                async with self.lock:
                    await self._publish()

    async def _poll(self, timeout_ms: int) -> None:
        batches = await self.consumer.getmany(timeout_ms=timeout_ms, max_records=_POLL_RECORDS)
        # Nothing below waits: a rebalance cannot come between the poll and the cores.
        for partition, records in batches.items():
            core = self._cores.get(partition)
            if core is not None:
                for record in records:
                    self._add(core, record)

    async def _caught_up(self, partition: TopicPartition) -> bool:
        catch_up = self._catching_up.get(partition)
        if catch_up is not None and not await catch_up.reached():
            return False
        self._catching_up.pop(partition, None)
        return True

    def _add(self, core: MergePartition, record: ConsumerRecord) -> None:
        if record.value is None:
            return
        try:
            if (record.key or b"").startswith(MANIFEST_KEY):
                core.add_manifest(Manifest.from_bytes(record.value), record.timestamp)
            else:
                core.add_sketch(*decode_sketch(record.value), record.timestamp)
                self._metrics.sketches_received.inc()
        except (RejectedError, IncompatibleStateError) as error:
            _log.error(
                "skipped %s/%d offset %d: %s", record.topic, record.partition, record.offset, error
            )

    async def _publish(self) -> None:
        started = time.monotonic()
        now = round(time.time() * 1000)
        stale = [partition for partition, core in self._cores.items() if core.stale]
        await self.take_over(stale)
        for partition, core in self._cores.items():
            if not await self._caught_up(partition):
                continue
            messages = list(core.publish(now))
            self._unsent += [result_record(message, self._topics) for message in messages]
            self._export(core, messages)
        try:
            await self.producer.send(self._unsent)
            self._unsent = []
        except KafkaError as error:
            _log.warning("results were not acknowledged, tried again soon: %s", error)
        self._metrics.publish_seconds.observe(time.monotonic() - started)

    def _export(
        self, core: MergePartition, messages: list[WindowAttribution | WindowDrift]
    ) -> None:
        metrics = self._metrics
        superseded = sum(core.superseded for core in self._cores.values())
        metrics.sketches_superseded.set(superseded)
        for (topic, partition), offsets in core.gaps().items():
            metrics.gaps.labels(topic, partition).set(offsets)
        for model, watermark in core.watermarks().items():
            metrics.watermark.labels(model).set(watermark / 1000)
        for message in messages:
            if isinstance(message, WindowAttribution):
                metrics.windows_published.labels(message.model).inc()
                self._gauges.attributions(message)
            else:
                self._gauges.drift(message)


def _owner(partition: int, partitions: int) -> Callable[[str], bool]:
    """Return what tells whether a model's sketches come to this partition of the sketches topic."""
    return lambda model: sketch_partition(model, partitions) == partition
