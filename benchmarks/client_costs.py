"""What the Kafka client adds to the cores, and what a worker's process takes before it has a row.

The embedded broker runs in a process of its own; processor time is that of the client alone.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import psutil
from aiokafka import AIOKafkaConsumer, TopicPartition

from benchmarks.endtoend_stage import PARTITIONS, Stage, staged
from benchmarks.suite import Options

STEPS = {
    "send_record": "send",
    "send_byte": "send",
    "fetch_record": "fetch",
    "fetch_byte": "fetch",
}
_SIZES = 500, 20_000
_BYTES = 40_000_000


def measure(options: Options) -> dict[str, float]:
    """Return the seconds a record and a byte that sending and reading take, and the process's memory."""
    found: dict[str, list[float]] = {"send": [], "fetch": []}
    ends = [0] * PARTITIONS
    with staged("embedded") as stage:
        if options.quick:
            memory = psutil.Process().memory_info().rss
        else:
            (worker,) = stage.start(1)
            worker.usage.sample()
            (memory,) = worker.usage.rss
        for size in _SIZES:
            count = min(20_000, _BYTES // size) // (10 if options.quick else 1)
            began = ends
            sent, ends = asyncio.run(_send(stage, size, count))
            found["send"].append(sent / count)
            found["fetch"].append(asyncio.run(_fetch(stage, began, count)) / count)
    result: dict[str, float] = {"worker_memory": memory}
    for name, (small, large) in found.items():
        per_byte = max(0.0, (large - small) / (_SIZES[1] - _SIZES[0]))
        result[f"{name}_byte"] = per_byte
        result[f"{name}_record"] = max(0.0, small - per_byte * _SIZES[0])
    return result


async def _send(stage: Stage, size: int, count: int) -> tuple[float, list[int]]:
    """Send records as a worker does; return the processor seconds, and where the partitions end."""
    producer = stage.producer()
    await producer.start()
    topic, ends = stage.topics.sketches, [0] * PARTITIONS
    try:
        began = time.process_time()
        for start in range(0, count, 500):
            waiting = [
                await producer.send(topic, bytes(size), b"key", partition=index % PARTITIONS)
                for index in range(start, min(start + 500, count))
            ]
            for record in await asyncio.gather(*waiting):
                ends[record.partition] = max(ends[record.partition], record.offset + 1)
        return time.process_time() - began, ends
    finally:
        await producer.stop()


async def _fetch(stage: Stage, began: list[int], count: int) -> float:
    """Read the newest records as a worker does; return the processor seconds."""
    arguments: dict[str, Any] = {
        **stage.connection.client_arguments(),
        "fetch_max_bytes": 32 * 2**20,
        "max_partition_fetch_bytes": 16 * 2**20,
    }
    consumer = AIOKafkaConsumer(**arguments)
    await consumer.start()
    try:
        parts = [TopicPartition(stage.topics.sketches, number) for number in range(PARTITIONS)]
        consumer.assign(parts)
        for part, offset in zip(parts, began, strict=True):
            consumer.seek(part, offset)
        seen, before = 0, time.process_time()
        while seen < count:
            batches = await consumer.getmany(timeout_ms=1000, max_records=4000)
            seen += sum(len(records) for records in batches.values())
        return time.process_time() - before
    finally:
        await consumer.stop()
