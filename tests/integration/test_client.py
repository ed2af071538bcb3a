"""Publisher and subscription on a real broker: nothing lost, nothing twice, whatever the process does."""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest
from aiokafka import AIOKafkaProducer
from records import read_topic

from attributary import Publisher, subscribe
from attributary.schemas.attribution import (
    Accounting,
    AttributionDrift,
    ColumnDrift,
    Window,
    WindowAttribution,
    WindowDrift,
)
from attributary.schemas.connection import Connection
from attributary.schemas.errors import BrokerError, ConfigurationError
from attributary.schemas.row import Row, decode_json_rows
from attributary.schemas.topics import Topics
from attributary.service import sender as sender_module
from attributary.service.topics import create_topics

pytestmark = pytest.mark.integration

IN_A_PROCESS = """
import sys
from attributary import Publisher

publisher = Publisher(sys.argv[1], topic=sys.argv[2], model="m")
for index in range(1000):
    publisher.publish({"x": index}, 1.0, id=index)
"""


def _rows(connection: Connection, topics: Topics) -> list[Row]:
    rows = []
    for record in read_topic(connection, topics.rows):
        model = dict(record.headers)["model"].decode()
        found = decode_json_rows(record.value, model=model)
        assert not found.errors
        rows += [row for _, _, row in found.rows]
    return rows


def _ids(connection: Connection, topics: Topics) -> Counter[Any]:
    return Counter(row.id for row in _rows(connection, topics))


def _publisher(connection: Connection, topics: Topics, **options: Any) -> Publisher:
    return Publisher(connection, topic=topics.rows, strict=True, **{"model": "m", **options})


