"""Scheduled ``mcir-m`` by two workers on a real broker: one run a tick, whoever has the partition."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable

import numpy as np
import pytest
from handles import FunctionHandle
from merge_stream import START, Stream, feed
from ondemand import Answers, Sender, Worker
from records import read_topic_async
from streams import card

from attributary.schemas.attribution import WindowAttribution
from attributary.schemas.card import InformationSchedule, ModelCard, Tumbling
from attributary.schemas.connection import Connection
from attributary.schemas.sketch import encode_sketch
from attributary.schemas.topics import Topics
from attributary.schemas.unique_information import UniqueInformationRun, is_run
from attributary.service.subscribe import subscribe
from attributary.workers.explainers.mcir import mcir
from attributary.workers.ondemand.schedule import scheduled_id
from attributary.workers.stream.outgoing import Outgoing, result_record, sketch_partition

pytestmark = pytest.mark.integration

NAMES = ("a", "b", "c")
WIDTH, ROWS = 20, 200
#: Event time in seconds, features, output.
Row = tuple[float, list[float], float]


def schedule_card() -> ModelCard:
    return card(
        *NAMES,
        samples=500,
        windows=[Tumbling(seconds=WIDTH)],
        allowed_lateness_seconds=0.0,
        unique_information=InformationSchedule(every_seconds=2, parameters={"bootstraps": 4}),
    )


class Source:
    """Two source partitions, each with half of every window's rows; a goes with b."""

    def __init__(self) -> None:
        self.stream = Stream(schedule_card(), partitions=2, size=64)
        self.merge = self.stream.merge()
        self.rows: list[Row] = []
        self._rng = np.random.default_rng(3)

    def window(self, number: int, topics: Topics) -> list[Outgoing]:
        """Return what stream workers would send once the window is final."""
        X = self._rng.standard_normal((ROWS, 3))
        X[:, 1] = 0.8 * X[:, 0] + 0.6 * X[:, 1]
        Q = X[:, 0] + X[:, 2]
        batches: list[list[Row]] = [[], []]
        for row, (x, q) in enumerate(zip(X.tolist(), Q.tolist(), strict=True)):
            batches[row % 2].append((number * WIDTH + (WIDTH - 2) * row / ROWS, x, q))
        for partition, batch in enumerate(batches):
            # A row of the next window moves the watermark past the end of this one.
            batch.append(((number + 1) * WIDTH + 1.0, [0.0] * 3, 0.0))
            self._send(partition, batch)
        parts = self.stream.flush()
        feed(self.merge, parts)
        told = list(self.merge.publish(START + (number + 1) * WIDTH * 1000))
        final = [m for m in told if isinstance(m, WindowAttribution) and m.final]
        assert [m.window.start for m in final] == [START + number * WIDTH * 1000]
        place = sketch_partition("m", 4)
        sketches = [
            Outgoing(topics.sketches, part[0].key, encode_sketch(*part), place)
            for part in parts
            if isinstance(part, tuple)
        ]
        return [*sketches, *(result_record(message, topics) for message in told)]

    def _send(self, partition: int, batch: list[Row]) -> None:
        message = [
            {
                "model": "m",
                "features": dict(zip(NAMES, x, strict=True)),
                "outputs": [q],
                "time": START / 1000 + seconds,
            }
            for seconds, x, q in batch
        ]
        self.stream.add(partition, json.dumps(message).encode())
        self.rows += batch

    def rows_of(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a window's rows in the order of time."""
        inside = [row for row in self.rows if number <= row[0] / WIDTH < number + 1]
        inside.sort(key=lambda row: row[0])
        return np.array([x for _, x, _ in inside]), np.array([q for _, _, q in inside])

    def grid(self) -> bytes:
        epoch = self.stream.catalogue.epoch("m")
        assert epoch is not None
        return epoch.record.to_bytes()


def marginal(worker: Worker) -> float | None:
    return worker.registry.get_sample_value(
        "attributary_unique_marginal_nats", {"model": "m", "feature": "c"}
    )


def no_model(card: ModelCard) -> FunctionHandle:
    raise AssertionError("a window of the stream needs no model")


async def runs_of(
    connection: Connection, topics: Topics, enough: Callable[[list[UniqueInformationRun]], bool]
) -> list[UniqueInformationRun]:
    """Return the runs in the attributions topic once there are enough."""
    deadline = time.monotonic() + 30
    while True:
        records = await read_topic_async(connection, topics.attributions)
        found = [
            UniqueInformationRun.from_bytes(one.value) for one in records if is_run(one.headers)
        ]
        if enough(found):
            return found
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.2)


