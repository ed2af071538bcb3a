"""The doctor on a real broker: well where all is well, and each fault found that is put in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from command import Running, run
from records import read_topic_async
from results import LIFETIME, attribution
from stream_workers import Workers

from attributary.schemas.attribution import WindowAttribution
from attributary.schemas.card import ModelCard
from attributary.schemas.connection import Connection
from attributary.schemas.manifest import Manifest, ModelCount
from attributary.schemas.topics import Topics
from attributary.service.accounting import read_accounting
from attributary.service.doctor.examine import examine
from attributary.service.doctor.finding import Finding
from attributary.service.embedded import free_port
from attributary.service.settings import Settings, load_settings
from attributary.service.topics import admin_client, create_topics

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
    port = address.rpartition(":")[2]
    assert f"`attributary up --port {port}`" in told["checks"][1]["fix"]


@pytest.mark.parametrize(("answer", "fix"), [(b"HTTP/1.1 400\r\n\r\n", "another"), (b"", "silent")])
def test_a_port_that_is_taken_is_not_told_to_be_started(answer: bytes, fix: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        asked = threading.Thread(target=answer_all, args=(server, answer), daemon=True)
        asked.start()
        done = run("--bootstrap", f"127.0.0.1:{port}", "doctor")
    assert done.returncode == 1
    assert fix in done.stdout
    assert "start it" not in done.stdout


def answer_all(server: socket.socket, answer: bytes) -> None:
    """Take connections until the server is closed, and give each this answer; with none, keep silent."""
    kept = []
    with contextlib.suppress(OSError):
        while True:
            taken, _ = server.accept()
            if answer:
                with taken:
                    taken.recv(100)
                    taken.sendall(answer)
            else:
                kept.append(taken)


def test_without_topics_the_command_to_make_them_is_told_whole(
    connection: Connection, topic_names: Topics
) -> None:
    options = (
        "--bootstrap",
        connection.bootstrap,
        "--prefix",
        topic_names.rows.removesuffix("rows"),
    )
    done = run(*options, "doctor", "--no-write")
    assert done.returncode == 1
    assert f"run `attributary {' '.join(options)} topics create`" in done.stdout
    assert "not compared with the broker's" in done.stdout


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
    assert any(f"{names.snapshots} has 1 partition, fewer" in each for each in found)


async def test_rows_and_requests_that_nobody_reads(
    settings: Settings, connection: Connection, topics: Topics
) -> None:
    await send(connection, topics.rows, *[b"{}"] * 3)
    await send(connection, topics.requests, b"{}")
    found = failures(await examined(settings))
    assert found["lag"] == "no ingest worker runs, and 3 messages wait"
    assert found["requests"] == "1 request waits and no request worker runs"


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
    assert "ingest stands still" in failures(found)["lag"]
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
    assert any("12.5% of m's rows" in each and "wrong_type 1" in each for each in warned)
    assert any("2 rows wait for a grid" in each for each in warned)
    assert any("1 of the newest messages" in each for each in warned)
    assert any(each.check == "snapshots" for each in found)


_QUICK = {
    "ATTRIBUTARY_INGEST__FLUSH_SECONDS": "0.2",
    "ATTRIBUTARY_INGEST__GRID_WAIT_SECONDS": "0.5",
    "ATTRIBUTARY_MERGE__PUBLISH_SECONDS": "0.3",
    "ATTRIBUTARY_MERGE__SNAPSHOT_SECONDS": "0.5",
}


@pytest.fixture
def workers(connection: Connection, topics: Topics) -> Iterator[Workers]:
    """Workers on this test's topics, to be started; they are gone afterwards."""
    made = Workers(connection, topics, _QUICK)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def patient_workers(connection: Connection, topics: Topics) -> Iterator[Workers]:
    """The same, of which one may stand still for a while before the group goes on without it."""
    sessions = {f"ATTRIBUTARY_{role}__SESSION_SECONDS": "15" for role in ("INGEST", "MERGE")}
    made = Workers(connection, topics, {**_QUICK, **sessions})
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def worker(workers: Workers) -> Running:
    return workers.start()


def rows(count: int, **other: Any) -> list[bytes]:
    """Return rows of a model, one a message."""
    return [
        json.dumps({"model": "m", "features": {"x": n}, "outputs": n % 7, **other}).encode()
        for n in range(count)
    ]


async def until(holds: Callable[[], Awaitable[bool]], seconds: float = 30.0) -> None:
    for _ in range(round(seconds / 0.1)):
        if await holds():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("not in time")


