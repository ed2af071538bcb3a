"""Reads the control topics (models, grids) into the catalogue: all of them, before anything else runs.

Every worker needs every card and grid, from the first record on, and must know when it has caught up.
A consumer group would share the partitions out instead, so this is a reader without a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from mode import Service

from attributary.schemas.connection import Connection
from attributary.schemas.errors import BrokerError
from attributary.schemas.topics import Topics
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.closing import close
from attributary.workers.stream.ends import CatchUp


class ControlReader(Service):
    """Follows the control topics; ``on_start`` returns once the catalogue is complete."""

    def __init__(self, connection: Connection, topics: Topics, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.catalogue = ControlCatalogue()
        self._connection = connection
        self._topics = topics
        self._consumer: AIOKafkaConsumer | None = None

    async def on_start(self) -> None:
        """Read both topics up to where they end now."""
        consumer = self._consumer = AIOKafkaConsumer(
            **self._connection.client_arguments(),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        await consumer.start()
        partitions = await topic_partitions(
            self._connection, [self._topics.models, self._topics.grids]
        )
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        catch_up = CatchUp(consumer, partitions)
        while not await catch_up.reached():
            await self._read(consumer, timeout_ms=200)
        self.catalogue.complete()

    async def on_stop(self) -> None:
        """Close the consumer."""
        if self._consumer is not None:
            await close(self._consumer.stop())

    @Service.task
    async def _follow(self) -> None:
        assert self._consumer is not None  # noqa: S101
        while not self.should_stop:
            await self._read(self._consumer, timeout_ms=500)

    async def _read(self, consumer: AIOKafkaConsumer, timeout_ms: int) -> None:
        for partition, records in (await consumer.getmany(timeout_ms=timeout_ms)).items():
            for record in records:
                if partition.topic == self._topics.models:
                    self.catalogue.add_card(record.key, record.value, record.offset)
                else:
                    self.catalogue.add_grid(record.value)


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
