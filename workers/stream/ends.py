"""Where partitions end. The embedded broker's own answer counts one record of the last batch only; what
comes with a fetch, the high watermark, is right on every broker."""

from __future__ import annotations

from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, TopicPartition


class CatchUp:
    """Whether a consumer has read what its partitions held when it began to read them."""

    def __init__(self, consumer: AIOKafkaConsumer, partitions: Iterable[TopicPartition]) -> None:
        self._consumer = consumer
        self._targets: dict[TopicPartition, int | None] = dict.fromkeys(partitions)

    async def reached(self) -> bool:
        """Say whether every partition is read to the end that its first fetch told of."""
        for partition, target in list(self._targets.items()):
            if target is None:
                target = self._targets[partition] = self._consumer.highwater(partition)
            # By position: the last record may be a marker that is never delivered.
            if target is not None and await self._consumer.position(partition) >= target:
                del self._targets[partition]
        return not self._targets


class Fetched:
    """Whether the broker has answered a fetch of every partition since this was made: then its high watermark
    is at least as new."""

    def __init__(self, consumer: AIOKafkaConsumer, partitions: Iterable[TopicPartition]) -> None:
        self._consumer = consumer
        self._before = {part: consumer.last_poll_timestamp(part) for part in partitions}

    def all(self) -> bool:
        """Say whether every partition has been fetched."""
        latest = self._consumer.last_poll_timestamp
        return all(latest(part) not in (None, before) for part, before in self._before.items())


async def log_ends(
    consumer: AIOKafkaConsumer, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the end offset of each assigned partition. Leaves the positions there."""
    ends = dict(await consumer.end_offsets(partitions))
    for partition, end in ends.items():
        consumer.seek(partition, end)
    fetched = Fetched(consumer, partitions)
    while not fetched.all():
        await consumer.getmany(*partitions, timeout_ms=100)
    return {partition: max(end, consumer.highwater(partition)) for partition, end in ends.items()}
