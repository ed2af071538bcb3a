"""``attributary top`` on a real broker: one frame for scripts, and live in a terminal of its own."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaProducer
from command import ATTRIBUTARY, environment, error_line, run
from results import LIFETIME, MAY, attribution, drift, hopping

from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics
from attributary.service.embedded import free_port

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
    assert "1 model · 0 rows/s · lag 3 messages · 1 dead letters" in done.stdout
    assert "0 offsets lost · 1 results unreadable" in done.stdout
    assert "28 days to 2013-05-29, 5,000 rows, final" in done.stdout
    assert "dep_delay" in done.stdout
    assert "\x1b" not in done.stdout
    other = run(*filled, "top", "--once", "--model", "nobody")
    assert "waiting for the first attributions" in other.stdout
    lifetime = run(*filled, "top", "--once", "--window", "lifetime", "--top", "1")
    assert "all rows so far" in lifetime.stdout
    assert "and 2 more" in lifetime.stdout


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


@pytest.fixture
def terminal(filled: list[str]) -> Iterator[Terminal]:
    screen, inner = pty.openpty()
    process = subprocess.Popen(
        [ATTRIBUTARY, *filled, "top", "--every", "0.2"],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env=environment(TERM="xterm", COLUMNS="120", LINES="40"),
    )
    yield Terminal(process, screen, inner)
    process.kill()
    process.wait()
    os.close(screen)
    os.close(inner)


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
