"""Records of some topics as they come, outside any consumer group."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import ConsumerStoppedError, KafkaConnectionError, KafkaError

from attributary.schemas.connection import Connection
from attributary.schemas.errors import BrokerError
from attributary.service.reach import refusal

_FETCH_BYTES = 8 * 2**20
_POLL_MS = 200
_ASSIGNMENT_SECONDS = 10.0
_PROBE_SECONDS = 3.0


class Reader:
    """Reads topics from their end, or from their beginning; every reader sees every record.

    ``follow=False`` ends at what was there when it started. ``start_at`` gives the offsets to begin with
    where they are known; ``newest`` begins so many records before the end of every partition. ``upto``
    gives offsets to end at, for partitions that are not to be read to their end. Nothing is committed.
    """

    def __init__(
        self,
        connection: Connection,
        topics: Sequence[str],
        *,
        from_beginning: bool = False,
        follow: bool = True,
        start_at: Mapping[TopicPartition, int] | None = None,
        upto: Mapping[TopicPartition, int] | None = None,
        newest: int = 0,
    ) -> None:
        self._connection = connection
        self._topics = tuple(topics)
        self._from_beginning = from_beginning
        self._follow = follow
        self._start_at = start_at or {}
        self._upto = upto or {}
        self._newest = newest
        self._stopped = False
        self._consumer: AIOKafkaConsumer | None = None
        self._fetch: asyncio.Future[dict[TopicPartition, list[ConsumerRecord]]] | None = None
        self._firsts: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._sure: set[TopicPartition] = set(self._upto)

    async def start(self) -> None:
        """Connect and fix where reading begins; BrokerError: no broker there, or a topic missing."""
        # Partitions that are added later are read from their start: nothing in them was there before.
        consumer = AIOKafkaConsumer(
            **self._connection.client_arguments(),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_partition_fetch_bytes=_FETCH_BYTES,
            fetch_max_wait_ms=500 if self._follow else 50,
        )
        try:
            await consumer.start()
            # Lists what exists: asking for a topic by name would make some brokers create it.
            existing = await consumer.topics()
            missing = [name for name in self._topics if name not in existing]
            if missing:
                raise BrokerError(
                    f"the broker at {self._connection.bootstrap} has no topic "
                    f"{' or '.join(map(repr, missing))}: run `attributary topics create`, "
                    "or check the topics' prefix"
                )
            consumer.subscribe(self._topics)
            partitions = await _assigned(consumer)
            # Or a fetch that waits for records would hold up the questions about offsets.
            consumer.pause(*partitions)
            ends = await consumer.end_offsets(partitions)
            first = self._firsts = dict(await consumer.beginning_offsets(partitions))
            self._ends = {at: self._upto.get(at, end) for at, end in ends.items()}
            for partition, end in self._ends.items():
                default = first[partition] if self._from_beginning else end - self._newest
                consumer.seek(
                    partition, max(first[partition], self._start_at.get(partition, default))
                )
            consumer.resume(*partitions)
        except BaseException as error:
            with contextlib.suppress(KafkaError, OSError):
                await consumer.stop()
            if isinstance(error, KafkaConnectionError):
                # aiokafka does not say why.
                failure = await asyncio.to_thread(refusal, self._connection, _PROBE_SECONDS)
                raise BrokerError(
                    f"no broker answers at {self._connection.bootstrap}: start one with "
                    "`attributary up`, or name yours with --bootstrap host:port"
                    if failure is None
                    else f"cannot connect to the broker at {self._connection.bootstrap}: {failure}"
                ) from None
            if isinstance(error, KafkaError):
                raise BrokerError(f"{self._connection.bootstrap}: {error}") from None
            raise
        if self._stopped:  # meanwhile
            await consumer.stop()
        else:
            self._consumer = consumer

    @property
    def firsts(self) -> dict[TopicPartition, int]:
        """The first offset that the partitions held when it started."""
        return dict(self._firsts)

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Where the partitions ended when it started; sure once it has read to there."""
        return dict(self._ends)

    async def stop(self) -> None:
        """Disconnect."""
        self._stopped = True
        consumer, self._consumer = self._consumer, None
        if self._fetch is not None:
            self._fetch.cancel()
        if consumer is not None:
            await consumer.stop()

    async def read(self, limit: int = 500) -> list[ConsumerRecord] | None:
        """Return the next records, waiting for some; None at the end, or once stopped.

        Cancelling it loses nothing. BrokerError: the broker refuses to be read.
        """
        consumer = self._consumer
        try:
            while consumer is not None and not await self._finished(consumer):
                if self._fetch is None:
                    self._fetch = asyncio.ensure_future(
                        consumer.getmany(timeout_ms=_POLL_MS, max_records=limit)
                    )
                # A task of its own: a reader that is cancelled here finds its records next time, and
                # one that is stopped does not wait for ever, as getmany does on a stopped consumer.
                await asyncio.wait({self._fetch})
                fetch, self._fetch = self._fetch, None
                if fetch.cancelled():
                    return None
                found = fetch.result()
                self._learn_ends(consumer)
                records = [
                    record
                    for partition, some in found.items()
                    for record in some
                    if self._follow or record.offset < self._ends[partition]
                ]
                if records:
                    return records
        except ConsumerStoppedError:
            return None
        except KafkaError as error:
            raise BrokerError(f"reading from {self._connection.bootstrap}: {error}") from None
        return None

    def _learn_ends(self, consumer: AIOKafkaConsumer) -> None:
        """Take the ends from the first fetch: the embedded broker's own answer about the end counts
        only the first record of the last batch."""
        for partition in self._ends.keys() - self._sure:
            if (end := consumer.highwater(partition)) is not None:
                self._ends[partition] = max(self._ends[partition], end)
                self._sure.add(partition)

    async def _finished(self, consumer: AIOKafkaConsumer) -> bool:
        """Whether every partition has been read to where it ended at the start. Positions tell:
        the last record may be a marker that is never delivered."""
        if self._follow or self._sure != self._ends.keys():
            return False
        for partition, end in self._ends.items():
            if await consumer.position(partition) < end:
                return False
        return True


async def _assigned(consumer: AIOKafkaConsumer) -> list[TopicPartition]:
    """Return the partitions that the consumer gives itself once it knows the topics."""
    deadline = time.monotonic() + _ASSIGNMENT_SECONDS
    while not consumer.assignment():  # outside a group aiokafka tells nobody: look
        if time.monotonic() > deadline:
            raise BrokerError("the broker does not say which partitions the topics have")
        await asyncio.sleep(0)
    return list(consumer.assignment())