def _await_until(condition: Any, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "took too long"
        time.sleep(0.02)


def test_rows_arrive_as_they_were_published(connection: Connection, topics: Topics) -> None:
    with _publisher(connection, topics, feature_names=["x", "z"]) as publisher:
        publisher.publish(
            {"x": 1.5, "plan": "pro", "gone": None}, 0.5, id="a", time=1.0, weight=2.0
        )
        publisher.publish(np.array([1.0, math.nan]), np.array([0.25, 0.75]), id=2, time=2.0)
        assert publisher.flush()
        assert (publisher.published, publisher.pending) == (2, 0)
    (record,) = read_topic(connection, topics.rows)
    assert dict(record.headers) == {"content-type": b"application/json", "model": b"m"}
    assert record.key is None
    assert _rows(connection, topics) == [
        Row({"x": 1.5, "plan": "pro", "gone": None}, 0.5, None, "a", 1.0, 2.0),
        Row({"x": 1.0, "z": None}, [0.25, 0.75], None, 2, 2.0),
    ]


def test_many_threads_publish_every_row_once(connection: Connection, topics: Topics) -> None:
    publisher = _publisher(connection, topics)

    def work(thread: int) -> None:
        for index in range(500):
            publisher.publish({"x": index}, 1.0, id=f"{thread}-{index}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert publisher.close()
    assert publisher.published == 4000
    assert _ids(connection, topics) == Counter(f"{t}-{i}" for t in range(8) for i in range(500))


async def test_asyncio_publishes_without_waiting(connection: Connection, topics: Topics) -> None:
    async with _publisher(connection, topics) as publisher:
        for index in range(1000):
            publisher.publish({"x": index}, 1.0, id=index)
        assert await publisher.aflush()
        assert publisher.published == 1000
        publisher.publish({"x": 0}, 1.0, id=1000)
    assert publisher.published == 1001
    found = await asyncio.to_thread(_ids, connection, topics)
    assert found == Counter(range(1001))


def test_a_batch_is_its_rows(connection: Connection, topics: Topics) -> None:
    features = np.random.default_rng(0).normal(size=(5000, 3))
    with _publisher(connection, topics, feature_names=["a", "b", "c"]) as publisher:
        assert publisher.publish_batch(features, features[:, 0], ids=np.arange(5000)) == 5000
    rows = {row.id: row for row in _rows(connection, topics)}
    assert len(rows) == 5000
    for index in (0, 1234, 4999):
        assert list(rows[index].features.values()) == features[index].tolist()
        assert rows[index].outputs == features[index, 0]


def test_rows_without_a_key_spread_evenly(connection: Connection, topics: Topics) -> None:
    with _publisher(connection, topics, linger_seconds=0.0) as publisher:
        for index in range(40):
            publisher.publish({"x": index}, 1.0)
            assert publisher.flush()
    found = Counter(record.partition for record in read_topic(connection, topics.rows))
    assert sorted(found.values()) == [10, 10, 10, 10]


def test_keyed_rows_of_a_model_share_a_partition(connection: Connection, topics: Topics) -> None:
    places: dict[bytes | None, set[int]] = {}
    for model in ("churn", "fraud", "price"):
        options = {"model": model, "keyed": True, "linger_seconds": 0.0}
        with _publisher(connection, topics, **options) as publisher:
            for index in range(5):
                publisher.publish({"x": index}, 1.0)
                assert publisher.flush()
    for record in read_topic(connection, topics.rows):
        places.setdefault(record.key, set()).add(record.partition)
    assert {key: len(found) for key, found in places.items()} == {
        b"churn": 1,
        b"fraud": 1,
        b"price": 1,
    }


def test_a_message_that_the_broker_can_never_take_fails_alone(
    connection: Connection, topics: Topics
) -> None:
    with _publisher(connection, topics) as publisher:
        publisher.publish({"x": 1}, 1.0, id="before")
        publisher.publish_message(b"x" * 2**21, 7, "application/json")
        publisher.publish({"x": 1}, 1.0, id="after")
        assert publisher.flush()
        assert (publisher.published, publisher.failed) == (2, 7)
    assert set(_ids(connection, topics)) == {"before", "after"}


def test_rows_of_an_outage_are_sent_afterwards(own_broker: Any) -> None:
    connection, topics = Connection(bootstrap=own_broker.bootstrap), Topics.with_prefix("outage.")
    asyncio.run(create_topics(connection, topics))
    publisher = _publisher(connection, topics)
    for index in range(100):
        publisher.publish({"x": index}, 1.0, id=index)
    assert publisher.flush()
    own_broker.stop()
    slowest = 0.0
    for index in range(100, 300):
        began = time.perf_counter()
        assert publisher.publish({"x": index}, 1.0, id=index)
        slowest = max(slowest, time.perf_counter() - began)
        time.sleep(0.001)
    assert slowest < 0.5
    assert not publisher.flush(0.5)
    assert publisher.pending == 200
    own_broker.start()
    assert publisher.flush(60.0)
    assert (publisher.published, publisher.dropped) == (300, 0)
    publisher.close()
    if own_broker.kind == "kafka":  # the embedded one comes back empty, without the topic
        assert set(_ids(connection, topics)) == set(range(300))


def test_a_broker_that_freezes_delays_rows_and_not_the_caller(own_broker: Any) -> None:
    connection, topics = Connection(bootstrap=own_broker.bootstrap), Topics.with_prefix("freeze.")
    asyncio.run(create_topics(connection, topics))
    publisher = _publisher(connection, topics)
    publisher.publish({"x": 0}, 1.0, id=0)
    assert publisher.flush()
    process = own_broker.pid if own_broker.kind == "embedded" else own_broker._process.pid
    os.kill(process, signal.SIGSTOP)
    try:
        slowest = 0.0
        for index in range(1, 5000):
            began = time.perf_counter()
            assert publisher.publish({"x": index}, 1.0, id=index)
            slowest = max(slowest, time.perf_counter() - began)
        assert not publisher.flush(1.0)
    finally:
        os.kill(process, signal.SIGCONT)
    assert slowest < 0.5
    assert publisher.close(30.0)
    assert publisher.published == 5000
    assert _ids(connection, topics) == Counter(range(5000))


def test_a_process_that_just_ends_sends_its_rows_first(
    connection: Connection, topics: Topics
) -> None:
    for host in (connection.bootstrap, connection.bootstrap.replace("127.0.0.1", "localhost")):
        done = subprocess.run(
            [sys.executable, "-c", IN_A_PROCESS, host, topics.rows],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert _ids(connection, topics) == Counter(dict.fromkeys(range(1000), 2))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_children_publish_their_own_rows_and_not_their_parents(
    connection: Connection, topics: Topics
) -> None:
    publisher = _publisher(connection, topics, linger_seconds=0.2)
    publisher.publish({"x": 0}, 1.0, id="parent-0")  # still in the buffer when the child begins

    def work() -> None:
        for index in range(20):
            publisher.publish({"x": index}, 1.0, id=f"child-{index}")

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    for index in range(1, 50):
        publisher.publish({"x": index}, 1.0, id=f"parent-{index}")
        time.sleep(0.01)
    child.join(30)
    assert child.exitcode == 0
    publisher.publish({"x": 0}, 1.0, id="parent-50")
    assert publisher.close(), "the parent's thread still hears"
    assert publisher.published == 51
    expected = [f"parent-{index}" for index in range(51)] + [f"child-{i}" for i in range(20)]
    assert _ids(connection, topics) == Counter(expected)


def _attribution(model: str, revision: int, output: str = "y") -> WindowAttribution:
    return WindowAttribution(
        model=model,
        output=output,
        window=Window(kind="lifetime", start=0, end=1),
        revision=revision,
        final=False,
        watermark=None,
        computed_at=0,
        epochs=[0],
        output_quartiles=None,
        features=[],
        groups=[],
        accounting=Accounting(
            rows=revision,
            rows_accepted=revision,
            rows_rejected={},
            rows_late=0,
            offsets={},
            duplicates=0,
            gaps=0,
        ),
    )


async def _produce(connection: Connection, topic: str, *values: bytes | None) -> None:
    producer = AIOKafkaProducer(**connection.client_arguments(), acks="all")
    await producer.start()
    try:
        for value in values:
            await producer.send_and_wait(topic, value, key=b"k")
    finally:
        await producer.stop()


VALUES = (
    _attribution("a", 1).to_bytes(),
    b"garbage",
    _attribution("b", 2).to_bytes(),
    None,
    b'{"schema":"attributary.attribution/9"}',
    _attribution("a", 3, "z").to_bytes(),
    _attribution("a", 4).to_bytes(),
)


def test_what_is_there_is_read_and_the_unreadable_is_counted(
    connection: Connection, topics: Topics
) -> None:
    asyncio.run(_produce(connection, topics.attributions, *VALUES))
    messages = subscribe(connection, topics=topics, from_beginning=True, follow=False)
    assert [message.revision for message in messages] == [1, 2, 3, 4]
    assert messages.skipped == 3
    for options, revisions in (
        ({"model": "a"}, [1, 3, 4]),
        ({"model": "a", "output": "z"}, [3]),
        ({"output": "y"}, [1, 2, 4]),
        ({"model": "nobody"}, []),
    ):
        found = subscribe(connection, topics=topics, from_beginning=True, follow=False, **options)
        assert [message.revision for message in found] == revisions


def test_an_empty_topic_ends_at_once(connection: Connection, topics: Topics) -> None:
    assert list(subscribe(connection, topics=topics, follow=False)) == []


async def test_from_entering_on_every_message_is_delivered(
    connection: Connection, topics: Topics
) -> None:
    await _produce(connection, topics.attributions, *VALUES)
    async with subscribe(connection, topics=topics, model="a") as messages:
        await _produce(connection, topics.attributions, _attribution("a", 5).to_bytes())
        assert (await anext(messages)).revision == 5
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(anext(messages), 0.5)
        await _produce(connection, topics.attributions, _attribution("a", 6).to_bytes())
        assert (await asyncio.wait_for(anext(messages), 20)).revision == 6
    with pytest.raises(ConfigurationError, match="closed"):
        await anext(messages)


async def test_closing_ends_a_loop_that_waits(connection: Connection, topics: Topics) -> None:
    messages = subscribe(connection, topics=topics)

    async def collect() -> list[Any]:
        return [message async for message in messages]

    collecting = asyncio.create_task(collect())
    await asyncio.sleep(1.0)
    await messages.aclose()
    assert await asyncio.wait_for(collecting, 10) == []


@pytest.mark.filterwarnings("error")
def test_leaving_a_plain_loop_early_leaves_nothing_open(
    connection: Connection, topics: Topics
) -> None:
    asyncio.run(_produce(connection, topics.attributions, *VALUES))
    for message in subscribe(connection, topics=topics, from_beginning=True):
        assert message.revision == 1
        break
    with subscribe(connection, topics=topics, from_beginning=True) as messages:
        assert next(messages).revision == 1


async def test_attributions_and_drift_together(connection: Connection, topics: Topics) -> None:
    nothing = {name: None for kind in (ColumnDrift, AttributionDrift) for name in kind.model_fields}
    drift = WindowDrift(
        model="a",
        output="y",
        window=Window(kind="lifetime", start=0, end=1),
        revision=9,
        reference="preceding",
        reference_window=None,
        computed_at=0,
        rows=1,
        reference_rows=1,
        features=[],
        output_drift=ColumnDrift.model_validate({**nothing, "name": "y"}),
        attributions=AttributionDrift.model_validate(nothing),
    )
    await _produce(connection, topics.attributions, _attribution("a", 1).to_bytes())
    await _produce(connection, topics.drift, drift.to_bytes())
    async with subscribe(
        connection,
        topics=topics,
        kinds=("attributions", "drift"),
        from_beginning=True,
        follow=False,
    ) as messages:
        found = {type(m): m.revision async for m in messages}
    assert found == {WindowAttribution: 1, WindowDrift: 9}


def test_topics_that_are_missing_are_named_and_not_created(
    connection: Connection, topic_names: Topics
) -> None:
    for _ in range(2):
        with pytest.raises(BrokerError, match="topics create") as caught:
            next(subscribe(connection, topics=topic_names))
        assert topic_names.attributions in str(caught.value)


def test_callers_wake_the_thread_only_after_a_long_pause(
    connection: Connection, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waking it takes ten times as long as the rest of a call."""
    monkeypatch.setattr(sender_module, "WATCHFUL_SECONDS", 0.3)
    with _publisher(connection, topics) as publisher:
        publisher.publish({"x": 0}, 1.0, id=0)
        assert publisher.flush()
        assert publisher._sending is not None
        sender = publisher._sending._sender
        assert sender is not None
        woken: list[Any] = []
        call = sender._call
        monkeypatch.setattr(sender, "_call", lambda f: (woken.append(f), call(f)))
        for index in range(1, 40):
            publisher.publish({"x": index}, 1.0, id=index)
            time.sleep(0.02)
        _await_until(lambda: publisher.published == 40)
        assert woken == []
        _await_until(lambda: publisher._outbox.waker is not None)
        began = time.monotonic()
        publisher.publish({"x": 40}, 1.0, id=40)
        assert len(woken) == 1
        _await_until(lambda: publisher.published == 41)
        assert time.monotonic() - began < 5.0
    assert _ids(connection, topics) == Counter(range(41))
