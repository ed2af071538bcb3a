"""``dead-letters list|show|retry``: every rejected row can be had back, and none counts twice."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from command import Running, error_line, run, wait_until
from records import read_topic

from attributary.schemas.arrow import ARROW_CONTENT, decode_arrow_rows, encode_arrow_rows
from attributary.schemas.connection import Connection
from attributary.schemas.dead_letter import (
    ATTEMPT_HEADER,
    RETRY_OF_HEADER,
    DeadLetter,
    Headers,
    Origin,
)
from attributary.schemas.retry_marker import MARKER_HEADER, RetryMarker
from attributary.schemas.topics import Topics
from attributary.service.accounting import Accounting, read_accounting
from attributary.service.letter_index import LetterIndex, read_index
from attributary.service.letter_retry import Outcome, Retry
from attributary.service.main import main
from attributary.workers.stream.outgoing import Outgoing
from attributary.workers.stream.producer import AcknowledgedProducer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]

Command = Callable[..., subprocess.CompletedProcess[str]]
NOW = 1_800_000_000_000


@pytest.fixture
def attributary(
    connection: Connection,
    topics: Topics,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Command:
    """The command, on this test's own topics; in this process, because it is called so often."""
    prefix = topics.rows.removesuffix("rows")
    common = ["attributary", "--bootstrap", connection.bootstrap, "--prefix", prefix]

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [*common, "dead-letters", *arguments]
        monkeypatch.setattr(sys, "argv", argv)
        capfd.readouterr()
        code = main()
        written = capfd.readouterr()
        return subprocess.CompletedProcess(argv, code, written.out, written.err)

    return call


class Letters:
    """Puts dead letters where ingest puts them, of messages in a block that is closed."""

    def __init__(self, connection: Connection, topics: Topics) -> None:
        self._connection = connection
        self._topics = topics

    def send(self, *records: tuple[bytes | None, bytes | None, Headers]) -> None:
        async def send() -> None:
            producer = AIOKafkaProducer(**self._connection.client_arguments(), acks="all")
            await producer.start()
            try:
                for key, value, headers in records:
                    await producer.send_and_wait(
                        self._topics.dead_letters, value, key, headers=list(headers)
                    )
            finally:
                await producer.stop()

        asyncio.run(send())

    def letter(
        self,
        offset: int,
        value: bytes | None = b"x",
        *,
        reason: str = "wrong_type",
        rows: Sequence[int] = (),
        key: bytes | None = None,
        headers: Headers = (),
        topic: str | None = None,
        partition: int = 1,
        first_seen: int = NOW,
    ) -> tuple[bytes | None, bytes | None, Headers]:
        letter = DeadLetter(
            topic or self._topics.rows, partition, offset, reason, "not good", first_seen, tuple(rows)
        )  # fmt: skip
        return key, value, letter.headers(headers)

    def marker(self, offset: int, state: str, attempt: int = 1) -> tuple[bytes, bytes, Headers]:
        marker = RetryMarker.claim(
            Origin(self._topics.rows, 1, offset), attempt, frozenset(), "another", NOW
        ).model_copy(update={"state": state})
        return marker.key, marker.to_bytes(), [(MARKER_HEADER, state.encode())]

    def origin(self, offset: int) -> str:
        return f"{self._topics.rows}/1/{offset}"


@pytest.fixture
def letters(connection: Connection, topics: Topics) -> Letters:
    asyncio.run(_commit(connection, topics, {1: 100}))
    return Letters(connection, topics)


async def _commit(connection: Connection, topics: Topics, offsets: dict[int, int]) -> None:
    """Commit as ingest does."""
    consumer = AIOKafkaConsumer(
        **connection.client_arguments(), group_id=f"{topics.rows}-ingest", enable_auto_commit=False
    )
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topics.rows, partition) for partition in offsets])
        await consumer.commit({TopicPartition(topics.rows, p): o for p, o in offsets.items()})
    finally:
        await consumer.stop()


@pytest.fixture
def published(connection: Connection, topics: Topics) -> Callable[[], list[ConsumerRecord]]:
    """The records of the rows topic."""
    return lambda: read_topic(connection, topics.rows)


