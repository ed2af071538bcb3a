"""The lightweight mode under a real backlog: every row counted, a fraction sketched, and said."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

import numpy as np
import pytest
from aiokafka import AIOKafkaProducer
from command import Running, run

from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics

pytestmark = pytest.mark.integration

ROWS, PARTITIONS = 8_000, 4
# Of each partition's blocks that begin at 0, 512, 1,024 and 1,536 the first is a calibration block, and
# the last begins less than the lag before the end.
LIGHT_ROWS = PARTITIONS * 2 * 512
NAMES = [f"x{i}" for i in range(10)]
MODE = {
    "ATTRIBUTARY_INGEST__LIGHTWEIGHT": "behind",
    "ATTRIBUTARY_INGEST__LIGHTWEIGHT_ABOVE_LAG": "700",
    "ATTRIBUTARY_INGEST__BLOCK_OFFSETS": "512",
    "ATTRIBUTARY_INGEST__CALIBRATION_EVERY": "4",
}


async def _send(connection: Connection, topic: str, rows: list[dict[str, Any]]) -> None:
    """Send one row a message: a lag is counted in messages."""
    async with AIOKafkaProducer(bootstrap_servers=connection.bootstrap) as producer:
        for index, row in enumerate(rows):
            await producer.send(topic, json.dumps(row).encode(), partition=index % PARTITIONS)


def _tail(connection: Connection, prefix: str) -> list[dict[str, Any]]:
    done = run(
        *("--bootstrap", connection.bootstrap, "--prefix", prefix),
        *("tail", "--from-beginning", "--no-follow", "--json"),
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def _lifetime(messages: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((m for m in reversed(messages) if m["window"]["kind"] == "lifetime"), None)


def _counts_all(message: dict[str, Any] | None) -> bool:
    books = {} if message is None else message["accounting"]
    return (books.get("rows"), books.get("rows_accepted")) == (ROWS, ROWS)


def test_a_backlog_is_sketched_lightly_until_the_worker_has_caught_up(
    connection: Connection, topics: Topics
) -> None:
    prefix = topics.rows.removesuffix("rows")
    place = ("--bootstrap", connection.bootstrap, "--prefix", prefix)
    rng = np.random.default_rng(4)
    X = rng.normal(size=(ROWS, len(NAMES)))
    y = X @ np.linspace(-1, 1, len(NAMES)) + rng.normal(size=ROWS)
    rows = [
        {
            "model": "m",
            "id": index,
            "time": 1.7e9 + index * 0.02,
            "features": dict(zip(NAMES, x, strict=True)),
            "outputs": out,
        }
        for index, (x, out) in enumerate(zip(X.tolist(), y.tolist(), strict=True))
    ]
    asyncio.run(_send(connection, topics.rows, rows))
    worker = Running(*place, "stream", "--metrics-port", "0", **MODE)
    try:
        worker.wait_for("ready")
        deadline = time.monotonic() + 60
        while not _counts_all(found := _lifetime(_tail(connection, prefix))):
            assert time.monotonic() < deadline, "the worker did not count every row"
            time.sleep(0.5)
    finally:
        worker.close()
    assert found is not None
    accounting = found["accounting"]
    assert accounting["gaps"] == 0
    assert accounting["fractions"] == [0.25, 1.0]
    assert accounting["rows_thinned"] == pytest.approx(0.75 * LIGHT_ROWS, rel=0.05)
    agreement = found["light_agreement"]
    assert agreement["fractions"] == [0.25]
    assert agreement["rows_light"] / agreement["rows"] == pytest.approx(0.25, abs=0.05)
    assert agreement["spearman"] > 0.9

    again = f"{prefix}again."
    done = run(*place, "replay", "--into", again, seconds=60, **MODE)
    told = re.search(r"([\d,]+) rows accepted \(([\d,]+) of them left out", done.stdout)
    assert told is not None, done.stdout
    accepted, thinned = (int(number.replace(",", "")) for number in told.groups())
    assert (accepted, thinned) == (ROWS, accounting["rows_thinned"])
    assert "0 rejected" in done.stdout
    replayed = _lifetime(_tail(connection, again))
    assert replayed is not None
    assert replayed["accounting"]["rows_thinned"] == accounting["rows_thinned"]
    assert (replayed["features"], replayed["light_agreement"]) == (found["features"], agreement)
