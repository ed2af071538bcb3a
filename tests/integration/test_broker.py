"""What the design takes for granted about a broker, on each broker that it runs on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import ConsumerRecord

from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics
from attributary.service.topics import MAX_MESSAGE_BYTES

pytestmark = pytest.mark.integration

_DEADLINE_SECONDS = 30.0
# The embedded broker's first join waits half of the session timeout.
_QUICK_GROUP = {"session_timeout_ms": 2000, "heartbeat_interval_ms": 300}


@asynccontextmanager
async def _producer(connection: Connection, **options: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(**connection.client_arguments(), acks="all", **options)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def _consumer(
    connection: Connection, *topics: str, **options: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        *topics,
        **connection.client_arguments(),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **options,
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def _read(consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []

    async def enough() -> bool:
        for records in (await consumer.getmany(timeout_ms=100)).values():
            found.extend(records)
        return len(found) >= count

    await _until(enough)
    return found


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not await holds():
        assert time.monotonic() < deadline, "it did not come about in time"
        await asyncio.sleep(0.02)


async def test_headers_key_and_order_arrive_as_sent(connection: Connection, topics: Topics) -> None:
    headers = [("content-type", b"application/json"), ("traceparent", b"00-ab"), ("empty", b"")]
    async with _producer(connection) as producer:
        for index in range(100):
            await producer.send(topics.rows, b"%d" % index, key=b"k", headers=headers, partition=1)
    async with _consumer(connection, topics.rows) as consumer:
        records = await _read(consumer, 100)
    assert [record.offset for record in records] == list(range(100))
    assert [record.value for record in records] == [b"%d" % index for index in range(100)]
    assert {record.partition for record in records} == {1}
    assert {record.key for record in records} == {b"k"}
    assert all(list(record.headers) == headers for record in records)


async def test_a_record_of_7_mb_passes_the_sketches_topic(
    connection: Connection, topics: Topics
) -> None:
    value = bytes(range(256)) * (7_000_000 // 256)
    async with _producer(connection, max_request_size=MAX_MESSAGE_BYTES) as producer:
        await producer.send_and_wait(topics.sketches, value, key=b"k")
    async with _consumer(connection, topics.sketches) as consumer:
        (record,) = await _read(consumer, 1)
    assert record.value == value


async def test_two_members_share_the_partitions_and_the_second_leaves(
    connection: Connection, topics: Topics
) -> None:
    every = {TopicPartition(topics.rows, partition) for partition in range(4)}
    options = {"group_id": f"{topics.rows}-group", **_QUICK_GROUP}
    async with _consumer(connection, topics.rows, **options) as first:
        await _until(lambda: _polled_assignment(first, every))
        async with _consumer(connection, topics.rows, **options) as second:

            async def shared() -> bool:
                await asyncio.gather(first.getmany(timeout_ms=50), second.getmany(timeout_ms=50))
                one, two = first.assignment(), second.assignment()
                return len(one) == len(two) == 2 and one | two == every

            await _until(shared)
        await _until(lambda: _polled_assignment(first, every))


async def _polled_assignment(consumer: AIOKafkaConsumer, expected: set[TopicPartition]) -> bool:
    await consumer.getmany(timeout_ms=50)
    return consumer.assignment() == expected


async def test_seek_lands_inside_a_batch(connection: Connection, topics: Topics) -> None:
    partition = TopicPartition(topics.rows, 0)
    async with _producer(connection, linger_ms=200, max_batch_size=2**20) as producer:
        sent = [
            await producer.send(topics.rows, b"%d" % index, partition=0) for index in range(500)
        ]
        await asyncio.gather(*sent)
    async with _consumer(connection) as consumer:
        consumer.assign([partition])
        for offset in (137, 499, 3):
            consumer.seek(partition, offset)
            record = await asyncio.wait_for(consumer.getone(partition), _DEADLINE_SECONDS)
            assert (record.offset, record.value) == (offset, b"%d" % offset)


async def test_rows_carry_the_brokers_time_where_it_appends_its_own(
    connection: Connection, topics: Topics, broker: Any
) -> None:
    """Kafka stamps the rows; the embedded broker leaves the sender's time, and marks it so."""
    long_ago = 1_500_000_000_000
    before = int(time.time() * 1000)
    async with _producer(connection) as producer:
        await producer.send_and_wait(topics.rows, b"x", partition=0, timestamp_ms=long_ago)
    async with _consumer(connection, topics.rows) as consumer:
        (record,) = await _read(consumer, 1)
    after = int(time.time() * 1000)
    if broker.kind == "kafka":
        assert record.timestamp_type == 1
        assert before - 1 <= record.timestamp <= after + 1
    else:
        assert record.timestamp_type == 0
        assert record.timestamp == long_ago


async def test_the_later_of_two_commits_is_where_a_new_member_starts(
    connection: Connection, topics: Topics
) -> None:
    partition = TopicPartition(topics.rows, 2)
    options = {"group_id": f"{topics.rows}-commits", **_QUICK_GROUP}
    async with _producer(connection) as producer:
        for index in range(20):
            await producer.send_and_wait(topics.rows, b"%d" % index, partition=2)
    async with _consumer(connection, topics.rows, **options) as consumer:
        assert await consumer.committed(partition) is None
        await _read(consumer, 20)
        await consumer.commit({partition: 15})
        await consumer.commit({partition: 7})  # a commit may move back
        assert await consumer.committed(partition) == 7
    async with _consumer(connection, topics.rows, **options) as consumer:
        assert await consumer.committed(partition) == 7
        assert [record.offset for record in await _read(consumer, 13)] == list(range(7, 20))


async def test_ends_and_positions_tell_when_a_log_is_read(
    connection: Connection, topics: Topics
) -> None:
    partition = TopicPartition(topics.grids, 0)
    async with _producer(connection) as producer:
        for key in (b"a", b"b", b"a"):
            await producer.send_and_wait(topics.grids, b"v", key=key)
    async with _consumer(connection) as consumer:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        assert (await consumer.end_offsets([partition]))[partition] == 3
        assert (await consumer.beginning_offsets([partition]))[partition] == 0
        await _read(consumer, 3)
        assert await consumer.position(partition) == 3