def check(run: UniqueInformationRun, X: np.ndarray, Q: np.ndarray) -> None:
    """It is what mcir says of the window's rows of both partitions, in the order of time."""
    assert run.result.window is not None
    assert (run.result.rows, run.result.observed) == (len(X), True)
    near = None
    if run.result.neighbourhoods is not None and run.result.neighbourhoods.origin == "reused":
        near = [[1], [0], []]
    direct = mcir(X, Q, neighbourhoods=near, bootstraps=4, rng=np.random.default_rng(0))
    for one in run.result.features:
        i = NAMES.index(one.feature)
        assert (one.score, one.marginal) == (direct.score[i], direct.marginal[i])
        assert one.interval == tuple(direct.interval[i])


async def test_a_pool_runs_each_tick_once(connection: Connection, topics: Topics) -> None:
    source = Source()

    async def send(sender: Sender, records: list[Outgoing]) -> None:
        for one in records:
            await sender.raw(one.topic, one.key, one.value, one.headers, one.partition)

    async with Sender(connection, topics) as sender:
        first = source.window(0, topics)
        await sender.card(source.stream.card)
        await sender.raw(topics.grids, b"m", source.grid())
        await send(sender, first)
        pool = [Worker(connection, topics, no_model, schedule_seconds=1.0) for _ in range(2)]
        await asyncio.gather(*(worker.__aenter__() for worker in pool))
        try:
            (run,) = await runs_of(connection, topics, lambda found: len(found) == 1)
            asked = await read_topic_async(connection, topics.requests)
            (request,) = [record for record in asked if record.key == run.id.encode()]
            # As a worker would that had the partition for a moment and did not know of this request.
            await sender.raw(
                request.topic, request.key, request.value, request.headers, request.partition
            )
            await send(sender, source.window(1, topics))
            found = await runs_of(
                connection, topics, lambda found: any(r.tick > run.tick for r in found)
            )
            assert sum(worker.metric("repeated_requests_total") for worker in pool) == 1
            assert sum(marginal(worker) is not None for worker in pool) == 1
        finally:
            await asyncio.gather(*(worker.__aexit__(None, None, None) for worker in pool))
        every = Answers()
        every.add(await read_topic_async(connection, topics.explanations))
    assert run.id == scheduled_id("m", run.tick)
    assert len({r.tick for r in found}) == len(found) == 2
    assert {len(finals) for finals in every.final.values()} == {1}
    check(run, *source.rows_of(0))
    last = found[-1]
    check(last, *source.rows_of(1))
    assert run.result.neighbourhoods is not None
    assert run.result.neighbourhoods.origin == "found"
    assert last.result.neighbourhoods is not None
    assert last.result.neighbourhoods.origin == "reused"
    await read_apart(connection, topics, len(found))


async def read_apart(connection: Connection, topics: Topics, runs: int) -> None:
    """Whoever reads the windows' messages sees nothing of the runs, and the other way round."""
    given = {"topics": topics, "from_beginning": True, "follow": False}
    windows = subscribe(connection, **given)
    async with windows:
        messages = [message async for message in windows]
    assert messages
    assert all(isinstance(message, WindowAttribution) for message in messages)
    seen = []
    for output in (None, "y", "other"):
        scheduled = subscribe(connection, kinds=["unique-information"], output=output, **given)
        async with scheduled:
            seen.append(len([run.tick async for run in scheduled]))
    assert seen == [runs, runs, 0]
    assert (windows.skipped, scheduled.skipped) == (0, 0)
    assert len(await read_topic_async(connection, topics.attributions)) == len(messages) + runs
