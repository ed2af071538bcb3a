"""The publisher without a broker: it neither blocks nor breaks the model, and counts what is lost."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from attributary import Publisher, subscribe
from attributary.schemas.errors import BrokerError, ConfigurationError, Reason, RejectedError
from attributary.service.embedded import free_port

ROW = {"age": 41.0, "plan": "pro"}


@pytest.fixture
def nowhere() -> str:
    """An address where nothing listens."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def silence() -> Iterator[str]:
    """An address that accepts connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(50)
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def _run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60
    )


def test_without_a_broker_rows_wait_then_drop_and_no_call_blocks(
    nowhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Publisher(nowhere, model="m", max_rows=100) as publisher:
        slowest = 0.0
        for _ in range(1000):
            began = time.perf_counter()
            publisher.publish(ROW, 0.5)
            slowest = max(slowest, time.perf_counter() - began)
        assert slowest < 0.5
        assert (publisher.pending, publisher.dropped) == (100, 900)
        time.sleep(1.0)
        assert not publisher.flush(0.1)
        began = time.monotonic()
        assert not publisher.close(0.1)
        assert time.monotonic() - began < 3.5
    assert (publisher.published, publisher.pending, publisher.dropped) == (0, 0, 1000)
    away = [record for record in caplog.records if "cannot publish to" in record.message]
    full = [record for record in caplog.records if "the buffer is full" in record.message]
    assert (len(away), len(full)) == (1, 1), "said once, not per row"
    assert not [record for record in caplog.records if record.name.startswith("aiokafka")]


def test_a_broker_that_never_answers_holds_up_nobody(silence: str) -> None:
    publisher = Publisher(silence, model="m")
    began = time.monotonic()
    for _ in range(100):
        assert publisher.publish(ROW, 0.5)
    assert time.monotonic() - began < 0.5
    time.sleep(0.3)
    began = time.monotonic()
    assert not publisher.close(0.2)
    assert time.monotonic() - began < 4.0
    assert publisher.dropped == 100
    assert not [t for t in threading.enumerate() if t.name == "attributary-publisher"]


def test_bytes_bound_the_buffer_too(nowhere: str) -> None:
    publisher = Publisher(nowhere, model="m", max_bytes=10_000)
    for _ in range(100):
        publisher.publish({"text": "x" * 1000}, 0.5)
    assert 5 <= publisher.pending <= 10
    assert publisher.dropped == 100 - publisher.pending
    publisher.close(0.0)


def test_invalid_rows_are_counted_and_logged_not_raised(
    nowhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = Publisher(nowhere, model="m", feature_names=["a", "b"])
    refused: list[dict[str, Any]] = [
        {"features": ROW, "outputs": "high"},
        {"features": ROW, "outputs": 0.5, "weight": float("nan")},
        {"features": ROW, "outputs": 0.5, "weight": -1},
        {"features": {}, "outputs": 0.5},
        {"features": [1, 2, 3], "outputs": 0.5},
        {"features": object(), "outputs": 0.5},
        {"features": ROW, "outputs": 0.5, "time": "yesterday"},
        {"features": ROW, "outputs": 0.5, "model": "with space"},
    ]
    for options in refused:
        assert publisher.publish(**options) is False
    assert publisher.publish_batch(np.zeros((3, 2)), [1, 2, 3], weights=[1, 0, 1]) == 2
    assert publisher.publish_batch(np.zeros((3, 2)), [1, 2]) == 0
    assert publisher.invalid == len(refused) + 1 + 2
    assert publisher.pending == 2
    weights = [record for record in caplog.records if "bad_weight" in record.message]
    assert len(weights) == 1, "one line for each reason, not for each row"
    publisher.close(0.0)


def test_strict_raises_what_is_wrong(nowhere: str) -> None:
    publisher = Publisher(nowhere, model="m", strict=True)
    with pytest.raises(RejectedError) as caught:
        publisher.publish(ROW, 0.5, weight=0)
    assert caught.value.reason == Reason.BAD_WEIGHT
    with pytest.raises(RejectedError, match="2 outputs for 1 rows"):
        publisher.publish_batch({"a": [1]}, [1, 2])
    assert publisher.invalid == 3
    with pytest.raises(RejectedError, match="weight"):
        publisher.publish_batch({"a": [1, 2, 3]}, [1, 2, 3], weights=[1, 0, 1])
    assert (publisher.invalid, publisher.pending) == (4, 1)
    publisher.close(0.0)


class _Explosive(Mapping[str, float]):
    """Features that fail when they are read."""

    def __getitem__(self, key: str) -> float:
        raise RuntimeError("boom")

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


def test_objects_with_a_mind_of_their_own_spoil_their_row_only(nowhere: str) -> None:
    publisher = Publisher(nowhere, model="m")
    assert publisher.publish(_Explosive(), 0.5) is False
    values = np.array([1.0, object(), 3.0], dtype=object)
    assert publisher.publish_batch({"a": values}, [_Explosive(), 2, 3]) == 1
    assert (publisher.invalid, publisher.pending) == (3, 1)
    publisher.close(0.0)


@pytest.mark.parametrize(
    "options",
    [
        {"bootstrap": "localhost"},
        {"bootstrap": "localhost:http"},
        {"bootstrap": ""},
        {"bootstrap": "a:1,b"},
        {"model": "with space"},
        {"feature_names": ["x", "x"]},
        {"max_rows": 0},
        {"linger_seconds": -1.0},
        {"keyed": True},
    ],
    ids=str,
)
def test_arguments_that_cannot_work_are_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Publisher(**options)
    assert "\n" not in str(caught.value)


def test_nothing_is_started_before_the_first_row(nowhere: str) -> None:
    threads = threading.active_count()
    publisher = Publisher(nowhere, model="m")
    assert publisher.flush(0.0)
    assert publisher.close(0.0)
    assert threading.active_count() == threads


def test_a_closed_publisher_drops_and_counts(nowhere: str) -> None:
    publisher = Publisher(nowhere, model="m")
    publisher.close()
    publisher.close()
    assert publisher.publish(ROW, 0.5) is False
    assert publisher.dropped == 1


def test_an_exiting_process_waits_no_longer_than_it_was_told(nowhere: str) -> None:
    code = (
        "import sys; from attributary import Publisher\n"
        "publisher = Publisher(sys.argv[1], model='m', exit_timeout=0.5)\n"
        "publisher.publish({'a': 1}, 2)\n"
    )
    began = time.monotonic()
    done = _run(code, nowhere)
    assert done.returncode == 0
    assert time.monotonic() - began < 5.0
    assert "1 rows were not acknowledged in time" in done.stderr
    assert "Traceback" not in done.stderr


async def test_asyncio_goes_on_while_the_publisher_waits(nowhere: str) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    ticking = asyncio.create_task(tick())
    publisher = Publisher(nowhere, model="m")
    publisher.publish(ROW, 0.5)
    assert not await publisher.aflush(0.3)
    assert ticks > 10
    assert not await publisher.aclose(0.1)
    ticking.cancel()


def test_aiokafka_logs_of_other_threads_stay(
    nowhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = Publisher(nowhere, model="m")
    publisher.publish(ROW, 0.5)
    time.sleep(0.3)
    publisher.close(0.0)
    logging.getLogger("aiokafka").error("of the application's own client")
    assert [r.message for r in caplog.records if r.name == "aiokafka"] == [
        "of the application's own client"
    ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_starts_with_nothing_of_its_parents(nowhere: str) -> None:
    publisher = Publisher(nowhere, model="m")
    publisher.publish(ROW, 0.5)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(
            writing,
            f"{publisher.pending} {publisher.publish(ROW, 0.5)} {publisher.pending}".encode(),
        )
        os._exit(0)
    os.close(writing)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(reading, 100) == b"0 True 1"
    os.close(reading)
    assert publisher.pending == 1
    publisher.close(0.0)


def test_subscribing_without_a_broker_is_one_clear_error(nowhere: str) -> None:
    with pytest.raises(BrokerError, match="no broker answers at") as caught:
        next(iter(subscribe(nowhere)))
    assert "\n" not in str(caught.value)


async def test_subscribing_without_a_broker_in_asyncio(nowhere: str) -> None:
    with pytest.raises(BrokerError, match="no broker answers at"):
        async with subscribe(nowhere):
            pass


async def test_the_plain_loop_is_refused_where_an_event_loop_runs(nowhere: str) -> None:
    with pytest.raises(ConfigurationError, match="async for"):
        next(iter(subscribe(nowhere)))


@pytest.mark.parametrize("kinds", [(), ("rows",), ("attributions", "other"), "drift"])
def test_kinds_that_there_are_not(kinds: Any) -> None:
    with pytest.raises(ConfigurationError, match="kinds are"):
        subscribe(kinds=kinds)
