"""``attributary up`` and ``stream`` as people run them: real processes, stopped in every way."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaProducer
from command import Running, run, wait_until

from attributary.schemas.topics import Topics
from attributary.service import reach

pytestmark = pytest.mark.timeout(120)

# What the settings say of stopping: everything, with nothing left running.
_STOP_SECONDS = 10.0


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """Start commands; whatever is left of them is killed afterwards."""
    started: list[Running] = []

    def start(*arguments: str) -> Running:
        started.append(Running(*arguments))
        return started[-1]

    yield start
    for running in started:
        running.close()


def _address(running: Running) -> str:
    found = re.search(r"127\.0\.0\.1:\d+", running.wait_for("broker "))
    assert found is not None
    return found[0]


def _metrics(running: Running, worker: str = "stream-1") -> str:
    found = re.search(r"http://\S+", running.wait_for(f"{worker}  ready"))
    assert found is not None
    return found[0]


async def _publish(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    await producer.start()
    try:
        for value in values:
            await producer.send(topic, value)
        await producer.flush()
    finally:
        await producer.stop()


def _rows(count: int) -> list[bytes]:
    return [
        json.dumps(
            {"model": "m", "features": {"a": i % 17, "b": (i * 7) % 13}, "outputs": {"y": i % 5}}
        ).encode()
        for i in range(count)
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything_in_time(start, number):
    running = start("up", "--port", "0", "--workers", "2")
    running.wait_for("Ctrl-C stops everything")
    assert len(running.alive()) == 4  # the command, the broker, two workers
    address = _address(running)
    started = time.monotonic()
    running.process.send_signal(number)
    assert running.wait(_STOP_SECONDS) == 0
    assert time.monotonic() - started < _STOP_SECONDS
    assert running.alive() == []
    assert "Traceback" not in running.output
    assert "killed" not in running.output
    host, port = address.split(":")
    assert reach.answers(host, int(port), 1.0) == "connection refused"


def test_a_killed_parent_leaves_nothing_behind(start):
    running = start("up", "--port", "0", "--workers", "2")
    running.wait_for("Ctrl-C stops everything")
    assert len(running.alive()) == 4
    running.process.kill()
    running.wait(5.0)
    wait_until(lambda: running.alive() == [], 5.0)


def test_a_worker_that_dies_ends_all_with_an_error(start):
    running = start("up", "--port", "0", "--workers", "2")
    running.wait_for("Ctrl-C stops everything")
    worker = next(p for p in running.alive() if "stream" in p.cmdline())
    worker.kill()
    assert running.wait(_STOP_SECONDS + 2) == 2
    assert running.alive() == []
    assert re.fullmatch(
        r"error: stream-[12] ended by itself \(exit code -9\); its last lines are above",
        running.lines[-1],
    )


def test_a_broker_that_dies_ends_all_with_an_error(start):
    running = start("up", "--port", "0")
    running.wait_for("Ctrl-C stops everything")
    broker = next(p for p in running.alive() if "memory://attributary/" in p.cmdline())
    broker.kill()
    assert running.wait(_STOP_SECONDS + 2) == 2
    assert running.alive() == []
    assert running.lines[-1] == "error: the embedded broker ended by itself (exit code -9)"


def test_a_second_signal_hurries(start):
    running = start("up", "--port", "0")
    running.wait_for("Ctrl-C stops everything")
    worker = next(p for p in running.alive() if "stream" in p.cmdline())
    os.kill(worker.pid, signal.SIGSTOP)  # it will not stop by being asked
    running.process.send_signal(signal.SIGINT)
    running.wait_for("stopping")
    running.process.send_signal(signal.SIGINT)
    assert running.wait(4.0) == 0
    assert running.alive() == []
    assert "stream-1 did not stop in time and was killed" in running.output


def _wait_until_read(metrics: str, messages: int) -> None:
    def read() -> bool:
        with urllib.request.urlopen(metrics, timeout=5) as answer:
            return f"attributary_messages_total {messages}.0\n" in answer.read().decode()

    wait_until(read, 30.0)


def test_what_is_published_is_counted_before_the_end(start):
    """Rows published just before Ctrl-C are all in the account that is printed."""
    running = start("up", "--port", "0")
    running.wait_for("Ctrl-C stops everything")
    address = _address(running)
    asyncio.run(_publish(address, "attributary.rows", [b"\x00garbage"]))
    _wait_until_read(_metrics(running), 1)  # the worker has its partitions
    asyncio.run(_publish(address, "attributary.rows", [*_rows(5000), b""]))
    running.process.send_signal(signal.SIGINT)
    assert running.wait(_STOP_SECONDS) == 0
    assert "5,000 accepted, 2 rejected, all that was published" in running.wait_for("rows ")
    assert running.alive() == []


def test_metrics_say_what_was_read_and_that_the_worker_is_ready(start):
    running = start("up", "--port", "0")
    metrics = _metrics(running)
    running.wait_for("Ctrl-C stops everything")
    asyncio.run(_publish(_address(running), "attributary.rows", _rows(1500)))
    _wait_until_read(metrics, 1500)
    with urllib.request.urlopen(metrics.replace("/metrics", "/readyz"), timeout=5) as answer:
        assert answer.status == 200


@pytest.mark.integration
def test_up_uses_a_broker_that_runs_and_leaves_it_running(start, broker, topic_names):
    prefix = topic_names.rows.removesuffix("rows")
    running = start("--prefix", prefix, "up", "--bootstrap", broker.bootstrap)
    running.wait_for("Ctrl-C stops everything")
    assert len(running.alive()) == 2  # the command and one worker
    running.process.send_signal(signal.SIGTERM)
    assert running.wait(_STOP_SECONDS) == 0
    assert running.alive() == []
    checked = run("--bootstrap", broker.bootstrap, "--prefix", prefix, "topics", "check")
    assert checked.stdout == f"all {len(Topics.model_fields)} topics are there\n"


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_stops_on_a_signal(start, broker, topics, number):
    prefix = topics.rows.removesuffix("rows")
    running = start(
        "--bootstrap", broker.bootstrap, "--prefix", prefix, "stream", "--role", "ingest"
    )
    running.wait_for("ready ")
    running.process.send_signal(number)
    assert running.wait(_STOP_SECONDS) == 0
    assert "Traceback" not in running.output
    assert "Unclosed" not in running.output
    assert "Starting..." not in running.output  # the libraries' own small talk


@pytest.mark.integration
def test_a_worker_whose_broker_is_gone_stops_in_time(start, own_broker):
    address = own_broker.bootstrap
    assert run("--bootstrap", address, "topics", "create").returncode == 0
    running = start("--bootstrap", address, "stream")
    running.wait_for("ready ")
    own_broker.stop()
    time.sleep(1.0)
    running.process.send_signal(signal.SIGTERM)
    running.wait(_STOP_SECONDS)
    assert running.alive() == []
