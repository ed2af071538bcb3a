"""Reading the accounting from a real broker: incremental, from any partition, with clear errors."""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaProducer

from attributary.schemas.connection import Connection
from attributary.schemas.errors import BrokerError
from attributary.schemas.manifest import Manifest, ModelCount
from attributary.schemas.topics import Topics
from attributary.service.accounting import AccountingReader, read_accounting
from attributary.service.topics import check_topics

pytestmark = pytest.mark.integration


def manifest(topics: Topics, block: int, upto: int) -> Manifest:
    return Manifest(
        topic=topics.rows,
        partition=0,
        block=block,
        upto=upto,
        previous=None,
        sealed=False,
        partitions=4,
        end_offset=upto,
        models={"m": ModelCount(accepted={0: upto - block})},
    )


async def test_it_follows_the_manifests_and_passes_over_the_sketches(
    connection: Connection, topics: Topics
) -> None:
    await check_topics(connection, topics)
    async with (
        AIOKafkaProducer(**connection.client_arguments()) as producer,
        AccountingReader(connection, topics) as first,
        AccountingReader(connection, topics, partition=None) as shortest,
    ):
        assert (await first.refresh()).settled
        assert (await shortest.refresh()).settled
        for _ in range(5):
            await producer.send_and_wait(topics.rows, b"{}", partition=0)
        assert (await first.refresh()).lag == 5

        async def send(told: Manifest) -> None:
            await producer.send_and_wait(topics.sketches, b"no manifest", b"s|x", partition=0)
            for partition in range(2):
                await producer.send_and_wait(
                    topics.sketches, told.to_bytes(), told.key, partition=partition
                )

        await send(manifest(topics, 0, 3))
        half = await first.refresh()
        assert (half.accepted, half.lag, half.settled) == (3, 2, False)
        await send(manifest(topics, 0, 5))
        done = await first.refresh()
        assert (done.accepted, done.lag, done.gaps, done.settled) == (5, 0, 0, True)
        again = await read_accounting(connection, topics, partition=1)
        # A copy in another partition has a timestamp of its own.
        assert (again.models, again.sources) == (done.models, done.sources)
        assert again.recent.models == done.recent.models


async def test_none_reads_a_partition_without_sketches(
    connection: Connection, topics: Topics
) -> None:
    told = manifest(topics, 0, 1)
    async with AIOKafkaProducer(**connection.client_arguments()) as producer:
        await producer.send_and_wait(topics.rows, b"{}", partition=0)
        for partition in range(4):
            if partition != 3:
                await producer.send_and_wait(
                    topics.sketches, b"a sketch", b"s|x", partition=partition
                )
            await producer.send_and_wait(
                topics.sketches, told.to_bytes(), told.key, partition=partition
            )
    async with AccountingReader(connection, topics, partition=None) as reader:
        assert (await reader.refresh()).accepted == 1
        assert reader.partition == 3


async def test_a_missing_topic_is_one_line_with_its_fix(
    connection: Connection, topic_names: Topics
) -> None:
    with pytest.raises(BrokerError, match="attributary topics create") as error:
        await read_accounting(connection, topic_names)
    assert topic_names.rows in str(error.value)


async def test_a_broker_that_is_not_there_is_one_line() -> None:
    with pytest.raises(BrokerError, match="is it running") as error:
        await read_accounting(Connection(bootstrap="127.0.0.1:1"), Topics())
    assert "\n" not in str(error.value)
