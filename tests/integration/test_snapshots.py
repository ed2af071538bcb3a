"""A merge that is killed goes on from its snapshot, though the log that made it is gone."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from broker_embedded import EmbeddedTestBroker
from broker_kafka import KafkaBroker
from command import wait_until
from records import read_topic
from stream_workers import Workers, delete_records

from attributary.schemas.attribution import WindowAttribution
from attributary.schemas.connection import Connection
from attributary.schemas.sketch import decode_sketch
from attributary.schemas.topics import Topics
from attributary.service.accounting import read_accounting
from attributary.workers.maths.cir import cir
from attributary.workers.stream.snapshot_log import SnapshotShelf

pytestmark = pytest.mark.integration

_SETTINGS = {
    "ATTRIBUTARY_INGEST__BLOCK_OFFSETS": "64",
    "ATTRIBUTARY_INGEST__FLUSH_SECONDS": "0.2",
    "ATTRIBUTARY_INGEST__GRID_WAIT_SECONDS": "0.5",
    "ATTRIBUTARY_MERGE__PUBLISH_SECONDS": "0.2",
    "ATTRIBUTARY_MERGE__SNAPSHOT_SECONDS": "0.5",
    "ATTRIBUTARY_LOG_LEVEL": "info",
}
_SECONDS = 40.0
_PARTITIONS = 4


class Stage(Workers):
    """One test's topics and workers. Rows are a second of event time apart."""

    def __init__(
        self, broker: EmbeddedTestBroker | KafkaBroker, connection: Connection, topics: Topics
    ) -> None:
        super().__init__(connection, topics, _SETTINGS)
        self._deletes = broker.kind == "kafka"
        self.began = time.time() - 7200
        self.X = np.random.default_rng(4).standard_normal((2000, 2))
        self.Y = self.X @ [1.0, -0.5] + np.random.default_rng(5).standard_normal(2000)

    def publish(self, start: int, stop: int) -> None:
        """Write rows of these numbers in turn to all partitions."""

        async def send() -> None:
            producer = AIOKafkaProducer(**self.connection.client_arguments(), acks="all")
            await producer.start()
            try:
                for n in range(start, stop):
                    features = dict(zip("ab", self.X[n].tolist(), strict=True))
                    row = {"model": "m", "features": features, "outputs": self.Y[n]}
                    row["time"] = self.began + n
                    await producer.send(
                        self.topics.rows, json.dumps(row).encode(), partition=n % _PARTITIONS
                    )
                await producer.flush()
            finally:
                await producer.stop()

        asyncio.run(send())

    def messages(self) -> list[WindowAttribution]:
        """Return all attributions."""
        records = read_topic(self.connection, self.topics.attributions)
        return [WindowAttribution.from_bytes(record.value) for record in records]

    def lifetime(self, rows: int) -> WindowAttribution:
        """Wait until the newest lifetime counts so many rows, and return it."""
        newest: list[WindowAttribution] = []

        def holds() -> bool:
            found = [m for m in self.messages() if m.window.kind == "lifetime"]
            newest[:] = found[-1:]
            accounted = [(m.accounting.rows, m.accounting.rows_accepted) for m in newest]
            return accounted == [(rows, rows)]

        wait_until(
            holds,
            _SECONDS,
            lambda: "\n".join(
                [
                    f"{[m.accounting for m in newest]}",
                    f"{asyncio.run(read_accounting(self.connection, self.topics))}",
                    *(worker.output for worker in self.running),
                ]
            ),
        )
        return newest[0]

    def snapshots(self) -> dict[int, tuple[int, int]]:
        """Return the position and the start of the newest snapshot of every partition."""
        shelves = [SnapshotShelf(partition) for partition in range(_PARTITIONS)]
        for record in read_topic(self.connection, self.topics.snapshots):
            for shelf in shelves:
                shelf.add(record.key, record.value)
        return {
            shelf.partition: (index.position, index.start)
            for shelf in shelves
            for index, _ in list(shelf.newest_first())[:1]
        }

    def rows_of_whole_blocks_before(self, starts: dict[int, int]) -> int:
        """Return the rows of sealed blocks' sketches before these offsets."""
        found = 0
        for record in read_topic(self.connection, self.topics.sketches):
            if record.offset < starts[record.partition] and record.key.startswith(b"f|"):
                found += decode_sketch(record.value)[0].rows
        return found

    def delete_sketches(self, before: dict[int, int]) -> None:
        """Let the broker drop sketches; the embedded one cannot, and keeps them."""
        if self._deletes:
            sketches = self.topics.sketches
            delete_records(
                self.connection, {TopicPartition(sketches, p): at for p, at in before.items() if at}
            )

    def check_scores(self, message: WindowAttribution, rows: int) -> None:
        """Compare with the batch computation, and the books with what was sent."""
        accounting = message.accounting
        assert (accounting.rows, accounting.rows_accepted, accounting.gaps) == (rows, rows, 0)
        batch = cir(self.X[:rows], self.Y[:rows, None])
        found = {feature.name: feature.score for feature in message.features}
        for index, name in enumerate("ab"):
            assert found[name] == pytest.approx(batch.score[0, index], abs=1e-3)


@pytest.fixture
def stage(
    broker: EmbeddedTestBroker | KafkaBroker, connection: Connection, topics: Topics
) -> Iterator[Stage]:
    """Topics of one's own; workers are gone afterwards."""
    made = Stage(broker, connection, topics)
    try:
        yield made
    finally:
        made.close()


def _finals(messages: Sequence[WindowAttribution]) -> dict[int, set[bytes]]:
    found: dict[int, set[bytes]] = {}
    for message in messages:
        if message.window.kind == "tumbling":
            body = message.model_dump_json(exclude={"computed_at", "watermark", "accounting"})
            found.setdefault(message.window.start, set()).add(body.encode())
    return found


def test_a_lifetime_survives_the_retention_of_the_sketches_and_a_kill(stage: Stage) -> None:
    first = stage.start()
    stage.publish(0, 400)
    stage.lifetime(400)
    stage.publish(400, 600)
    before = stage.lifetime(600)
    stage.check_scores(before, 600)
    wait_until(lambda: len(stage.snapshots()) == _PARTITIONS, _SECONDS)
    reached = stage.snapshots()
    # The next one covers all that has been published by now.
    wait_until(
        lambda: all(
            position > reached[partition][0]
            for partition, (position, _) in stage.snapshots().items()
        ),
        _SECONDS,
    )
    first.process.kill()
    first.wait(10.0)
    starts = {partition: start for partition, (_, start) in stage.snapshots().items()}
    assert stage.rows_of_whole_blocks_before(starts) > 50
    stage.delete_sketches(starts)
    second = stage.start()
    second.wait_for("goes on from the snapshot at")
    stage.publish(600, 1000)
    after = stage.lifetime(1000)
    stage.check_scores(after, 1000)
    assert after.window.start == before.window.start
    assert "a snapshot was" not in second.output
    assert "gone from the log" not in second.output
    # What is published again after the snapshot is the same, and nothing else is missing or repeated.
    finals = _finals(stage.messages())
    assert len(finals) > 4
    assert all(len(bodies) == 1 for bodies in finals.values())
