"""Rows that the log drops before they are read: a gap on every book, and counting goes on behind them."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Iterator, Sequence

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from broker_embedded import EmbeddedTestBroker
from broker_kafka import KafkaBroker
from command import Running, wait_until
from records import read_topic
from stream_workers import Workers, delete_records

from attributary.schemas.attribution import WindowAttribution
from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics
from attributary.service.accounting import Accounting, read_accounting

pytestmark = pytest.mark.integration

_SETTINGS = {
    "ATTRIBUTARY_INGEST__BLOCK_OFFSETS": "64",
    "ATTRIBUTARY_INGEST__FLUSH_SECONDS": "0.2",
    "ATTRIBUTARY_INGEST__GRID_WAIT_SECONDS": "0.5",
    "ATTRIBUTARY_MERGE__PUBLISH_SECONDS": "0.2",
}
_SECONDS = 30.0


class Log(Workers):
    """The rows topic's first partition, and the worker that reads it."""

    def __init__(self, connection: Connection, topics: Topics) -> None:
        super().__init__(connection, topics, _SETTINGS)
        self.partition = TopicPartition(topics.rows, 0)

    def publish(self, numbers: Sequence[int]) -> None:
        """Write rows one a message, all to one partition."""

        async def send() -> None:
            producer = AIOKafkaProducer(**self.connection.client_arguments(), acks="all")
            await producer.start()
            try:
                rows = (
                    {"model": "m", "features": {"a": n, "b": -n}, "outputs": n} for n in numbers
                )
                values = [json.dumps(row).encode() for row in rows]
                sent = [await producer.send(*self.partition[:1], v, partition=0) for v in values]
                await asyncio.gather(*sent)
            finally:
                await producer.stop()

        asyncio.run(send())

    def delete_before(self, offset: int) -> None:
        """Let the broker drop offsets."""
        delete_records(self.connection, {self.partition: offset})

    def accounting(self) -> Accounting:
        """Return the books as they are told from outside."""
        return asyncio.run(read_accounting(self.connection, self.topics))

    def wait_for(self, accepted: int, gaps: int) -> None:
        """Wait until the books and the newest lifetime hold these numbers and nothing is left to read."""

        def holds() -> bool:
            found = self.accounting()
            return (found.accepted, found.gaps, found.lag, found.waiting) == (accepted, gaps, 0, 0)

        wait_until(holds, _SECONDS, lambda: f"{self.accounting()}\n{self.running[-1].output}")

        def published() -> bool:
            newest = None
            for record in read_topic(self.connection, self.topics.attributions):
                message = WindowAttribution.from_bytes(record.value)
                newest = message if message.window.kind == "lifetime" else newest
            return newest is not None and (
                newest.accounting.rows,
                newest.accounting.rows_accepted,
                newest.accounting.gaps,
            ) == (accepted, accepted, gaps)

        wait_until(published, _SECONDS, lambda: self.running[-1].output)


@pytest.fixture
def log(
    broker: EmbeddedTestBroker | KafkaBroker, connection: Connection, topics: Topics
) -> Iterator[Log]:
    """An empty log; its workers are gone afterwards."""
    if broker.kind == "embedded":
        pytest.skip("the embedded broker deletes no records: --broker kafka")
    made = Log(connection, topics)
    try:
        yield made
    finally:
        made.close()


def _says(worker: Running, lost: int, before: int) -> bool:
    text = f"up to {before}, {lost} offsets were removed from the log before"
    return any(re.search(text, line) for line in worker.lines)


def test_what_is_deleted_while_a_worker_is_away_and_while_it_reads_is_a_gap(log: Log) -> None:
    first = log.start()
    log.publish(range(100))
    log.wait_for(accepted=100, gaps=0)
    log.delete_before(100)  # all of it was read: nothing is lost
    log.publish(range(100, 110))
    log.wait_for(accepted=110, gaps=0)
    first.process.send_signal(signal.SIGTERM)
    assert first.wait(15.0) == 0

    log.publish(range(110, 200))  # offsets 110 to 149 will be lost
    log.delete_before(150)
    second = log.start()
    wait_until(lambda: _says(second, 86, 150), _SECONDS, lambda: second.output)
    log.publish(range(200, 260))  # closes the block behind the hole
    log.wait_for(accepted=220, gaps=40)

    # A worker that stands still while it owns the partition: it is shorter than its session.
    second.process.send_signal(signal.SIGSTOP)
    log.publish([260])  # the fetch that it waits on is answered with this
    log.publish(range(261, 280))
    log.delete_before(275)
    second.process.send_signal(signal.SIGCONT)
    wait_until(lambda: _says(second, 14, 275), _SECONDS, lambda: second.output)
    log.publish(range(280, 340))
    log.wait_for(accepted=286, gaps=54)
