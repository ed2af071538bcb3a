"""The endless demonstration on running workers, as the compose file starts it: what shows within a minute."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import Running
from records import read_topic_async
from stream_workers import settings_of

from attributary.schemas.attribution import WindowAttribution, WindowDrift
from attributary.schemas.connection import Connection
from attributary.schemas.explanation import KIND_HEADER, ErrorCode, Explanation
from attributary.schemas.topics import Topics
from attributary.schemas.unique_information import UniqueInformationRun, is_run
from attributary.service.accounting import Accounting, read_accounting

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

_MINUTE = 60.0
_ROWS = 3000  # three days of flights: enough for the ranking to be sure


class Shown:
    """What has been published so far."""

    def __init__(self, connection: Connection, topics: Topics) -> None:
        self._connection, self._topics = connection, topics
        self.windows: list[WindowAttribution] = []
        self.runs: list[UniqueInformationRun] = []
        self.drifts: list[WindowDrift] = []
        self.answers: list[Explanation] = []

    async def read(self) -> None:
        """Read it anew."""
        told = await read_topic_async(self._connection, self._topics.attributions)
        self.runs = [UniqueInformationRun.from_bytes(r.value) for r in told if is_run(r.headers)]
        self.windows = [
            WindowAttribution.from_bytes(r.value) for r in told if not is_run(r.headers)
        ]
        told = await read_topic_async(self._connection, self._topics.drift)
        self.drifts = [WindowDrift.from_bytes(r.value) for r in told]
        told = await read_topic_async(self._connection, self._topics.explanations)
        self.answers = [
            Explanation.from_bytes(r.value)
            for r in told
            if dict(r.headers)[KIND_HEADER] == b"final"
        ]

    @property
    def final(self) -> list[WindowAttribution]:
        return [m for m in self.windows if m.final and m.window.kind == "hopping"]

    @property
    def against_training(self) -> list[WindowDrift]:
        return [m for m in self.drifts if m.reference == "baseline"]

    @property
    def asked(self) -> list[Explanation]:
        return [answer for answer in self.answers if not answer.id.startswith("scheduled|")]

    def complete(self) -> bool:
        full = any(message.accounting.rows >= _ROWS for message in self.final)
        explained = [answer for answer in self.asked if answer.outcome == "result"]
        return full and bool(self.against_training) and len(explained) > 2


@pytest.fixture
def started(
    connection: Connection, topics: Topics, tmp_path: Path
) -> Iterator[tuple[Running, Shown]]:
    """The publisher, beside a stream worker and a request worker."""
    settings = settings_of(connection, topics)
    workers = [
        Running("stream", **settings),
        Running("ondemand", "--model-root", str(tmp_path), **settings),
    ]
    try:
        for worker in workers:
            worker.wait_for("ready")
        publisher = Running(
            "demo", "--publish-only", "--live", "--models", str(tmp_path), **settings
        )
        workers.append(publisher)
        yield publisher, Shown(connection, topics)
    finally:
        for worker in workers:
            worker.close()


async def counted(connection: Connection, topics: Topics, published: int) -> Accounting:
    deadline = time.monotonic() + 20
    while True:
        books = await read_accounting(connection, topics)
        if books.settled and books.accepted + books.rejected >= published:
            return books
        assert time.monotonic() < deadline, (books, published)
        await asyncio.sleep(0.3)


async def test_a_minute_shows_windows_drift_and_answers_and_every_row_is_counted(
    started: tuple[Running, Shown], connection: Connection, topics: Topics
) -> None:
    publisher, shown = started
    await asyncio.to_thread(publisher.wait_for, "rows a second, event time is now", 120)
    began = time.time()
    while not shown.complete():
        assert time.time() < began + _MINUTE, (shown.final, shown.drifts, shown.answers)
        await asyncio.sleep(1.0)
        await shown.read()
    newest = max(shown.final, key=lambda message: message.accounting.rows)
    # Event time is the present, and the window is short.
    assert began - 70 < newest.window.end / 1000 < time.time()
    assert newest.window.end - newest.window.start == 60_000
    assert min(newest.features, key=lambda score: score.rank).name == "dep_delay"
    drift = max(shown.against_training, key=lambda message: message.rows)
    worst = max(drift.features, key=lambda column: column.psi or 0.0)
    assert worst.psi is not None
    assert worst.psi > 0.25  # March is not January
    for answer in shown.asked:
        # On a slow machine the first request may come before the first sampled rows.
        early = answer.error is not None and answer.error.code == ErrorCode.SAMPLES_MISSING
        assert answer.outcome == "result" or early, answer.error
    while not shown.runs:  # a tick is a full minute of the clock
        assert time.time() < began + 3 * _MINUTE
        await asyncio.sleep(1.0)
        await shown.read()
    scored = {one.feature for one in shown.runs[-1].result.features}
    assert {"dep_delay", "temp", "carrier"} <= scored
    publisher.process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(publisher.wait, 15) == 0, publisher.output
    assert "Traceback" not in publisher.output
    last = next(line for line in reversed(publisher.lines) if line.startswith("published "))
    published = int(last.split()[1].replace(",", ""))
    books = await counted(connection, topics, published)
    assert (books.accepted, books.rejected, books.gaps) == (published, 0, 0), last