async def accepted(connection: Connection, topics: Topics, count: int) -> None:
    """Wait until so many rows are accepted."""

    async def holds() -> bool:
        return (await read_accounting(connection, topics)).accepted == count

    await until(holds)


async def test_rows_without_a_merge_worker_are_in_no_result(
    workers: Workers, settings: Settings, connection: Connection, topics: Topics
) -> None:
    await asyncio.to_thread(workers.start, "--role", "ingest")
    await send(connection, topics.rows, *rows(30))
    await accepted(connection, topics, 30)
    found = failures(await examined(settings))
    assert "no merge worker runs: 30 accepted rows of m are in no result" in found["results"]
    assert "no attributions yet, the newest row counted" in found["results"]


async def test_a_merge_worker_that_stands_still_is_stuck(
    patient_workers: Workers, settings: Settings, connection: Connection, topics: Topics
) -> None:
    await asyncio.to_thread(patient_workers.start, "--role", "ingest")
    merge = await asyncio.to_thread(patient_workers.start, "--role", "merge")
    merge.process.send_signal(signal.SIGSTOP)  # for less than its session
    await send(connection, topics.rows, *rows(30))
    await accepted(connection, topics, 30)
    found = failures(await examined(settings))
    assert "merge stands still: 30 accepted rows of m are in no result" in found["results"]
    merge.process.send_signal(signal.SIGCONT)


async def test_one_of_two_ingest_workers_that_stands_still_is_found_beside_the_other(
    patient_workers: Workers, settings: Settings, connection: Connection, topics: Topics
) -> None:
    await asyncio.to_thread(patient_workers.start)
    stopped = await asyncio.to_thread(patient_workers.start)

    async def shared() -> bool:
        found = await examined(settings)
        return any("ingest: 2 workers, stable" in each.message for each in found)

    await until(shared)
    stopped.process.send_signal(signal.SIGSTOP)
    for partition in range(4):
        await send(connection, topics.rows, *rows(5), partition=partition)
    found = failures(await examined(settings))
    stopped.process.send_signal(signal.SIGCONT)
    assert "one of 2 ingest workers stands still" in found["lag"]
    assert "10 messages wait" in found["lag"]
    assert found["lag"].count("at 0 of 5") == 2


async def test_a_rows_topic_made_anew_is_found_and_another_name_goes_on(
    workers: Workers, settings: Settings, connection: Connection, topics: Topics
) -> None:
    first = await asyncio.to_thread(workers.start)
    await send(connection, topics.rows, *rows(40), partition=0)
    await accepted(connection, topics, 40)
    async with admin_client(connection) as admin:
        await admin.delete_topics([topics.rows])
    await create_topics(connection, topics)
    await send(connection, topics.rows, *rows(3), partition=0)
    found = failures(await examined(settings))
    assert f"{topics.rows}/0 ends at 3, but 40 were counted" in found["accounting"]

    await asyncio.to_thread(first.close)
    other = topics.model_copy(update={"rows": f"{topics.rows}-2"})
    await create_topics(connection, other)
    named = Workers(connection, topics, {**_QUICK, "ATTRIBUTARY_TOPICS__ROWS": other.rows})
    try:
        await asyncio.to_thread(named.start)
        await send(connection, other.rows, *rows(7), partition=0)
        await accepted(connection, other, 47)
        await asyncio.sleep(1.5)  # results, then a snapshot
        well = await examined(settings.model_copy(update={"topics": other}))
        assert not failures(well), well
        newest = (await read_topic_async(connection, other.attributions))[-1]
        assert WindowAttribution.from_bytes(newest.value).accounting.rows == 47
    finally:
        await asyncio.to_thread(named.close)


async def test_rows_that_nobody_can_read_fail(
    worker: Running, settings: Settings, connection: Connection, topics: Topics
) -> None:
    await send(connection, topics.rows, *rows(9, model="no name"), *rows(1))
    await accepted(connection, topics, 1)
    found = failures(await examined(settings))
    assert "90.0% of all rows" in found["accounting"]
    assert "of no known model: no_model 9" in found["accounting"]


async def test_all_is_well_where_workers_count(
    worker: Running, connection: Connection, topics: Topics
) -> None:
    await send(connection, topics.models, ModelCard(model="m").to_bytes(), key=b"m")
    await send(connection, topics.rows, *rows(40))
    await accepted(connection, topics, 40)
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
        "known for the one model",
    ):
        assert part in done.stdout, done.stdout
