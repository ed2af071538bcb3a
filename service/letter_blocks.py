"""Which rejected messages lie in blocks that no worker reads again."""

from __future__ import annotations

from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from attributary.schemas.connection import Connection
from attributary.schemas.dead_letter import Origin
from attributary.schemas.errors import BrokerError
from attributary.schemas.topics import Topics


class ClosedBlocks:
    """Where the oldest open block of every partition of the rows topic begins.

    A worker that starts, or takes a partition over, reads the open blocks again, by the settings and cards
    of then: it may accept by itself what was rejected before. Below the offsets that ingest has committed
    nothing is read again.
    """

    def __init__(self, topic: str, committed: dict[int, int]) -> None:
        self._topic = topic
        self._committed = committed

    def holds(self, origin: Origin) -> bool:
        """Whether the message lies in a closed block."""
        if origin.topic != self._topic:
            return True
        return origin.offset < self._committed.get(origin.partition, 0)

    @classmethod
    async def read(
        cls, connection: Connection, topics: Topics, partitions: Iterable[int]
    ) -> ClosedBlocks:
        """Ask the broker about these partitions; BrokerError where it does not answer."""
        consumer = AIOKafkaConsumer(
            **connection.client_arguments(),
            group_id=f"{topics.rows}-ingest",
            enable_auto_commit=False,
        )
        try:
            await consumer.start()
            # Assigned by hand: it asks the group's coordinator, and is no member that takes a share.
            places = [TopicPartition(topics.rows, number) for number in sorted(set(partitions))]
            consumer.assign(places)
            committed = {
                at.partition: offset
                for at in places
                if (offset := await consumer.committed(at)) is not None
            }
        except KafkaError as error:
            raise BrokerError(
                f"what ingest has committed cannot be read from {connection.bootstrap}: {error}"
            ) from None
        finally:
            await consumer.stop()
        return cls(topics.rows, committed)
