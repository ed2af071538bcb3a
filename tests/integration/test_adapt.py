"""The bridge between two topics of a real broker: killed and started again, every row is there once."""

from __future__ import annotations

import asyncio
import json
import signal
import uuid
from collections import Counter
from collections.abc import Sequence

import pytest
from aiokafka import AIOKafkaProducer
from command import Running, wait_until
from foreign import native, sample
from records import read_topic

from attributary.schemas.connection import Connection
from attributary.schemas.dead_letter import DeadLetter
from attributary.schemas.topics import Topics
from attributary.service.topics import create_topics

pytestmark = pytest.mark.integration


async def _send(connection: Connection, topic: str, lines: Sequence[bytes]) -> None:
    """Write recorded messages as they came, now."""
    producer = AIOKafkaProducer(**connection.client_arguments())
    await producer.start()
    try:
        for line in lines:
            found = json.loads(line)
            flat = found.get("headers", [])
            headers = [
                (name, value.encode()) for name, value in zip(flat[::2], flat[1::2], strict=True)
            ]
            await producer.send_and_wait(topic, found["payload"].encode(), headers=headers)
    finally:
        await producer.stop()


def _published(connection: Connection, topics: Topics) -> Counter[str]:
    return Counter(
        str(row["id"])
        for record in read_topic(connection, topics.rows)
        for row in json.loads(record.value)
    )


def test_a_killed_bridge_publishes_every_row_once(connection: Connection, topics: Topics) -> None:
    foreign = f"inference-{uuid.uuid4().hex[:8]}"
    asyncio.run(create_topics(connection, topics.model_copy(update={"requests": foreign})))
    lines = sample("kserve")
    prefix = topics.rows.removesuffix("rows")
    arguments = (
        *("--bootstrap", connection.bootstrap, "--prefix", prefix, "adapt", "--from", foreign),
        *("--format", "kserve", "--model", "churn", "--outputs", "p0,p1"),
    )
    # Offsets are hardly ever committed: what is published is known from the rows topic alone.
    variables = {"ATTRIBUTARY_ADAPT__COMMIT_SECONDS": "1000"}
    asyncio.run(_send(connection, foreign, lines[:21]))
    first = Running(*arguments, **variables)
    try:
        first.wait_for("ready")
        wait_until(lambda: len(_published(connection, topics)) >= 9, 20)
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        before = _published(connection, topics)
        asyncio.run(_send(connection, foreign, [*lines[21:], lines[0].replace(b"ce_id", b"ce_no")]))
        second = Running(*arguments, **variables)
        try:
            second.wait_for("ready")
            wait_until(lambda: len(_published(connection, topics)) >= 24, 30)
            wait_until(lambda: bool(read_topic(connection, topics.dead_letters)), 10)
            second.process.send_signal(signal.SIGTERM)
            assert second.wait(20) == 0
            assert "rows rejected" in second.output
            assert "1 other component" in second.output
        finally:
            second.close()
    finally:
        first.close()
    assert sum(before.values()) >= 9
    assert _published(connection, topics) == Counter(str(row.id) for row in native())
    (letter,) = read_topic(connection, topics.dead_letters)
    found = DeadLetter.from_headers(letter.headers)
    assert (found.topic, found.reason) == (foreign, "wrong_type")
    assert letter.value == json.loads(lines[0])["payload"].encode()
