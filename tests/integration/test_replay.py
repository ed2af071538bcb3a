"""Replays: the numbers of the live run, and the same bytes every time."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from command import Running, run

from attributary import Publisher
from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics

pytestmark = pytest.mark.integration

ROWS = 12_000
# Of the run, not of the rows: when it was computed, and what this owner happened to receive twice.
_OF_THE_RUN = ("computed_at", "watermark", "accounting")


@pytest.fixture
def worker(connection: Connection, topics: Topics) -> Iterator[Running]:
    """A running stream worker on this test's topics."""
    prefix = topics.rows.removesuffix("rows")
    running = Running(
        *("--bootstrap", connection.bootstrap, "--prefix", prefix),
        *("stream", "--metrics-port", "0"),
    )
    running.wait_for("ready")
    yield running
    running.close()


def _tail(connection: Connection, prefix: str) -> list[dict[str, Any]]:
    done = run(
        *("--bootstrap", connection.bootstrap, "--prefix", prefix),
        *("tail", "--from-beginning", "--no-follow", "--json"),
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def _newest(messages: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the highest revision of every window and output, without what is of the run."""
    newest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for message in messages:
        window = message["window"]
        # The lifetime's end moves with the watermark.
        bounds = None if window["kind"] == "lifetime" else (window["start"], window["end"])
        key = (message["model"], message["output"], window["kind"], bounds)
        if key not in newest or newest[key]["revision"] <= message["revision"]:
            newest[key] = message
    for key, message in newest.items():
        kept = {name: value for name, value in message.items() if name not in _OF_THE_RUN}
        newest[key] = kept | {"window": key[3]}
    return newest


def test_two_replays_write_the_same_bytes_and_the_live_numbers(
    connection: Connection, topics: Topics, worker: Running
) -> None:
    live = topics.rows.removesuffix("rows")
    rng = np.random.default_rng(3)
    X = rng.normal(size=(ROWS, 4))
    # A step in the middle makes a second grid epoch, which the replay must use where the live run did.
    X[ROWS // 2 :, 0] += 8
    y = X @ [1.0, -0.5, 0.25, 0.0] + rng.normal(size=ROWS)
    start = 1_700_000_000.0
    with Publisher(
        connection.bootstrap, model="m", topic=topics.rows, feature_names=list("abcd")
    ) as publisher:
        for index in range(ROWS):
            publisher.publish(X[index], float(y[index]), time=start + index * 0.05, id=index)
        publisher.publish({"a": "text"}, 1.0)
        assert publisher.flush(30)
    deadline = time.monotonic() + 40
    while not (messages := _tail(connection, live)) or messages[-1]["revision"] < ROWS:
        assert time.monotonic() < deadline, "the live run did not count every row"
        time.sleep(0.5)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.wait(15) == 0

    prefixes = [f"{live}{name}." for name in ("first", "second")]
    for prefix in prefixes:
        done = run(
            *("--bootstrap", connection.bootstrap, "--prefix", live, "replay", "--into", prefix)
        )
        assert done.returncode == 0, done.stderr
        assert f"{ROWS:,} rows accepted, 1 rejected" in done.stdout
    first, second = (_tail(connection, prefix) for prefix in prefixes)
    assert first == second
    replayed, counted = _newest(first), _newest(_tail(connection, live))
    assert counted.keys() <= replayed.keys()
    for key, message in counted.items():
        differing = {
            name: (replayed[key][name], value)
            for name, value in message.items()
            if replayed[key][name] != value
        }
        assert not differing, (key, differing)
    assert len(counted) > 3