def _listed(attributary: Command, *arguments: str) -> dict[str, Any]:
    done = attributary("list", "--json", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return dict(json.loads(done.stdout))


def _offsets(listed: dict[str, Any]) -> list[int]:
    return [letter["offset"] for letter in listed["letters"]]


def test_letters_are_listed_counted_and_chosen(attributary: Command, letters: Letters) -> None:
    row = b'{"model": "churn", "features": {}, "outputs": 1}'
    arrow = encode_arrow_rows("arrow", {"x": [1.0], "y": [2.0]}, ["y"])
    letters.send(
        letters.letter(5, row, first_seen=NOW + 5000),
        letters.letter(6, b"[" + row + b', {"model": "b"}]', reason="far_future", rows=[0, 1]),
        letters.letter(7, arrow, reason="far_future", first_seen=NOW + 7000),
        letters.letter(8, b"\xff", reason="not_decodable", headers=[("model", b"churn")]),
        letters.letter(5, row, first_seen=NOW + 5000),  # a block was replayed
        letters.letter(6, b"", reason="bad_time", rows=[4]),  # other rows of the same array
        (b"k", b"v", [("attributary-reason", b"half a letter")]),
    )
    done = attributary("list", "--json")
    assert "1 records are no dead letters" in done.stderr
    everything = json.loads(done.stdout)
    assert _offsets(everything) == [7, 5, 8, 6]
    assert everything["total"] == 4
    assert everything["reasons"] == {
        "far_future": 2, "bad_time": 1, "not_decodable": 1, "wrong_type": 1
    }  # fmt: skip
    found = {letter["offset"]: letter for letter in everything["letters"]}
    assert [found[n]["models"] for n in (5, 6, 7, 8)] == [
        ["churn"], ["b", "churn"], ["arrow"], ["churn"]
    ]  # fmt: skip
    assert found[6]["rows"] == [0, 1, 4]
    assert found[6]["reasons"] == ["far_future", "bad_time"]
    assert found[5]["rows"] is None
    assert {letter["state"] for letter in found.values()} == {"open"}
    assert found[5]["origin"] == letters.origin(5)

    def chosen(*arguments: str) -> list[int]:
        return _offsets(json.loads(attributary("list", "--json", *arguments).stdout))

    assert chosen("--model", "churn") == [5, 8, 6]
    assert chosen("--reason", "bad_time") == [6]
    assert chosen("--topic", "other") == []
    assert chosen("--limit", "2") == [7, 5]
    assert chosen("--limit", "2", "--oldest") == [6, 8]
    assert chosen("--since", "2027-01-15T08:00:05Z") == [7, 5]
    assert chosen("--until", "2027-01-15T08:00:05Z") == [8, 6]
    assert chosen("--since", "1h") == [7, 5, 8, 6]

    table = attributary("list").stdout
    assert "4 of 4 rejected messages: 2 far_future, 1 bad_time" in table
    assert letters.origin(6) in table


def test_a_letter_is_shown_and_never_drives_the_terminal(
    attributary: Command, letters: Letters, tmp_path: Path
) -> None:
    hostile, binary = '{"x": "\x1b[2J\u202e"}'.encode(), bytes(range(256)) * 4
    letters.send(
        letters.letter(
            1, hostile, key=b"\x1b[1mk", headers=[("model", b"m\x07"), ("traceparent", b"00-1")]
        ),
        letters.letter(2, binary, rows=[3, 4]),
        letters.letter(3, None, key=b"k"),
    )
    shown = attributary("show", letters.origin(1))
    assert (shown.returncode, shown.stderr) == (0, "")
    assert all(c.isprintable() or c == "\n" for c in shown.stdout)
    for part in ("wrong_type: all of it", r"\x1b[2J\u202e", "traceparent: 00-1", r"key: \x1b[1mk"):
        assert part in shown.stdout
    assert "not retried" in shown.stdout

    shown = attributary("show", letters.origin(2))
    assert "wrong_type: rows 3, 4" in shown.stdout
    assert "1,024 bytes, as hexadecimal" in shown.stdout
    assert "00000010  10 11 12" in shown.stdout
    assert "no content" in attributary("show", letters.origin(3)).stdout

    # The way in which `tail` names it, too.
    topic = letters.origin(2).partition("/")[0]
    done = attributary("show", f"{topic}[1]@2", "--raw", str(tmp_path / "raw"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "raw").read_bytes() == binary
    as_json = json.loads(attributary("show", letters.origin(2), "--json").stdout)
    assert base64.b64decode(as_json["value"]) == binary
    assert as_json["rejections"] == [
        {"reason": "wrong_type", "message": "not good", "rows": [3, 4]}
    ]

    assert f"no dead letter of {letters.origin(9)} in" in error_line(
        attributary("show", letters.origin(9))
    )
    assert "expected topic/partition/offset" in error_line(attributary("show", "9"))


def test_bytes_key_and_headers_are_published_again_as_they_came(
    attributary: Command, letters: Letters, published: Callable[[], list[ConsumerRecord]]
) -> None:
    own = [("model", b"m"), ("traceparent", b"00-1"), ("traceparent", b"00-2"), ("empty", b"")]
    value = b'  {"features": {"x": 1e0}, "outputs": 1, "odd":\t1}\n'
    letters.send(letters.letter(4, value, key=b"k", headers=own), letters.letter(5, b""))
    done = attributary("retry", letters.origin(4), letters.origin(5))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("published 2 messages to ")
    first, second = sorted(published(), key=lambda record: record.value or b"", reverse=True)
    assert (first.key, first.value, first.partition) == (b"k", value, 1)
    assert list(first.headers) == [
        *own, (RETRY_OF_HEADER, letters.origin(4).encode()), (ATTEMPT_HEADER, b"1")
    ]  # fmt: skip
    assert second.value == b""


def test_of_an_array_only_the_rejected_rows_are_published(
    attributary: Command, letters: Letters, published: Callable[[], list[ConsumerRecord]]
) -> None:
    array = b'[{"a": 1.50}, {"b" :2},  {"c":3}, {"d":4}, "e"]'
    loose = b'[{"a": NaN}, {"b": 1}]'
    table = {"x": [0.0, 1.0, 2.0, 3.0], "c": ["p", "q", "p", None], "y": [5.0, 6.0, 7.0, 8.0]}
    arrow = encode_arrow_rows("m", {**table, "c": pa.array(table["c"]).dictionary_encode()}, ["y"])
    kind = [("content-type", ARROW_CONTENT.encode())]
    letters.send(
        letters.letter(1, array, rows=[1, 4]),
        letters.letter(1, array, rows=[2], reason="far_future"),
        letters.letter(1, array, rows=[1, 4]),
        letters.letter(2, loose, rows=[0]),
        letters.letter(3, arrow, rows=[1, 3], headers=kind),
        letters.letter(4, b'{"a": 1}', rows=[0]),
    )
    done = attributary("retry", "--all", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert "published 4 messages (of arrays, only 7 rejected rows) to" in done.stdout
    found = {dict(r.headers)[RETRY_OF_HEADER].decode(): r.value for r in published()}
    assert found[letters.origin(1)] == b'[{"b" :2},{"c":3},"e"]'
    assert found[letters.origin(2)] == b'[{"a": NaN}]'
    assert found[letters.origin(4)] == b'{"a": 1}'
    rows = decode_arrow_rows(found[letters.origin(3)])
    assert rows.model == "m"
    assert rows.features["x"].to_pylist() == [1.0, 3.0]
    assert rows.features["c"].to_pylist() == ["q", None]
    assert rows.outputs["y"].tolist() == [6.0, 8.0]


def test_a_letter_is_published_once(
    attributary: Command, letters: Letters, published: Callable[[], list[ConsumerRecord]]
) -> None:
    array = b"[1, 2, 3]"
    letters.send(letters.letter(1), letters.letter(2), letters.letter(3, array, rows=[0]))
    assert attributary("retry", "--reason", "wrong_type", "--yes").returncode == 0
    assert len(published()) == 3
    again = attributary("retry", "--all", "--yes")
    assert (again.returncode, again.stdout) == (0, "nothing to retry\n")
    assert "3 already retried, left alone (--again)" in again.stderr
    # A block that is replayed writes its letters again; another row of the array is news.
    letters.send(letters.letter(1), letters.letter(3, array, rows=[0]))
    assert "nothing to retry" in attributary("retry", "--all", "--yes").stdout
    letters.send(letters.letter(3, array, rows=[2]))
    assert _offsets(_listed(attributary, "--pending")) == [3]
    assert (
        "published 1 message (of arrays, only 1 rej"
        in attributary("retry", "--all", "--yes").stdout
    )
    assert b"[3]" in {record.value for record in published()}
    states = {x["offset"]: x["state"] for x in _listed(attributary)["letters"]}
    assert states == {1: "retried", 2: "retried", 3: "retried"}
    assert "retried, 2 times" in attributary("show", letters.origin(3)).stdout
    assert attributary("retry", letters.origin(1), "--again").returncode == 0
    assert sorted(r.value for r in published()) == [b"[1]", b"[3]", b"x", b"x", b"x"]


def test_an_interrupted_retry_is_left_to_a_person(
    attributary: Command, letters: Letters, published: Callable[[], list[ConsumerRecord]]
) -> None:
    letters.send(letters.letter(1), letters.marker(1, "claimed"))
    letters.send(letters.letter(2), letters.marker(2, "claimed"), letters.marker(2, "void"))
    states = {x["offset"]: x["state"] for x in _listed(attributary)["letters"]}
    assert states == {1: "unfinished", 2: "open"}
    done = attributary("retry", "--all", "--yes")
    assert "1 left alone: a retry of them was interrupted" in done.stderr
    assert len(published()) == 1
    assert attributary("retry", letters.origin(1), "--again").returncode == 0
    assert len(published()) == 2


async def test_of_two_retries_at_once_one_publishes(
    connection: Connection, topics: Topics, letters: Letters
) -> None:
    records = [letters.letter(offset) for offset in range(20)]
    await asyncio.to_thread(letters.send, *records)

    async def one() -> Outcome:
        index = LetterIndex()
        ends = await read_index(connection, topics.dead_letters, index)
        await asyncio.sleep(0.1)  # so that all have read before one writes
        return await Retry(connection, topics).run(index, ends, list(index))

    outcomes = await asyncio.gather(one(), one(), one())
    assert sum(outcome.published for outcome in outcomes) == 20
    assert sum(outcome.taken_by_others for outcome in outcomes) == 40
    index = LetterIndex()
    await read_index(connection, topics.rows, index)
    assert index.unreadable == 20  # the published messages
    await read_index(connection, topics.dead_letters, index)
    assert {letter.state for letter in index} == {"retried"}


def test_what_cannot_be_published_again_is_said(
    attributary: Command, letters: Letters, published: Callable[[], list[ConsumerRecord]]
) -> None:
    cut = letters.letter(1, b"begin")
    letters.send(
        (*cut[:2], [*cut[2], ("attributary-truncated-from", b"9000000")]),
        letters.letter(2, b"[1]", rows=[5]),
        letters.letter(3, b"[1", rows=[0]),
        letters.letter(4, topic="somebody.elses", key=b"k"),
        letters.letter(5),
    )
    done = attributary("retry", "--all", "--yes")
    assert done.returncode == 1
    assert "/1/1: too large for a dead letter, of its 9000000 bytes the end is lost" in done.stderr
    assert "/1/2: expected more than 5 rows, got 1" in done.stderr
    assert "/1/3: neither JSON nor Arrow" in done.stderr
    assert "somebody.elses/1/4: only messages of the rows topic" in done.stderr
    assert [record.value for record in published()] == [b"x"]
    states = {x["offset"]: x["state"] for x in _listed(attributary)["letters"]}
    assert states == {1: "open", 2: "open", 3: "open", 4: "open", 5: "retried"}


def test_what_to_retry_must_be_said_and_confirmed(
    attributary: Command, letters: Letters, published: Callable[[], list[ConsumerRecord]]
) -> None:
    letters.send(letters.letter(1))
    assert "say what to retry" in error_line(attributary("retry"))
    assert "one of these" in error_line(attributary("retry", "--all", "--reason", "empty"))
    assert "say --yes (--dry-run shows them)" in error_line(attributary("retry", "--all"))
    shown = attributary("retry", "--all", "--dry-run")
    assert shown.returncode == 0
    assert letters.origin(1) in shown.stdout
    assert "would publish 1 message to " in shown.stdout
    assert "no dead letter of" in error_line(attributary("retry", letters.origin(7)))
    assert published() == []


async def test_a_record_of_nothing_at_all_stops_no_worker(
    connection: Connection, topics: Topics
) -> None:
    """Kafka takes records without key and value, and their dead letters have neither."""
    letter = DeadLetter(topics.rows, 1, 2, "empty", "nothing", NOW)
    producer = AcknowledgedProducer(connection)
    await producer.start()
    try:
        await producer.send([Outgoing(topics.dead_letters, None, None, headers=letter.headers())])
    finally:
        await producer.stop()
    index = LetterIndex()
    await read_index(connection, topics.dead_letters, index)
    assert [found.origin for found in index] == [letter.origin]


def test_tail_shows_letters_and_no_markers(
    connection: Connection, topics: Topics, attributary: Command, letters: Letters
) -> None:
    letters.send(letters.letter(1))
    assert attributary("retry", "--all", "--yes").returncode == 0
    prefix = topics.rows.removesuffix("rows")
    common = ["--bootstrap", connection.bootstrap, "--prefix", prefix]
    shown = run(*common, "tail", "--kind", "dead-letters", "--no-follow", "--json")
    assert len(shown.stdout.splitlines()) == 1


def test_letters_of_an_open_block_are_left_alone(
    attributary: Command, letters: Letters, published: Callable[[], list[ConsumerRecord]]
) -> None:
    letters.send(letters.letter(99), letters.letter(100), letters.letter(3, partition=2))
    done = attributary("retry", "--all", "--yes")
    assert done.returncode == 1
    assert "2 left alone: they lie in blocks that are still open" in done.stderr
    assert len(published()) == 1
    assert attributary("retry", "--all", "--yes", "--uncertain").returncode == 0
    assert len(published()) == 3


def test_rows_that_were_rejected_count_once_when_they_are_mended(
    connection: Connection, topics: Topics
) -> None:
    """Rows ahead of the clock are rejected; a worker that allows for it counts them, and only them.

    What lies in an open block it counts by itself: there is nothing to retry then.
    """
    common = ["--bootstrap", connection.bootstrap, "--prefix", topics.rows.removesuffix("rows")]
    now = time.time()
    rows = [
        {"model": "m", "time": now + 500 * (i % 3 == 0), "features": {"x": i}, "outputs": {"y": i}}
        for i in range(10)
    ]
    arrow = encode_arrow_rows(
        "m", {"x": [1.0, 2.0, 3.0], "_time": [now + 500, now, now + 500], "y": [1.0, 2.0, 3.0]}, ["y"]
    )  # fmt: skip
    good = json.dumps({"model": "m", "features": {"x": 1}, "outputs": {"y": 1}}).encode()
    kind = [("content-type", ARROW_CONTENT.encode())]

    async def publish(*messages: tuple[int, bytes, Headers]) -> None:
        producer = AIOKafkaProducer(**connection.client_arguments(), acks="all")
        await producer.start()
        try:
            for partition, value, headers in messages:
                await producer.send_and_wait(
                    topics.rows, value, partition=partition, headers=list(headers)
                )
        finally:
            await producer.stop()

    array = json.dumps(rows).encode()
    asyncio.run(
        publish(
            (0, array, ()),
            (1, arrow, kind),
            (2, b"garbage", ()),
            *((partition, good, ()) for partition in range(3)),  # these close blocks of one offset
            (3, array, ()),
        )
    )
    account: Accounting | None = None

    def settled(accepted: int, rejected: int) -> bool:
        nonlocal account
        account = asyncio.run(read_accounting(connection, topics))
        return account.settled and (account.accepted, account.rejected) == (accepted, rejected)

    def worker(max_future: str) -> Running:
        running = Running(
            *common, "stream",
            ATTRIBUTARY_INGEST__MAX_FUTURE_SECONDS=max_future,
            ATTRIBUTARY_INGEST__BLOCK_OFFSETS="1",
        )  # fmt: skip
        running.wait_for("ready broker")
        return running

    def letters(*arguments: str) -> Any:
        done = run(*common, "dead-letters", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout) if "--json" in arguments else done.stdout

    first = worker("100")
    try:
        wait_until(lambda: settled(16, 11), 30.0, lambda: f"{account}\n{first.output}")
        first.process.terminate()
        assert first.wait(15.0) == 0
    finally:
        first.close()
    assert letters("list", "--json")["reasons"] == {"far_future": 3, "not_decodable": 1}
    second = worker("1000")
    try:
        asyncio.run(publish((3, good, ())))
        wait_until(lambda: settled(21, 7), 30.0, lambda: f"{account}\n{second.output}")
        retried = run(*common, "dead-letters", "retry", "--all", "--yes")
        assert retried.returncode == 1
        said = "published 3 messages (of arrays, only 6 rejected rows) to "
        assert retried.stdout.startswith(said), retried
        assert "1 left alone: their blocks were counted again since" in retried.stderr
        assert f"({topics.rows}/3/0)" in retried.stderr
        # 27 rows were published, each counts once; the garbage was rejected twice.
        wait_until(lambda: settled(27, 8), 30.0, lambda: f"{account}\n{second.output}")
        pending = letters("list", "--pending", "--json")["letters"]
        (fresh,) = [letter for letter in pending if letter["attempt"]]
        assert fresh["reasons"] == ["not_decodable"]
        shown = letters("show", fresh["origin"], "--json")
        headers = {name: base64.b64decode(value) for name, value in shown["headers"]}
        assert headers[RETRY_OF_HEADER] == f"{topics.rows}/2/0".encode()
        second.process.terminate()
        assert second.wait(15.0) == 0
    finally:
        second.close()
