"""The doctor on a real broker: well where all is well, and each fault found that is put in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from command import Running, run
from results import LIFETIME, attribution
from stream_workers import settings_of

from attributary.schemas.card import ModelCard
from attributary.schemas.connection import Connection
from attributary.schemas.manifest import Manifest, ModelCount
from attributary.schemas.topics import Topics
from attributary.service.accounting import read_accounting
from attributary.service.doctor.examine import examine
from attributary.service.doctor.finding import Finding
from attributary.service.embedded import free_port
from attributary.service.settings import Settings, load_settings
from attributary.service.supervisor import READY
from attributary.service.topics import create_topics

pytestmark = pytest.mark.integration


@pytest.fixture
def settings(connection: Connection, topic_names: Topics) -> Settings:
    """Settings that name this test's topics; they need not exist."""
    prefix = topic_names.rows.removesuffix("rows")
    return load_settings(
        None, {"connection": {"bootstrap": connection.bootstrap}, "topic_prefix": prefix}
    )


async def examined(settings: Settings, *, write: bool = False) -> list[Finding]:
    found: list[Finding] = []
    await examine(settings, found.append, write=write, seconds=30.0)
    return found


def failures(found: list[Finding]) -> dict[str, str]:
    return {each.check: each.message for each in found if each.level == "fail"}


async def send(connection: Connection, topic: str, *values: bytes, **fields: Any) -> None:
    async with AIOKafkaProducer(**connection.client_arguments()) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, **fields)


def manifest(topics: Topics, block: int, upto: int, **counts: Any) -> Manifest:
    return Manifest(
        topic=topics.rows, partition=0, block=block, upto=upto, previous=None, sealed=True,
        partitions=4, end_offset=upto, models={"m": ModelCount(accepted={0: upto - block}, **counts)},
    )  # fmt: skip


async def send_manifests(connection: Connection, topics: Topics, *told: Manifest) -> None:
    for each in told:
        for partition in range(4):
            await send(
                connection, topics.sketches, each.to_bytes(), key=each.key, partition=partition
            )


def test_no_broker_fails_alone_and_in_json() -> None:
    address = f"127.0.0.1:{free_port()}"
    done = run("--bootstrap", address, "doctor", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, done.stderr, told["ok"]) == (1, "", False)
    assert [check["check"] for check in told["checks"]] == ["versions", "broker"]
    assert address in told["checks"][1]["message"]
    assert "attributary up" in told["checks"][1]["fix"]


async def test_missing_topics_are_named(settings: Settings, topics: Topics) -> None:
    other = settings.model_copy(
        update={"topics": topics.model_copy(update={"drift": f"{topics.drift}-other"})}
    )
    found = await examined(other)
    assert f"{topics.drift}-other" in failures(found)["topics"]
    assert topics.rows not in failures(found)["topics"]
    checks = {each.check for each in found}
    assert {"permissions", "lag", "accounting", "grids", "results"} <= checks


async def test_wrong_settings_of_a_topic_are_found(
    settings: Settings, connection: Connection
) -> None:
    names = settings.topics
    admin = AIOKafkaAdminClient(**connection.client_arguments())
    await admin.start()
    try:
        await admin.create_topics(
            [
                NewTopic(names.models, 1, 1, topic_configs={"cleanup.policy": "delete"}),
                NewTopic(names.snapshots, 1, 1, topic_configs={"cleanup.policy": "compact"}),
                NewTopic(names.sketches, 4, 1, topic_configs={"max.message.bytes": "1000000"}),
            ]
        )
    finally:
        await admin.close()
    await create_topics(connection, names)
    found = [each.message for each in await examined(settings) if each.level == "fail"]
    assert f"{names.models} has cleanup.policy=delete, needs compact" in found
    assert any("max.message.bytes=1000000" in each for each in found)
    assert any(f"{names.snapshots} has 1 partitions, fewer" in each for each in found)


async def test_rows_and_requests_that_nobody_reads(
    settings: Settings, connection: Connection, topics: Topics
) -> None:
    await send(connection, topics.rows, *[b"{}"] * 3)
    await send(connection, topics.requests, b"{}")
    found = failures(await examined(settings))
    assert found["lag"] == "3 messages wait and no ingest worker runs"
    assert found["requests"] == "1 requests wait and no request worker runs"


async def test_a_worker_that_reads_nothing_is_stuck(
    settings: Settings, connection: Connection, topics: Topics
) -> None:
    await send(connection, topics.rows, *[b"{}"] * 3)
    worker = AIOKafkaConsumer(
        topics.rows, **connection.client_arguments(), group_id=f"{topics.rows}-ingest",
        session_timeout_ms=6000, heartbeat_interval_ms=500, auto_offset_reset="earliest",
    )  # fmt: skip
    await worker.start()
    try:
        found = await examined(settings)
    finally:
        await worker.stop()
    assert "ingest is stuck" in failures(found)["lag"]
    assert any("ingest: 1 worker" in each.message for each in found)


async def test_a_gap_rejections_and_rows_without_a_grid(
    settings: Settings, connection: Connection, topics: Topics
) -> None:
    await send(connection, topics.rows, *[b"{}"] * 9, partition=0)
    await send_manifests(
        connection,
        topics,
        manifest(topics, 0, 4),
        manifest(topics, 6, 9, rejected={"wrong_type": 1}, waiting=2),
    )
    await send(connection, topics.attributions, attribution(LIFETIME).to_bytes(), b"no message")
    found = await examined(settings)
    assert "2 offsets are in no manifest" in failures(found)["accounting"]
    warned = [each.message for each in found if each.level == "warn"]
    assert any("12.5% of the rows are rejected: wrong_type 1" in each for each in warned)
    assert any("2 rows wait for a grid" in each for each in warned)
    assert any("1 of the newest messages" in each for each in warned)
    assert any(each.check == "snapshots" for each in found)


@pytest.fixture
def worker(connection: Connection, topics: Topics) -> Iterator[Running]:
    running = Running(
        "stream",
        **settings_of(connection, topics),
        ATTRIBUTARY_INGEST__FLUSH_SECONDS="0.2",
        ATTRIBUTARY_INGEST__GRID_WAIT_SECONDS="0.5",
        ATTRIBUTARY_MERGE__PUBLISH_SECONDS="0.3",
        ATTRIBUTARY_MERGE__SNAPSHOT_SECONDS="0.5",
    )
    try:
        running.wait_for(READY)
        yield running
    finally:
        running.close()


async def test_all_is_well_where_workers_count(
    worker: Running, connection: Connection, topics: Topics
) -> None:
    await send(connection, topics.models, ModelCard(model="m").to_bytes(), key=b"m")
    rows = [
        json.dumps({"model": "m", "features": {"x": i}, "outputs": i % 7}).encode()
        for i in range(40)
    ]
    await send(connection, topics.rows, *rows)
    for _ in range(200):
        if (await read_accounting(connection, topics)).accepted == 40:
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(1.5)  # results, then a snapshot
    done = await asyncio.to_thread(
        run,
        *("--bootstrap", connection.bootstrap, "--prefix", topics.rows.removesuffix("rows")),
        "doctor",
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "all is well" in done.stdout, done.stdout
    for part in (
        "all 12 are there",
        "ingest: 1 worker, stable",
        "may write",
        "every message in the rows topic is counted",
        "40 rows accepted, 0 rejected, no gap",
        "known for all 1 models",
    ):
        assert part in done.stdout, done.stdout
