"""What fills the board: the results as they come, and now and then the ends of the topics."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from attributary.schemas.connection import Connection
from attributary.schemas.errors import BrokerError
from attributary.schemas.topics import Topics
from attributary.service.subscription import subscribe
from attributary.service.top.board import Board
from attributary.workers.stream.closing import close
from attributary.workers.stream.ends import log_ends
from attributary.workers.stream.log_reader import topic_partitions

# How many of the messages that are there already are read: they hold every busy model's newest windows.
BACKLOG = 1000


async def follow_results(
    board: Board, connection: Connection, topics: Topics, model: str | None, *, follow: bool
) -> None:
    """Feed results into the board: the newest that are there, and with ``follow`` those to come."""
    async with subscribe(
        connection,
        model=model,
        kinds=("attributions", "drift"),
        topics=topics,
        newest=BACKLOG,
        follow=follow,
    ) as messages:
        async for message in messages:
            board.add(message)
            board.skipped = messages.skipped
            await asyncio.sleep(0)  # a burst must not hold up the keys
        board.skipped = messages.skipped


class EndsReader:
    """Says how far the topics of rows and dead letters go; ``async with`` connects."""

    def __init__(self, connection: Connection, topics: Topics) -> None:
        self._connection = connection
        self._topics = topics
        self._consumer: AIOKafkaConsumer | None = None
        self._rows: list[TopicPartition] = []
        self._dead: list[TopicPartition] = []

    async def __aenter__(self) -> EndsReader:
        """Connect; BrokerError where the broker or a topic is missing."""
        rows, dead = self._topics.rows, self._topics.dead_letters
        found = await topic_partitions(self._connection, [rows, dead])
        self._rows = [part for part in found if part.topic == rows]
        self._dead = [part for part in found if part.topic == dead]
        consumer = AIOKafkaConsumer(
            **self._connection.client_arguments(),
            # The group is only asked for its commits: partitions are assigned by hand, nobody joins.
            group_id=f"{rows}-ingest",
            enable_auto_commit=False,
            fetch_max_wait_ms=20,
        )
        try:
            await consumer.start()
        except KafkaError as error:
            await close(consumer.stop())
            raise self._unreachable(error) from None
        consumer.assign(found)
        self._consumer = consumer
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        if self._consumer is not None:
            await close(self._consumer.stop())

    async def refresh(self, board: Board) -> None:
        """Write the ends, and how far ingest has committed, onto the board; BrokerError where it fails."""
        consumer = self._consumer
        if consumer is None:
            raise RuntimeError("use the reader as an async context manager")
        try:
            first = await consumer.beginning_offsets([*self._rows, *self._dead])
            consumer.resume(*self._rows, *self._dead)
            ends = await log_ends(consumer, [*self._rows, *self._dead])
            consumer.pause(*self._rows, *self._dead)  # no row is wanted, only how many there are
            commits = {part: await consumer.committed(part) for part in self._rows}
        except KafkaError as error:
            raise self._unreachable(error) from None
        board.dead_letters = sum(ends[part] - first[part] for part in self._dead)
        board.rows_ends = {_name(part): ends[part] for part in self._rows}
        board.committed = {
            _name(part): max(offset or 0, first[part]) for part, offset in commits.items()
        }

    def _unreachable(self, error: KafkaError) -> BrokerError:
        return BrokerError(
            f"cannot read from the broker at {self._connection.bootstrap}: {error}; is it running?"
        )


def _name(part: TopicPartition) -> str:
    return f"{part.topic}/{part.partition}"
