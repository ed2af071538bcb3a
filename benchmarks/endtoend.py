"""The whole way on one machine: broker, worker processes and clients share its cores."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from aiokafka import AIOKafkaConsumer

from attributary.schemas.card import Lifetime, ModelCard
from benchmarks.endtoend_rows import ARROW_ROWS, MODEL, arrow_batches, json_rows
from benchmarks.endtoend_stage import PARTITIONS, Stage, brokers, staged
from benchmarks.suite import Options, Suite, number, table

FEATURES = 100
JSON_FLOOR, ARROW_FLOOR, P99_MOST = 15_000, 50_000, 3.0
#: Rows of a preloaded topic, for one process.
_ROWS = {"json": 300_000, "arrow": 900_000}
_DELAY_RATE = 1_000
_LAST_SECONDS = 60.0

_CONTENT = {
    "json": (JSON_FLOOR, "one JSON row a message"),
    "arrow": (ARROW_FLOOR, f"Arrow batches of {ARROW_ROWS} rows"),
}
_ABOUT = f"""Broker, workers and clients are processes of one machine and share its cores. Rows have
{FEATURES} features and one output, Gaussian, with all their digits."""
_ABOUT_SPEED = """The topic is full when the ingest processes start. Time and processor time count from
the first rows that each of them has had acknowledged to the last row. Processor time is that of a row,
of all workers together and of the broker; memory is the most that a worker had."""
_ABOUT_DELAY = """One worker for ingest and merge, flushes and results every second, rows at a steady rate:
from the moment before a row is given to the producer to the moment at which a reader has the first message
that counts it."""


def throughput(kind: str, content: str, processes: int, options: Options) -> dict[str, Any]:
    """Return how fast worker processes take a topic that is full when they start.

    Time and use count from the first acknowledged rows of every process to the last row.
    """
    rows = _ROWS[content] * processes // (3 if options.quick else 1)
    per_message = 1 if content == "json" else ARROW_ROWS
    pool = json_rows(10_000, FEATURES) if content == "json" else arrow_batches(40, FEATURES)
    with staged(kind) as stage:
        stage.preload(pool, rows // per_message)
        workers = stage.start(processes, "ingest")
        used = [*(worker.usage for worker in workers), stage.broker]
        began, first = 0.0, 0
        while True:
            counts = [worker.rows()[0] for worker in workers]
            now, done = time.monotonic(), sum(counts)
            for usage in used:
                usage.sample()
            if not began and all(counts):
                began, first = now, done
                for usage in used:
                    usage.start()
            if done >= rows:
                break
            time.sleep(0.2)
        cpu, broker_cpu = sum(worker.usage.seconds for worker in workers), stage.broker.seconds
        assert sum(worker.rows()[1] for worker in workers) == 0
        if first == rows:
            raise RuntimeError(f"{rows:,} rows were counted before the clock began: give it more")
        return {
            "broker": kind,
            "content": content,
            "processes": processes,
            "rows": rows - first,
            "bytes": len(pool[0]) / per_message,
            "seconds": now - began,
            "cpu_seconds": cpu,
            "broker_cpu_seconds": broker_cpu,
            "rss": max(max(worker.usage.rss, default=0) for worker in workers),
        }


def delay(kind: str, options: Options) -> dict[str, Any]:
    """Return how long after it was produced a row is counted in a message that a reader has received.

    A row is counted once the message's accounting covers its offset.
    """
    seconds, warm_up = (8.0, 5.0) if options.quick else (120.0, 15.0)
    with staged(kind) as stage:
        stage.register(ModelCard(model=MODEL, windows=[Lifetime()]))
        (worker,) = stage.start(1)
        produced, messages = asyncio.run(_steady(stage, warm_up, seconds))
        cpu = worker.usage.seconds
    delays: list[float] = []
    for partition, rows in produced.items():
        place = f"{stage.topics.rows}/{partition}"
        at = 0
        for received, offsets in messages:
            upto = offsets.get(place, (0, 0))[1]
            while at < len(rows) and rows[at][0] < upto:
                delays.append(received - rows[at][1])
                at += 1
        assert at == len(rows), "rows that no message counts"
    p50, p99, most = np.quantile(delays, [0.5, 0.99, 1.0]).tolist()
    return {
        "broker": kind,
        "rate": _DELAY_RATE,
        "rows": len(delays),
        "p50": p50,
        "p99": p99,
        "max": most,
        "cpu_seconds": cpu,
    }


async def _steady(
    stage: Stage, warm_up: float, seconds: float
) -> tuple[dict[int, list[tuple[int, float]]], list[tuple[float, dict[str, Any]]]]:
    """Publish at a steady rate; return (offset, time) by partition, and what messages say they cover."""
    pool = json_rows(2_000, FEATURES)
    messages: list[tuple[float, dict[str, Any]]] = []
    consumer = AIOKafkaConsumer(
        stage.topics.attributions, **stage.connection.client_arguments(), fetch_max_wait_ms=100
    )
    producer = stage.producer()
    await consumer.start()
    await producer.start()

    async def read() -> None:
        async for record in consumer:
            messages.append((time.monotonic(), json.loads(record.value)["accounting"]["offsets"]))

    reader = asyncio.create_task(read())
    sent: list[tuple[float, Any]] = []
    try:
        began = time.monotonic()
        total = round(_DELAY_RATE * (warm_up + seconds))
        for index in range(total):
            due = began + index / _DELAY_RATE
            if index % 10 == 0 and due > time.monotonic():
                await asyncio.sleep(due - time.monotonic())
            value = pool[index % len(pool)]
            now = time.monotonic()
            waiting = await producer.send(stage.topics.rows, value, partition=index % PARTITIONS)
            if index >= _DELAY_RATE * warm_up:
                if not sent:
                    stage.workers[0].usage.start()
                sent.append((now, waiting))
        acknowledged = [(now, await waiting) for now, waiting in sent]
        ends: dict[int, int] = {}
        for _, record in acknowledged:
            ends[record.partition] = max(record.offset, ends.get(record.partition, 0))
        while time.monotonic() < began + warm_up + seconds + _LAST_SECONDS:
            covered = messages[-1][1] if messages else {}
            places = {p: covered.get(f"{stage.topics.rows}/{p}", (0, 0))[1] for p in ends}
            if all(places[p] > end for p, end in ends.items()):
                break
            await asyncio.sleep(0.1)
    finally:
        reader.cancel()
        await consumer.stop()
        await producer.stop()
    produced: dict[int, list[tuple[int, float]]] = {}
    for now, record in acknowledged:
        produced.setdefault(record.partition, []).append((record.offset, now))
    return {partition: sorted(rows) for partition, rows in produced.items()}, messages


def cases(options: Options) -> dict[str, Callable[[], Any]]:
    """Return the measurements on every broker that this machine can run."""
    found: dict[str, Callable[[], Any]] = {}
    for kind in ["embedded"] if options.quick else brokers():
        for content in ("json", "arrow"):
            for processes in (1,) if options.quick and content == "arrow" else (1, 2):
                name = f"endtoend/{kind}/{content}/{processes}"
                found[name] = partial(throughput, kind, content, processes, options)
        found[f"endtoend/{kind}/delay"] = partial(delay, kind, options)
    return found


def _met(holds: bool) -> str:
    return "yes" if holds else "**no**"


def _floors(results: dict[str, Any]) -> str:
    rows: list[tuple[str, str, str, str, bool]] = []
    for name, found in results.items():
        broker = found["broker"]
        if "content" in found and found["processes"] == 1:
            floor, messages = _CONTENT[found["content"]]
            rate = found["rows"] / found["seconds"]
            what = f"rows/s of one ingest process, {messages}"
            rows.append((what, broker, f"at least {floor:,}", number(rate), rate >= floor))
        elif name.endswith("delay"):
            p99, most = found["p99"], f"at most {P99_MOST:g}"
            what = "seconds from a row to its attribution, p99"
            rows.append((what, broker, most, number(p99), p99 <= P99_MOST))
    cells = [[*row[:4], _met(row[4])] for row in rows]
    return table(["what", "broker", "floor", "measured", "met"], cells, left=2)


def _speed(found: dict[str, Any]) -> list[str]:
    rows = found["rows"]
    return [
        found["broker"],
        _CONTENT[found["content"]][1],
        str(found["processes"]),
        f"{rows:,}",
        number(rows / found["seconds"]),
        number(1e6 * found["cpu_seconds"] / rows),
        number(1e6 * found["broker_cpu_seconds"] / rows),
        f"{found['rss'] / 2**20:.0f}",
    ]


def section(results: dict[str, Any]) -> str:
    """Return the tables."""
    speed = [_speed(found) for found in results.values() if "content" in found]
    delays = [
        [found["broker"], f"{found['rate']:,}", f"{found['rows']:,}"]
        + [f"{found[key]:.2f}" for key in ("p50", "p99", "max")]
        for found in results.values()
        if "p99" in found
    ]
    head = ["broker", "messages", "processes", "rows", "rows/s", "worker µs", "broker µs", "MiB"]
    parts = [_ABOUT, _floors(results)]
    if speed:
        parts += ["### Rows a second", _ABOUT_SPEED, table(head, speed, left=2)]
    if delays:
        head = ["broker", "rows/s", "rows", "p50 s", "p99 s", "longest s"]
        parts += ["### From a row to its attribution", _ABOUT_DELAY, table(head, delays)]
    return "\n\n".join(parts)


SUITE = Suite("endtoend", "The whole way, broker included", cases, section)
