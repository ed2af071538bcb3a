"""Memory of an ingest process while rows come faster than it counts them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.endtoend_rows import json_rows
from benchmarks.endtoend_stage import PARTITIONS, Stage, brokers, staged, wait
from benchmarks.suite import Options, Suite, number, table

GROWTH_MOST = 10.0
_SECONDS = 600.0
# Of a model so wide that a few megabytes a second are more than a process takes.
_WIDE_FEATURES, _WIDE_OUTPUTS = 100, 100
_ABOUT = f"""Rows of {_WIDE_FEATURES} features and {_WIDE_OUTPUTS} outputs come half as fast again as
one process counts them. Its memory in the second quarter of the time and in the last, medians, and at most.
Growth is what the most of the last quarter lies above the median of the second."""


def overload(kind: str, options: Options) -> dict[str, Any]:
    """Return a worker's memory while rows come faster than it takes them, sampled every second."""
    seconds = 15.0 if options.quick else _SECONDS
    pool = json_rows(500, _WIDE_FEATURES, _WIDE_OUTPUTS, digits=2)
    with staged(kind) as stage:
        stage.preload(pool, 8_000)
        (worker,) = stage.start(1, "ingest")
        published, counted = asyncio.run(_flood(stage, worker.usage, pool, seconds))
        rss = list(worker.usage.rss)
    quarter = len(rss) // 4
    settled = float(np.median(rss[quarter : 2 * quarter]))
    return {
        "broker": kind,
        "seconds": seconds,
        "published": published,
        "counted": counted,
        "bytes": len(pool[0]),
        "rss": rss,
        "growth": 100.0 * (max(rss[-quarter:]) / settled - 1.0),
    }


async def _flood(stage: Stage, usage: Any, pool: list[bytes], seconds: float) -> tuple[int, int]:
    """Publish half as fast again as the worker counts, so that it never catches up; return both counts."""
    worker = stage.workers[0]
    producer = stage.producer()
    await producer.start()
    loop = asyncio.get_running_loop()
    published, began, counted = 0, time.monotonic(), 0
    try:
        while (passed := time.monotonic() - began) < seconds:
            counted = (await loop.run_in_executor(None, worker.rows))[0]
            usage.sample()
            step = max(2_000, round(1.5 * counted / max(passed, 1.0)))
            waiting = [
                await producer.send(
                    stage.topics.rows,
                    pool[(published + index) % len(pool)],
                    partition=index // 16 % PARTITIONS,
                )
                for index in range(step)
            ]
            await asyncio.gather(*waiting)
            published += step
            await loop.run_in_executor(None, wait, passed + 1.0, began)
    finally:
        await producer.stop()
    return published, counted


def cases(options: Options) -> dict[str, Callable[[], Any]]:
    """Return the measurement on every broker that this machine can run."""
    kinds = ["embedded"] if options.quick else brokers()
    return {f"overload/{kind}": partial(overload, kind, options) for kind in kinds}


def _memory(found: dict[str, Any]) -> list[str]:
    rss = [value / 2**20 for value in found["rss"]]
    quarter = len(rss) // 4
    return [
        found["broker"],
        number(found["published"] / found["seconds"]),
        number(found["counted"] / found["seconds"]),
        f"{np.median(rss[quarter : 2 * quarter]):.0f}",
        f"{np.median(rss[-quarter:]):.0f}",
        f"{max(rss):.0f}",
        f"{found['growth']:.1f} %",
        "yes" if found["growth"] <= GROWTH_MOST else "**no**",
    ]


def section(results: dict[str, Any]) -> str:
    """Return the table."""
    head = ["broker", "published/s", "counted/s", "second quarter", "last quarter", "at most"]
    head += ["growth", f"at most {GROWTH_MOST:g} %"]
    rows = [_memory(found) for found in results.values()]
    return f"{_ABOUT}\n\n{table(head, rows)}"


SUITE = Suite("overload", "Memory under overload, MiB", cases, section)
