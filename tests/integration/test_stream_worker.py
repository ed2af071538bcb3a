"""Real worker processes on a real broker: every row counts once, whatever is sent and whatever dies."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from aiokafka import AIOKafkaProducer, ConsumerRecord
from aiokafka.admin import AIOKafkaAdminClient
from command import Running
from prometheus_client.parser import text_string_to_metric_families
from records import read_topic
from stream_workers import Workers

from attributary.schemas.arrow import encode_arrow_rows
from attributary.schemas.attribution import WindowAttribution
from attributary.schemas.card import Feature, Lifetime, ModelCard, Tumbling
from attributary.schemas.connection import Connection
from attributary.schemas.dead_letter import DeadLetter
from attributary.schemas.errors import Reason
from attributary.schemas.topics import Topics
from attributary.service.accounting import Accounting, AccountingReader
from attributary.service.topics import create_topics
from attributary.workers.maths.cir import cir

pytestmark = pytest.mark.integration

# Small blocks and short flushes, so that few rows go through many of both.
_SETTINGS = {
    "ATTRIBUTARY_INGEST__BLOCK_OFFSETS": "64",
    "ATTRIBUTARY_INGEST__FLUSH_SECONDS": "0.2",
    "ATTRIBUTARY_INGEST__GRID_WAIT_SECONDS": "1",
    "ATTRIBUTARY_INGEST__MAX_MESSAGE_BYTES": "500000",
    "ATTRIBUTARY_MERGE__PUBLISH_SECONDS": "0.3",
    "ATTRIBUTARY_LOG_LEVEL": "info",
}
_SECONDS = 45.0
_PARTITIONS = 4
NAMES = ("x0", "x1", "x2")

Floats = npt.NDArray[np.float64]


class Message(NamedTuple):
    """A record for the rows topic."""

    value: bytes | None
    headers: list[tuple[str, bytes]] = []  # noqa: RUF012
    key: bytes | None = None


class Rows(NamedTuple):
    """X (n, 3) and Y (n,), continuous."""

    X: Floats
    Y: Floats

    @classmethod
    def draw(cls, count: int, seed: int) -> Rows:
        """Return rows in which x0 moves with the output and x1 against it, skewed."""
        rng = np.random.default_rng(seed)
        X = np.column_stack(
            [rng.standard_normal(count), rng.lognormal(size=count), rng.standard_normal(count)]
        )
        return cls(X, X[:, 0] - 0.4 * X[:, 1] + rng.standard_normal(count))

    def json(self, model: str, start: int = 0, stop: int | None = None) -> list[dict[str, Any]]:
        """Return rows as they travel in JSON."""
        return [
            {"model": model, "features": dict(zip(NAMES, x, strict=True)), "outputs": y}
            for x, y in zip(self.X[start:stop].tolist(), self.Y[start:stop].tolist(), strict=True)
        ]

    def messages(self, model: str) -> list[Message]:
        """Return one JSON row a message."""
        return [Message(json.dumps(row).encode()) for row in self.json(model)]

    def mixed(self, model: str) -> list[Message]:
        """Return single rows, arrays and Arrow batches in turn."""
        found = []
        at, turn = 0, 0
        while at < len(self.Y):
            size = (1, 7, 40)[turn % 3]
            rows = self.json(model, at, at + size)
            if turn % 3 == 0:
                found.append(Message(json.dumps(rows[0]).encode()))
            elif turn % 3 == 1:
                found.append(Message(json.dumps(rows).encode()))
            else:
                part = slice(at, at + size)
                columns = {name: self.X[part, i] for i, name in enumerate(NAMES)}
                value = encode_arrow_rows(model, {**columns, "output": self.Y[part]}, ["output"])
                found.append(Message(value))
            at, turn = at + size, turn + 1
        return found


class Stage(Workers):
    """One test's topics, the workers it started, and what it published."""

    def __init__(self, connection: Connection, topics: Topics) -> None:
        super().__init__(connection, topics, _SETTINGS)

    def publish(self, messages: Sequence[Message], *, seconds: float = 0.0) -> None:
        """Send messages, spread over the partitions and over some seconds."""

        async def send() -> None:
            producer = AIOKafkaProducer(
                **self.connection.client_arguments(), acks="all", max_request_size=8 * 2**20
            )
            await producer.start()
            try:
                step = max(1, len(messages) // 20)
                for start in range(0, len(messages), step):
                    sent = [
                        await producer.send(
                            self.topics.rows,
                            message.value,
                            message.key,
                            partition=(start + index) % _PARTITIONS,
                            headers=message.headers,
                        )
                        for index, message in enumerate(messages[start : start + step])
                    ]
                    await asyncio.gather(*sent)
                    await asyncio.sleep(seconds / 20)
            finally:
                await producer.stop()

        asyncio.run(send())

    def register(self, card: ModelCard) -> None:
        """Write a card."""

        async def send() -> None:
            producer = AIOKafkaProducer(**self.connection.client_arguments(), acks="all")
            await producer.start()
            try:
                await producer.send_and_wait(
                    self.topics.models, card.to_bytes(), key=card.model.encode()
                )
            finally:
                await producer.stop()

        asyncio.run(send())

    def records(self, topic: str) -> list[ConsumerRecord]:
        """Return all that is in a topic."""
        return read_topic(self.connection, topic)

    def accounting(self) -> Accounting:
        """Return what the manifests say of every offset of the rows topic."""

        async def read() -> Accounting:
            async with AccountingReader(self.connection, self.topics) as reader:
                return await reader.refresh()

        return asyncio.run(read())

    def lifetime(self, model: str) -> WindowAttribution | None:
        """Return the newest message of the model's lifetime."""
        newest = None
        for record in self.records(self.topics.attributions):
            message = WindowAttribution.from_bytes(record.value)
            if message.model == model and message.window.kind == "lifetime":
                newest = message
        return newest

    def settle(self, accepted: dict[str, int], rejected: int = 0) -> dict[str, WindowAttribution]:
        """Wait until the books are closed and say so, and return the lifetimes."""

        def closed() -> bool:
            found = self.accounting()
            return found.settled and found.accepted + found.rejected >= (
                sum(accepted.values()) + rejected
            )

        self.wait(closed, lambda: f"{self.accounting()}")
        account = self.accounting()
        assert {m: account.models[m].accepted for m in accepted} == accepted
        assert sum(count.rows_rejected for count in account.models.values()) == rejected
        assert account.gaps == account.overlaps == 0

        found = {}
        for model, rows in accepted.items():
            self.wait_for(model, lambda message, rows=rows: message.accounting.rows >= rows)
            message = self.lifetime(model)
            assert message is not None
            assert message.accounting.rows == message.accounting.rows_accepted == rows
            assert message.accounting.gaps == 0
            found[model] = message
        return found

    def wait_for_rows(self, model: str, rows: int) -> None:
        """Wait until a lifetime counts at least so many rows."""
        self.wait_for(model, lambda message: message.accounting.rows >= rows)

    def wait_for(self, model: str, holds: Callable[[WindowAttribution], bool]) -> None:
        """Wait until the newest lifetime is as it should be."""
        self.wait(
            lambda: (message := self.lifetime(model)) is not None and holds(message),
            lambda: f"{self.lifetime(model)}",
        )

    def wait(self, holds: Callable[[], bool], failure: Callable[[], str]) -> None:
        """Wait until something holds; ``failure`` says how it was where it never does."""
        deadline = time.monotonic() + _SECONDS
        while not holds():
            outputs = [worker.output for worker in self.running]
            assert time.monotonic() < deadline, f"{failure()}\n{outputs}"
            time.sleep(0.2)


@pytest.fixture
def stage(connection: Connection, topics: Topics) -> Iterator[Stage]:
    """Topics of one's own; every worker that the test started is gone afterwards."""
    made = Stage(connection, topics)
    try:
        yield made
    finally:
        made.close()


def _same_scores(message: WindowAttribution, rows: Rows) -> None:
    batch = cir(rows.X, rows.Y)
    found = {feature.name: feature for feature in message.features}
    for index, name in enumerate(NAMES):
        assert found[name].score == pytest.approx(batch.score[0, index], abs=1e-3)
    assert found["x0"].direction == 1
    assert found["x1"].direction == -1


_HOSTILE: list[tuple[Message, Reason]] = [
    (Message(b""), Reason.EMPTY),
    (Message(None, key=b"k"), Reason.EMPTY),
    (Message(b"\x00\xff\xfe\x80 noise \x00" * 9), Reason.NOT_DECODABLE),
    (Message(b'{"model": "m", "features": {"x0": 1'), Reason.NOT_DECODABLE),
    (Message(b"\xff\xff\xff\xff\x08\x00\x00\x00cut off"), Reason.NOT_DECODABLE),
    (Message(b'{"model": "m"}'), Reason.WRONG_TYPE),
    (Message(b'{"features": {"x0": 1}, "outputs": 1}'), Reason.NO_MODEL),
    (Message(b'{"model": "m", "features": {"x0": "one"}, "outputs": 1}'), Reason.WRONG_TYPE),
    (Message(b'{"model": "m", "features": {"x0": 1}, "outputs": [1, 2]}'), Reason.OUTPUTS_MISSING),
    (Message(b'{"model": "m", "features": {"other": 1}, "outputs": 1}'), Reason.FEATURES_MISSING),
    (Message(b'{"model": "m", "features": {"x0": 1}, "outputs": 1, "time": 9e12}'), Reason.FAR_FUTURE),
    (Message(b'{"model": "m", "features": {"x0": 1}, "outputs": 1, "weight": 0}'), Reason.BAD_WEIGHT),
    (Message(b"x,y\n1,2\n", [("content-type", b"text/csv")]), Reason.NOT_DECODABLE),
    (Message(b" " * 600_000), Reason.TOO_LARGE),
]  # fmt: skip


def test_rows_of_every_format_count_once_through_bad_messages_and_a_stop(stage: Stage) -> None:
    worker = stage.start()
    rows = Rows.draw(9000, seed=1)
    messages = rows.mixed("m")
    # The good rows decide what the model's columns are, and enough of them where its grid's edges lie.
    first = 200
    stage.publish(messages[:first])
    stage.wait_for_rows("m", 1)
    for index, (hostile, _) in enumerate(_HOSTILE):
        messages.insert(first + index * 9, hostile)
    half = len(messages) // 2
    stage.publish(messages[first:half])
    worker.process.send_signal(signal.SIGTERM)
    stage.publish(messages[half:])
    assert worker.wait(15.0) == 0
    stage.start()
    _same_scores(stage.settle({"m": 9000}, rejected=len(_HOSTILE))["m"], rows)
    _check_dead_letters(stage)


def _check_dead_letters(stage: Stage) -> None:
    expected = Counter((message.value or b"", reason.value) for message, reason in _HOSTILE)
    found: Counter[tuple[bytes, str]] = Counter()
    for record in stage.records(stage.topics.dead_letters):
        letter = DeadLetter.from_headers(record.headers)
        found[record.value or b"", letter.reason] += 1
        assert letter.topic == stage.topics.rows
        assert letter.message
    assert set(found) == set(expected)


def test_killed_workers_lose_and_repeat_nothing(stage: Stage) -> None:
    rows, others = Rows.draw(2500, seed=5), Rows.draw(2500, seed=6)
    pairs = zip(rows.messages("m"), others.messages("n"), strict=True)
    messages = [message for pair in pairs for message in pair]
    stage.publish(messages[:1000])  # before any worker runs
    first = stage.start()
    stage.wait_for_rows("m", 1)
    stage.publish(messages[1000:2000], seconds=0.5)
    first.process.kill()
    second, third = stage.start(), stage.start()
    stage.publish(messages[2000:3000])
    stage.wait_for_rows("m", 1001)
    stage.wait_for_rows("n", 1001)
    stage.publish(messages[3000:4000], seconds=0.5)
    second.process.kill()
    stage.publish(messages[4000:])
    found = stage.settle({"m": 2500, "n": 2500})
    _same_scores(found["m"], rows)
    _same_scores(found["n"], others)
    assert third.process.poll() is None


def test_a_card_that_comes_later_gives_levels_and_groups(stage: Stage) -> None:
    stage.start()
    rng = np.random.default_rng(7)

    def draw(count: int) -> list[Message]:
        plans = rng.choice(["pro", "free", "trial"], count)
        age = rng.standard_normal(count)
        y = age + (plans == "pro") * 2.0
        return [
            Message(
                json.dumps(
                    {"model": "m", "features": {"age": a, "plan": str(p)}, "outputs": float(b)}
                ).encode()
            )
            for a, p, b in zip(age.tolist(), plans, y, strict=True)
        ]

    stage.publish(draw(500))
    stage.wait_for_rows("m", 500)
    stage.register(
        ModelCard(
            model="m",
            features=[
                Feature(name="age", group="person"),
                Feature(name="plan", kind="categorical", levels=["pro", "free"]),
            ],
            outputs=["margin"],
            windows=[Lifetime()],
        )
    )
    time.sleep(1.5)  # the card is read; blocks that are open keep their columns
    stage.publish(draw(1000))

    stage.wait_for(
        "m", lambda message: message.accounting.rows_accepted == 1500 and bool(message.groups)
    )
    account = stage.accounting()
    assert account.settled
    assert account.models["m"].accepted == 1500
    assert account.rejected == 0
    message = stage.lifetime("m")
    assert message is not None
    assert message.output == "margin"
    assert {group.name for group in message.groups} == {"person", "plan"}
    assert {f.name for f in message.features} == {
        "age",
        "plan=pro",
        "plan=free",
        "plan=(other)",
    }
    by_name = {feature.name: feature for feature in message.features}
    assert by_name["plan=pro"].direction == 1
    assert by_name["plan=(other)"].direction == -1
    assert 500 < message.accounting.rows <= 1000  # on the new columns
    assert message.accounting.rows_accepted == 1500


def _shown(worker: Running) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return what a worker's metrics say, by name and labels."""
    (url,) = re.findall(r"metrics (http://\S+)", worker.output)
    with urllib.request.urlopen(url, timeout=5) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_series_go_with_the_partitions_and_with_the_windows_of_a_card(stage: Stage) -> None:
    def register(seconds: float) -> None:
        windows = [Tumbling(seconds=seconds), Lifetime()]
        features = [Feature(name=name) for name in NAMES]
        stage.register(
            ModelCard(model="m", features=features, windows=windows, allowed_lateness_seconds=0)
        )

    register(10)
    first = stage.start()
    began = time.time() - 150
    rows = [
        Message(json.dumps({**row, "time": began + 0.04 * index}).encode())
        for index, row in enumerate(Rows.draw(3000, seed=8).json("m"))
    ]
    stage.publish(rows[:1000])
    stage.wait_for_rows("m", 1000)

    def lag(worker: Running) -> list[int]:
        return sorted(
            int(dict(labels)["partition"])
            for name, labels in _shown(worker)
            if name == "attributary_lag_records"
        )

    def of_windows(*workers: Running) -> set[str]:
        return {
            dict(labels)["window"]
            for worker in workers
            for name, labels in _shown(worker)
            if name == "attributary_rank"
        }

    def wait_for(holds: Callable[[], bool]) -> None:
        stage.wait(holds, lambda: f"{lag(first)} {of_windows(first)}")

    assert lag(first) == [0, 1, 2, 3]
    beat = _shown(first)["attributary_heartbeat_timestamp_seconds", frozenset()]
    assert abs(beat - time.time()) < 10

    second = stage.start()
    wait_for(lambda: len(lag(first)) == len(lag(second)) == 2)
    assert sorted(lag(first) + lag(second)) == [0, 1, 2, 3]
    stage.publish(rows[1000:2000])
    wait_for(lambda: of_windows(first, second) == {"tumbling_10s", "lifetime"})
    assert not (of_windows(first) and of_windows(second))

    register(20)
    stage.publish(rows[2000:])
    wait_for(lambda: of_windows(first, second) == {"tumbling_20s", "lifetime"})


def test_a_topic_made_anew_under_the_same_name_is_an_alarm(stage: Stage) -> None:
    first = stage.start()
    rows = Rows.draw(400, seed=9).messages("m")
    stage.publish(rows)
    stage.settle({"m": 400})
    first.process.send_signal(signal.SIGTERM)
    assert first.wait(15.0) == 0

    async def make_anew() -> None:
        admin = AIOKafkaAdminClient(**stage.connection.client_arguments())
        await admin.start()
        try:
            await admin.delete_topics([stage.topics.rows])
        finally:
            await admin.close()
        await asyncio.sleep(1.0)
        await create_topics(stage.connection, stage.topics)

    asyncio.run(make_anew())
    stage.publish(rows[:40])
    second = stage.start()

    def beyond() -> list[float]:
        return [
            value
            for (name, _), value in sorted(_shown(second).items(), key=str)
            if name == "attributary_counted_beyond_end_offsets"
        ]

    stage.wait(lambda: beyond() == [90, 90, 90, 90], lambda: f"{beyond()}")
