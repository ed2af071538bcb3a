"""How far topics go, and how far a group has come in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from attributary.schemas.connection import Connection
from attributary.schemas.errors import BrokerError
from attributary.workers.stream.closing import close
from attributary.workers.stream.ends import log_ends
from attributary.workers.stream.log_reader import topic_partitions


class Extent(NamedTuple):
    """A partition's first offset, its end, and what the group has committed (None: nothing)."""

    first: int
    end: int
    committed: int | None

    @property
    def behind(self) -> int:
        """Offsets from what is committed to the end."""
        return self.end - max(self.committed or 0, self.first)


class LogExtents:
    """Asks for the extents of topics; ``async with`` connects. It reads no record and joins no group.

    ``group``: whose commits are told; None: nobody's.
    """

    def __init__(self, connection: Connection, topics: Sequence[str], group: str | None) -> None:
        self._connection = connection
        self._topics = topics
        self._group = group
        self._consumer: AIOKafkaConsumer | None = None
        self._partitions: list[TopicPartition] = []

    async def __aenter__(self) -> LogExtents:
        """Connect; BrokerError where the broker or a topic is missing."""
        self._partitions = await topic_partitions(self._connection, self._topics)
        consumer = AIOKafkaConsumer(
            **self._connection.client_arguments(),
            # Partitions are assigned by hand, so nobody joins: the group is asked for its commits alone.
            group_id=self._group,
            enable_auto_commit=False,
            fetch_max_wait_ms=20,
        )
        try:
            await consumer.start()
        except KafkaError as error:
            await close(consumer.stop())
            raise self._unreachable(error) from None
        consumer.assign(self._partitions)
        self._consumer = consumer
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        if self._consumer is not None:
            await close(self._consumer.stop())

    async def refresh(self) -> dict[TopicPartition, Extent]:
        """Return the extents as they are now; BrokerError where they cannot be read."""
        consumer, partitions = self._consumer, self._partitions
        if consumer is None:
            raise RuntimeError("use it as an async context manager")
        try:
            first = await consumer.beginning_offsets(partitions)
            consumer.resume(*partitions)
            ends = await log_ends(consumer, partitions)
            consumer.pause(*partitions)
            return {
                part: Extent(
                    first[part],
                    ends[part],
                    None if self._group is None else await consumer.committed(part),
                )
                for part in partitions
            }
        except KafkaError as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: KafkaError) -> BrokerError:
        return BrokerError(
            f"cannot read from the broker at {self._connection.bootstrap}: {error}; is it running?"
        )
