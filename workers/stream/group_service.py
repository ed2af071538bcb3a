"""What ingest and merge share: a consumer in a group, a producer, and an orderly hand-over."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from mode import Service

from attributary.schemas.connection import Connection
from attributary.workers.stream.closing import close
from attributary.workers.stream.options import GroupOptions
from attributary.workers.stream.producer import AcknowledgedProducer

_log = logging.getLogger(__name__)


class GroupService(Service, ConsumerRebalanceListener):
    """Shares the partitions of some topics with the other workers of its group.

    aiokafka returns no records while a rebalance is under way, and what it returns is taken in before
    anything else runs; ``lock`` keeps what waits for the broker apart from rebalances. So no partition
    is worked on by two sides of a hand-over.
    """

    def __init__(
        self,
        connection: Connection,
        topics: Sequence[str],
        group: str,
        options: GroupOptions,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.joined = asyncio.Event()
        self.lock = asyncio.Lock()
        self.producer = AcknowledgedProducer(connection)
        self._subscribed = list(topics)
        self._consumer_arguments: dict[str, Any] = {
            **connection.client_arguments(),
            "group_id": group,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": round(options.session_seconds * 1000),
            "heartbeat_interval_ms": round(options.session_seconds * 100),
            # A waiting fetch holds up other questions to the broker.
            "fetch_max_wait_ms": 100,
            "fetch_max_bytes": 32 * 2**20,
            "max_partition_fetch_bytes": 16 * 2**20,
        }
        self._consumer: AIOKafkaConsumer | None = None

    @property
    def consumer(self) -> AIOKafkaConsumer:
        """The consumer, once the service has started."""
        if self._consumer is None:
            raise RuntimeError("the service has not started")
        return self._consumer

    async def on_start(self) -> None:
        """Connect and join the group; ``joined`` is set with the first assignment."""
        await self.producer.start()
        self._consumer = AIOKafkaConsumer(**self._consumer_arguments)
        await self._consumer.start()
        self._consumer.subscribe(self._subscribed, listener=self)

    async def on_stop(self) -> None:
        """Finish what is at hand and leave the group."""
        if self._consumer is not None:
            async with self.lock:
                await self.finish()
            await close(self._consumer.stop())
        await close(self.producer.stop())

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Hand over."""
        async with self.lock:
            await self._or_crash(list(revoked), taking=False)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Take over."""
        partitions = list(assigned)
        # The assignment is visible already: without this, a poll could run ahead of the seeks.
        self.consumer.pause(*partitions)
        async with self.lock:
            await self._or_crash(partitions, taking=True)
        self.consumer.resume(*partitions)
        named = ", ".join(f"{part.topic}/{part.partition}" for part in sorted(partitions))
        _log.info("%s reads %s", type(self).__name__, named or "nothing, for now")
        self.joined.set()

    async def _or_crash(self, partitions: list[TopicPartition], *, taking: bool) -> None:
        # A listener's exception is only logged by aiokafka, and the partition would be read for nobody.
        try:
            await (self.take_over if taking else self.hand_over)(partitions)
        except Exception as error:
            await self.crash(error)
            raise

    @abstractmethod
    async def take_over(self, partitions: list[TopicPartition]) -> None:
        """Begin with partitions: seek to where reading starts."""

    @abstractmethod
    async def hand_over(self, partitions: list[TopicPartition]) -> None:
        """Finish with partitions that another worker may get."""

    @abstractmethod
    async def finish(self) -> None:
        """Do what is left before the worker stops."""
