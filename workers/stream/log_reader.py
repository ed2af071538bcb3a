"""Reads all of some topics, for itself alone: what every worker must know in full.

A consumer group would share the partitions out; this is a reader without a group, which knows when it
has caught up.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from mode import Service

from attributary.schemas.connection import Connection
from attributary.schemas.errors import BrokerError
from attributary.workers.stream.closing import close
from attributary.workers.stream.ends import CatchUp, Fetched, log_ends


class LogReader(Service):
    """Follows topics; ``on_start`` returns once it has read what they held, or stands at their ends.

    ``reading`` is held while records are fetched and taken in.
    """

    def __init__(
        self,
        connection: Connection,
        topics: Sequence[str],
        *,
        from_beginning: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.reading = asyncio.Lock()
        self.partitions: list[TopicPartition] = []
        self._connection = connection
        self._followed = tuple(topics)
        self._from_beginning = from_beginning
        self._consumer: AIOKafkaConsumer | None = None

    @abstractmethod
    def add(self, record: ConsumerRecord) -> None:
        """Take a record, in its partition's order."""

    @property
    def consumer(self) -> AIOKafkaConsumer:
        """The consumer, once the service has started."""
        if self._consumer is None:
            raise RuntimeError("the service has not started")
        return self._consumer

    async def on_start(self) -> None:
        """Connect, and read up to where the topics end now."""
        consumer = self._consumer = lone_consumer(self._connection, wait_ms=100)
        await consumer.start()
        self.partitions = await topic_partitions(self._connection, self._followed)
        consumer.assign(self.partitions)
        if self._from_beginning:
            await consumer.seek_to_beginning(*self.partitions)
            await self.catch_up()
        else:
            for partition, end in (await log_ends(consumer, self.partitions)).items():
                consumer.seek(partition, end)

    async def on_stop(self) -> None:
        """Close the consumer."""
        if self._consumer is not None:
            await close(self._consumer.stop())

    async def catch_up(self) -> None:
        """Read up to where the topics end now. Outside ``on_start``, hold ``reading``."""
        fetched = Fetched(self.consumer, self.partitions)
        while not fetched.all():
            await self._read(timeout_ms=100)
        catch_up = CatchUp(self.consumer, self.partitions)
        while not await catch_up.reached():
            await self._read(timeout_ms=200)

    @Service.task
    async def _follow(self) -> None:
        while not self.should_stop:
            async with self.reading:
                await self._read(timeout_ms=200)

    async def _read(self, timeout_ms: int) -> None:
        for records in (await self.consumer.getmany(timeout_ms=timeout_ms)).values():
            for record in records:
                self.add(record)


def lone_consumer(connection: Connection, *, wait_ms: int) -> AIOKafkaConsumer:
    """Return a consumer without a group, for partitions that are assigned by hand; not started.

    ``wait_ms``: how long the broker lets a fetch wait for records.
    """
    return AIOKafkaConsumer(
        **connection.client_arguments(),
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=wait_ms,
        max_partition_fetch_bytes=16 * 2**20,
    )


async def topic_partitions(connection: Connection, topics: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions of topics, in order; BrokerError names one that does not exist.

    Asks for all topics: a consumer knows those that it reads, and naming one may create it.
    """
    admin = AIOKafkaAdminClient(**connection.client_arguments())
    try:
        await admin.start()
        known = {topic["topic"]: topic["partitions"] for topic in await admin.describe_topics()}
    finally:
        await admin.close()
    found = []
    for topic in topics:
        if topic not in known:
            raise BrokerError(
                f"the topic {topic} does not exist; run `attributary topics create` first"
            )
        found += sorted(TopicPartition(topic, part["partition"]) for part in known[topic])
    return found
