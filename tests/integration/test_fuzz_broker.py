"""Fuzzed messages through a real broker and a real worker: no crash, and every message accounted for.

``FUZZED_MESSAGES=100000 pytest tests/integration/test_fuzz_broker.py`` sends more of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from aiokafka import AIOKafkaProducer
from command import Running, wait_until
from fuzz import Fuzzed, record, rows_of
from records import read_topic
from stream_workers import settings_of

from attributary.schemas.attribution import WindowAttribution
from attributary.schemas.card import Lifetime, ModelCard
from attributary.schemas.connection import Connection
from attributary.schemas.dead_letter import DeadLetter
from attributary.schemas.errors import Reason
from attributary.schemas.topics import Topics
from attributary.service.accounting import read_accounting
from attributary.service.registry import send_card
from attributary.service.supervisor import READY

MESSAGES = int(os.environ.get("FUZZED_MESSAGES", "10000"))
GOOD_ROWS = 1_000
_PARTITIONS = 4
_PARTS = 6
_SECONDS = 60.0 + MESSAGES / 100

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120 + 2 * _SECONDS)]

Place = tuple[int, int]
"""Partition and offset."""


@pytest.fixture
def worker(connection: Connection, topics: Topics) -> Iterator[Running]:
    """A worker for ingest and merge that reads the topics."""
    running = Running(
        "stream",
        **settings_of(connection, topics),
        ATTRIBUTARY_INGEST__GRID_WAIT_SECONDS="1",
        ATTRIBUTARY_INGEST__FLUSH_SECONDS="0.5",
        # Several blocks in each part.
        ATTRIBUTARY_INGEST__BLOCK_OFFSETS="128",
        # Results of a hundred models can hold a busy machine's worker up for longer than a short session.
        ATTRIBUTARY_INGEST__SESSION_SECONDS="15",
        ATTRIBUTARY_MERGE__SESSION_SECONDS="15",
        ATTRIBUTARY_LOG_LEVEL="warning",
    )
    try:
        running.wait_for(READY)
        yield running
    finally:
        running.close()


async def _publish(
    connection: Connection, topic: str, messages: Sequence[Fuzzed]
) -> dict[Place, Fuzzed]:
    """Send the messages and return where each of them lies."""
    producer = AIOKafkaProducer(
        **connection.client_arguments(), acks="all", max_request_size=8 * 2**20, linger_ms=5
    )
    await producer.start()
    places: dict[Place, Fuzzed] = {}
    try:
        for start in range(0, len(messages), 1000):
            part = messages[start : start + 1000]
            sent = [
                await producer.send(
                    topic, m.value, m.key, partition=index % _PARTITIONS, headers=m.headers
                )
                for index, m in enumerate(part)
            ]
            for message, done in zip(part, await asyncio.gather(*sent), strict=True):
                places[done.partition, done.offset] = message
    finally:
        await producer.stop()
    return places


def _good(number: int) -> Fuzzed:
    row = {"model": "good", "features": {"a": number, "b": -number}, "outputs": number}
    return Fuzzed(json.dumps(row).encode(), [], None)


def test_fuzzed_messages_are_all_accounted_for(
    connection: Connection, topics: Topics, worker: Running
) -> None:
    rng = random.Random(MESSAGES)
    places: dict[Place, Fuzzed] = {}
    asyncio.run(send_card(connection, topics, ModelCard(model="good", windows=[Lifetime()])))
    for _ in range(_PARTS):
        part = [record(rng) for _ in range(MESSAGES // _PARTS)]
        places |= asyncio.run(_publish(connection, topics.rows, part))
        _settle(connection, topics, worker)
    rest = [_good(number) for number in range(GOOD_ROWS)]
    places |= asyncio.run(_publish(connection, topics.rows, rest))
    _settle(connection, topics, worker)

    _check_books(connection, topics, places)
    _check_good(connection, topics, worker)
    # A broker that has just begun has no coordinator yet: aiokafka says that, and asks again.
    assert not [line for line in worker.lines if "Traceback" in line or "ERROR attributary" in line]
    assert worker.process.poll() is None


def _settle(connection: Connection, topics: Topics, worker: Running) -> None:
    """Wait until every message that was published is read and counted."""
    deadline = time.monotonic() + _SECONDS
    while not (found := asyncio.run(read_accounting(connection, topics))).settled:
        assert worker.process.poll() is None, worker.output[-5000:]
        assert time.monotonic() < deadline, f"{found}\n{worker.output[-5000:]}"
        time.sleep(0.3)


def _check_books(connection: Connection, topics: Topics, places: dict[Place, Fuzzed]) -> None:
    """Every message became rows or a dead letter with its bytes, and the manifests say the same."""
    rejected: Counter[Place] = Counter()
    whole: set[Place] = set()
    known: set[tuple[Place, tuple[int, ...]]] = set()
    for found in read_topic(connection, topics.dead_letters):
        letter = DeadLetter.from_headers(found.headers)
        place = (letter.partition, letter.offset)
        message = places[place]
        assert (found.value or None, found.key or None) == (
            message.value or None,
            message.key or None,
        )
        kept = [(name, value) for name, value in found.headers if (name, value) in message.headers]
        assert Counter(kept) >= Counter(
            header for header in message.headers if not header[0].startswith("attributary-")
        )
        assert letter.reason in set(Reason)
        assert letter.message
        if (place, letter.rows) in known:
            continue  # sent again after a flush that was not acknowledged, or by the next owner
        known.add((place, letter.rows))
        rejected[place] += letter.count
        if not letter.rows:
            whole.add(place)
    accepted = 0
    for place, message in places.items():
        rows = rows_of(message)
        if rows is None:
            assert place in whole, message
        elif place not in whole:  # all its rows count but those that are named
            assert rejected[place] <= rows, message
            accepted += rows - rejected[place]
    books = asyncio.run(read_accounting(connection, topics))
    assert books.settled
    assert (books.accepted, books.rejected) == (accepted, sum(rejected.values()))
    assert sum(source.covered for source in books.sources.values()) == len(places)
    assert books.accepted > len(places) // 4
    assert set(books.rejected_by_reason) > {
        Reason.EMPTY, Reason.NOT_DECODABLE, Reason.NO_MODEL, Reason.WRONG_TYPE, Reason.BAD_WEIGHT,
        Reason.FEATURES_MISSING, Reason.OUTPUTS_MISSING, Reason.BAD_TIME, Reason.FAR_FUTURE,
    }  # fmt: skip


def _check_good(connection: Connection, topics: Topics, worker: Running) -> None:
    books = asyncio.run(read_accounting(connection, topics))
    assert books.models["good"].accepted == GOOD_ROWS
    assert books.models["good"].rows_rejected == 0

    def published() -> bool:
        newest = None
        for found in read_topic(connection, topics.attributions):
            if found.key == b"good":
                newest = WindowAttribution.from_bytes(found.value)
        return newest is not None and newest.accounting.rows == GOOD_ROWS

    wait_until(published, _SECONDS, lambda: worker.output[-5000:])
