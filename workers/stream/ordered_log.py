"""A stretch of a topic in one order over all its partitions, the same whenever it is read."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from attributary.workers.stream.ends import log_ends

_POLL_MS = 500


class OrderedLog:
    """Records by (broker's time, partition), offsets [starts, ends) of every partition."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        starts: dict[TopicPartition, int],
        ends: dict[TopicPartition, int],
    ) -> None:
        self.starts = starts
        self.ends = ends
        self._consumer = consumer
        self._waiting: dict[TopicPartition, deque[ConsumerRecord]] = {
            partition: deque() for partition in sorted(starts)
        }

    @classmethod
    async def open(
        cls,
        consumer: AIOKafkaConsumer,
        partitions: list[TopicPartition],
        start: int | None,
        end: int | None,
        align: int,
    ) -> OrderedLog:
        """Read the broker's times [start, end) in ms; starts are moved back to a multiple of ``align``."""
        consumer.assign(partitions)
        starts = dict(await consumer.beginning_offsets(partitions))
        ends = await log_ends(consumer, partitions)
        for time, bounds in ((start, starts), (end, ends)):
            if time is None:
                continue
            found = await consumer.offsets_for_times(dict.fromkeys(partitions, time))
            for partition, place in found.items():
                offset = ends[partition] if place is None else place.offset
                if bounds is starts:
                    offset = max(starts[partition], offset // align * align)
                bounds[partition] = min(offset, ends[partition])
        for partition, offset in starts.items():
            consumer.seek(partition, offset)
        return cls(consumer, starts, ends)

    @property
    def records(self) -> int:
        """Offsets in the stretch."""
        return sum(max(0, self.ends[p] - start) for p, start in self.starts.items())

    async def __aiter__(self) -> AsyncIterator[tuple[TopicPartition, ConsumerRecord]]:
        """Yield the records in order."""
        while True:
            for partition, waiting in list(self._waiting.items()):
                if not waiting and not await self._fetch(partition, waiting):
                    del self._waiting[partition]
            if not self._waiting:
                return
            partition = min(
                self._waiting, key=lambda p: (self._waiting[p][0].timestamp, p.partition)
            )
            yield partition, self._waiting[partition].popleft()

    async def _fetch(self, partition: TopicPartition, waiting: deque[ConsumerRecord]) -> bool:
        """Get more records of the partition; False at the end of its stretch."""
        while not waiting:
            if await self._consumer.position(partition) >= self.ends[partition]:
                return False
            found = await self._consumer.getmany(partition, timeout_ms=_POLL_MS)
            for record in found.get(partition, ()):
                if record.offset < self.ends[partition]:
                    waiting.append(record)
        return True
