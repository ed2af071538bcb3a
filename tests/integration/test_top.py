"""``attributary top`` on a real broker: one frame for scripts, and live in a terminal of its own."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from broker_embedded import EmbeddedTestBroker
from broker_kafka import KafkaBroker
from command import ATTRIBUTARY, Running, environment, error_line, run
from results import LIFETIME, MAY, attribution, drift, hopping

from attributary.schemas.attribution import WindowAttribution
from attributary.schemas.card import ModelCard
from attributary.schemas.connection import Connection
from attributary.schemas.manifest import Manifest, ModelCount
from attributary.schemas.topics import Topics
from attributary.service.embedded import free_port
from attributary.service.reader import Reader
from attributary.service.settings import TopicLayout
from attributary.service.topics import create_topics

pytestmark = pytest.mark.integration


@pytest.fixture
async def filled(connection: Connection, topics: Topics) -> list[str]:
    """Topics with results; the options that name them."""
    async with AIOKafkaProducer(**connection.client_arguments()) as producer:
        for message in (attribution(LIFETIME, final=False), attribution(hopping(MAY))):
            await producer.send_and_wait(topics.attributions, message.to_bytes())
        await producer.send_and_wait(topics.drift, drift(hopping(MAY)).to_bytes())
        await producer.send_and_wait(topics.attributions, b"no message")
        for _ in range(3):
            await producer.send_and_wait(topics.rows, b"{}", partition=0)
        await producer.send_and_wait(topics.dead_letters, b"?")
    return ["--bootstrap", connection.bootstrap, "--prefix", topics.rows.removesuffix("rows")]


def test_one_frame_for_a_script_is_plain_text(filled: list[str]) -> None:
    done = run(*filled, "top", "--once")
    assert (done.returncode, done.stderr.count("\n")) == (0, 0), done.stderr
    assert done.stdout.startswith("1 dead letter · 1 result unreadable · ")
    assert "lag 3 messages · 1 model · 0 rows/s · 0 offsets lost" in done.stdout
    assert "28 days to 2013-05-29, 5,000 rows, final" in done.stdout
    assert "dep_delay" in done.stdout
    assert "\x1b" not in done.stdout
    other = run(*filled, "top", "--once", "--model", "nobody")
    assert error_line(other) == "error: no model 'nobody': there are flight-delay"
    output = run(*filled, "top", "--once", "--output", "nope")
    assert "no output 'nope': there are arrival_delay" in error_line(output)
    window = run(*filled, "top", "--once", "--window", "decayed")
    assert "no decayed windows: there are hopping, lifetime" in error_line(window)
    lifetime = run(*filled, "top", "--once", "--window", "lifetime", "--top", "1")
    assert "all rows so far" in lifetime.stdout
    assert "and 2 more" in lifetime.stdout


async def _send(
    connection: Connection, *records: tuple[str, bytes, bytes | None, int | None]
) -> None:
    """Send records of (topic, value, key, partition)."""
    async with AIOKafkaProducer(**connection.client_arguments(), linger_ms=20) as producer:
        sent = [
            await producer.send(topic, value, key=key, partition=partition)
            for topic, value, key, partition in records
        ]
        for each in sent:
            await each


def _options(connection: Connection, topics: Topics) -> list[str]:
    return ["--bootstrap", connection.bootstrap, "--prefix", topics.rows.removesuffix("rows")]


def _of(name: str, message: WindowAttribution) -> tuple[bytes, bytes]:
    return message.model_copy(update={"model": name}).to_bytes(), name.encode()


async def test_a_busy_model_hides_no_other(connection: Connection, topics: Topics) -> None:
    old = [(topics.attributions, *_of(name, attribution(LIFETIME)), 0) for name in ("churn", "ltv")]
    crowd = [(topics.attributions, *_of("busy", attribution(hopping(MAY))), 0)] * 5500
    # One of the others is known by its card, one by its manifest.
    card = (topics.models, ModelCard(model="ltv").to_bytes(), b"ltv", 0)
    counted = _manifests(topics, upto=1, accepted={"churn": 5000})
    await _send(connection, *old, *crowd, card, *counted)
    options = _options(connection, topics)
    done = run(*options, "top", "--once")
    assert "3 models" in done.stdout
    for name in ("busy", "churn", "ltv"):
        assert f"─ {name} ─" in done.stdout
    alone = run(*options, "top", "--once", "--model", "churn")
    assert "all rows so far" in alone.stdout
    assert "1 model ·" in alone.stdout


def _manifests(
    topics: Topics, *, upto: int, accepted: dict[str, int]
) -> list[tuple[str, bytes, bytes, int]]:
    """Return what ingest sends: the manifest of a block, to every partition of the sketches."""
    told = Manifest(
        topic=topics.rows, partition=0, block=0, upto=upto, previous=None, sealed=False,
        partitions=1, end_offset=upto,
        models={name: ModelCount(accepted={0: rows}) for name, rows in accepted.items()},
    )  # fmt: skip
    partitions = TopicLayout().sketches_partitions
    return [(topics.sketches, told.to_bytes(), told.key, place) for place in range(partitions)]


async def test_a_reader_ends_where_it_is_told_to(connection: Connection, topics: Topics) -> None:
    await _send(connection, *[(topics.rows, b"%d" % number, None, 0) for number in range(9)])
    at = TopicPartition(topics.rows, 0)
    reader = Reader(connection, [topics.rows], follow=False, start_at={at: 3}, upto={at: 7})
    await reader.start()
    found = []
    try:
        while (records := await reader.read()) is not None:
            found += [record.value for record in records]
    finally:
        await reader.stop()
    assert found == [b"3", b"4", b"5", b"6"]
    assert (reader.firsts[at], reader.ends[at]) == (0, 7)


async def test_lag_is_that_of_the_manifests(connection: Connection, topics: Topics) -> None:
    rows = [(topics.rows, b"garbage", None, 0)] * 100
    result = (topics.attributions, *_of("m", attribution(LIFETIME)), 0)
    await _send(connection, *rows, result, *_manifests(topics, upto=100, accepted={"m": 5016}))
    options = _options(connection, topics)
    done = run(*options, "top", "--once", "--model", "m")
    assert "lag 0 messages · 16 rows counted, not in results yet" in done.stdout
    await _send(connection, *_manifests(topics, upto=101, accepted={"m": 5016}))
    done = run(*options, "top", "--once")
    assert f"{topics.rows}/0 ends before what was counted of it" in done.stdout


async def test_what_is_not_there_is_told_while_it_waits(
    connection: Connection, topics: Topics
) -> None:
    await _send(connection, (topics.attributions, *_of("m", attribution(LIFETIME)), 0))
    waiting = Running(*_options(connection, topics), "top", "--model", "nothere")
    try:
        waiting.wait_for("waiting: no model 'nothere': there are m", 20.0)
    finally:
        waiting.close()


def test_no_broker_is_one_line() -> None:
    address = f"127.0.0.1:{free_port()}"
    assert address in error_line(run("--bootstrap", address, "top", "--once"))


class Terminal(NamedTuple):
    process: subprocess.Popen[bytes]
    screen: int
    inner: int

    def until(self, text: str, seconds: float = 20.0) -> str:
        """Read on until ``text`` was drawn."""
        seen, deadline = "", time.monotonic() + seconds
        while text not in seen:
            assert time.monotonic() < deadline, seen
            seen += os.read(self.screen, 65536).decode(errors="replace")
        return seen

    def drain(self) -> None:
        """Take what is left, so that it can end."""
        while self.process.poll() is None:
            os.set_blocking(self.screen, False)
            try:
                os.read(self.screen, 65536)
            except BlockingIOError:
                time.sleep(0.02)

    def close(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()
        os.close(self.screen)
        os.close(self.inner)


def _started(options: list[str]) -> Terminal:
    """Start it in a terminal of its own."""
    screen, inner = pty.openpty()
    process = subprocess.Popen(
        [ATTRIBUTARY, *options, "top", "--every", "0.2"],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env=environment(TERM="xterm", COLUMNS="120", LINES="40"),
    )
    return Terminal(process, screen, inner)


@pytest.fixture
def terminal(filled: list[str]) -> Iterator[Terminal]:
    running = _started(filled)
    yield running
    running.close()


def test_a_terminal_shows_it_live_takes_keys_and_is_left_as_it_was(terminal: Terminal) -> None:
    before = termios.tcgetattr(terminal.inner)
    terminal.until("28 days to 2013-05-29")
    os.write(terminal.screen, b"w")
    terminal.until("all rows so far")
    os.write(terminal.screen, b"q")
    terminal.drain()
    assert terminal.process.wait(10) == 0
    assert termios.tcgetattr(terminal.inner) == before


def test_ctrl_c_ends_it_clean(terminal: Terminal) -> None:
    terminal.until("dep_delay")
    terminal.process.send_signal(signal.SIGINT)
    terminal.drain()
    assert terminal.process.wait(10) == 0


def test_it_lives_on_while_the_broker_is_away(own_broker: EmbeddedTestBroker | KafkaBroker) -> None:
    connection, topics = Connection(bootstrap=own_broker.bootstrap), Topics()
    asyncio.run(create_topics(connection, topics))
    asyncio.run(_send(connection, (topics.attributions, *_of("before", attribution(LIFETIME)), 0)))
    running = _started(["--bootstrap", connection.bootstrap])
    try:
        running.until("before")
        own_broker.stop()
        running.until("broker not answering for", 10.0)
        running.until("broker not answering for 5", 10.0)
        own_broker.start()
        if own_broker.kind == "embedded":
            running.until("does not exist", 10.0)
            asyncio.run(create_topics(connection, topics))
        message = attribution(LIFETIME, revision=1)
        asyncio.run(_send(connection, (topics.attributions, *_of("after", message), 0)))
        running.until("after", 15.0)
        own_broker.stop()
        running.until("broker not answering for", 10.0)
        os.write(running.screen, b"q")
        running.drain()
        assert running.process.wait(5) == 0, "it ends at once without the broker"
    finally:
        running.close()
