"""A real Prometheus scrapes running workers: every panel and rule has data, every alert its fault."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost
import yaml
from aiokafka import AIOKafkaProducer
from command import Running
from grafana import expressions_of, variables_of
from ondemand import request
from own_prometheus import RULES, Prometheus
from stream_workers import settings_of

from attributary.schemas.card import Feature, InformationSchedule, ModelCard, Tumbling
from attributary.schemas.connection import Connection
from attributary.schemas.manifest import Manifest
from attributary.schemas.request import Instance
from attributary.schemas.topics import Topics
from attributary.service.artefacts import artefact_of
from attributary.service.embedded import free_port
from attributary.service.settings import TopicLayout
from attributary.service.supervisor import READY
from attributary.workers.stream.outgoing import sketch_partition

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        shutil.which("prometheus") is None,
        reason="Prometheus is not installed (Debian: prometheus)",
    ),
]

DEPLOY = Path(__file__).parents[2] / "deploy"
NAMES = ("a", "b", "c", "d", "e", "f")
_HEALTHY_SECONDS = 20.0
# Rows that are strange, before a flood holds them up.
_STRANGE_SECONDS = 15.0
_FAULT_SECONDS = 80.0
_GONE_SECONDS = 20.0
_SETTINGS = {
    "ATTRIBUTARY_INGEST__FLUSH_SECONDS": "0.3",
    "ATTRIBUTARY_INGEST__GRID_WAIT_SECONDS": "1",
    "ATTRIBUTARY_MERGE__PUBLISH_SECONDS": "0.5",
    "ATTRIBUTARY_MERGE__SNAPSHOT_SECONDS": "2",
    "ATTRIBUTARY_MERGE__IDLE_SECONDS": "3",
    "ATTRIBUTARY_MERGE__MAX_MODELS": "1",
    "ATTRIBUTARY_ONDEMAND__CONCURRENCY": "1",
    "ATTRIBUTARY_ONDEMAND__SCHEDULE_SECONDS": "2",
    "ATTRIBUTARY_ONDEMAND__QUEUE": "8",
}
_PARTITIONS = 4
# No fault that a test can make with workers that are well: rules_test.yml alone has them.
_NOT_MADE = {
    "AttributaryIngestStalled",
    "AttributaryLostOffsets",  # the embedded broker removes nothing
    "AttributaryRequestsStuck",
    "AttributarySnapshotFailed",
    "AttributaryWorkerHung",
}
# No bridge runs here, and no snapshot fails: these are asked, and answered with nothing.
_EMPTY = re.compile(
    r"pipeline: (Foreign messages|Lag of the bridge|Halves that wait|Snapshots that failed)"
)
# What only faults show.
_OF_FAULTS = re.compile(r"rejected, by reason|Alerts that fire|rows_rejected")


@pytest.fixture
def started() -> Iterator[list[Any]]:
    running: list[Any] = []
    yield running
    for one in reversed(running):
        one.close()


def card(folder: Path) -> ModelCard:
    """Register a model of trees whose first feature leads by far."""
    X = np.random.default_rng(0).standard_normal((500, len(NAMES)))
    model = xgboost.train(
        {"max_depth": 3, "nthread": 1}, xgboost.DMatrix(X, X[:, 0]), num_boost_round=400
    )
    path = folder / "m.ubj"
    model.save_model(path)
    return ModelCard(
        model="m",
        features=[Feature(name=name, group="ends" if name in "af" else None) for name in NAMES],
        outputs=["y"],
        pane_seconds=1.0,
        windows=[Tumbling(seconds=2.0)],
        allowed_lateness_seconds=0.0,
        samples=200,
        unique_information=InformationSchedule(
            every_seconds=2.0, parameters={"threshold": 0.0, "bootstraps": 5}
        ),
        artefact=artefact_of(str(path), None),
    )


class Traffic:
    """Rows at a steady rate; ``turned`` moves them and reverses the order of what moves the output."""

    def __init__(self, connection: Connection, topics: Topics) -> None:
        self._connection = connection
        self._topics = topics
        self._rng = np.random.default_rng(1)
        self.turned = False
        self.faults: list[Callable[[AIOKafkaProducer], Any]] = []

    async def run(self, until: Callable[[], bool]) -> None:
        """Send a batch of rows every tenth of a second."""
        producer = AIOKafkaProducer(
            **self._connection.client_arguments(), max_request_size=8 * 2**20
        )
        await producer.start()
        try:
            while not until():
                for partition in range(_PARTITIONS):
                    await producer.send(self._topics.rows, self._batch(30), partition=partition)
                for fault in self.faults:
                    await fault(producer)
                await producer.flush()
                await asyncio.sleep(0.1)
        finally:
            await producer.stop()

    def _batch(self, rows: int) -> bytes:
        X = self._rng.standard_normal((rows, len(NAMES))) + (2.0 if self.turned else 0.0)
        weights = np.array([3.0, 2.0, 1.4, 1.0, 0.7, 0.0])
        if self.turned:
            weights = weights[::-1]
        Y = X @ weights + 0.5 * self._rng.standard_normal(rows)
        Y = Y + (9.0 if self.turned else 0.0)
        return json.dumps(
            [
                {
                    "model": "m",
                    "features": dict(zip(NAMES, x if i else [None, *x[1:]], strict=True)),
                    "outputs": [y],
                }
                for i, (x, y) in enumerate(zip(X.tolist(), Y.tolist(), strict=True))
            ]
        ).encode()


def asked() -> dict[str, str]:
    """Return the queries of panels and variables as Grafana would send them, and the recorded series."""
    given = {
        "$model": "m", "$output": "y", "$window": "tumbling_2s", "$feature": "b",
        "$reference": "baseline", "$__rate_interval": "5s",
    }  # fmt: skip
    found = {}
    for path in sorted((DEPLOY / "grafana" / "dashboards").glob("*.json")):
        for where, expression in (*expressions_of(path), *variables_of(path)):
            for name, value in given.items():
                expression = expression.replace(name, value)
            assert "$" not in expression, expression
            found[where] = expression
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "record" in rule and "snapshot" not in rule["record"]:
                found[rule["record"]] = rule["record"]
    return found


def beside(model: str, name: str) -> str:
    """Return a model's name whose sketches come to the same partition as another's."""
    count = TopicLayout().sketches_partitions
    names = (f"{name}-{k}" for k in range(100))
    return next(
        one for one in names if sketch_partition(one, count) == sketch_partition(model, count)
    )


def test_panels_have_data_and_alerts_have_their_faults(
    connection: Connection, topics: Topics, tmp_path: Path, started: list[Any]
) -> None:
    asyncio.run(_watch(connection, topics, tmp_path, started))


async def _watch(connection: Connection, topics: Topics, folder: Path, started: list[Any]) -> None:
    settings = {**_SETTINGS, **settings_of(connection, topics)}
    ports = [free_port() for _ in range(3)]
    commands = [["stream"], ["stream"], ["ondemand", "--model-root", str(folder)]]
    for command, port in zip(commands, ports, strict=True):
        started.append(Running(*command, "--metrics-port", str(port), **settings))
    one, two, explains = started
    traffic = Traffic(connection, topics)
    model = card(folder)

    async def register(producer: AIOKafkaProducer) -> None:
        await producer.send_and_wait(topics.models, model.to_bytes(), model.model.encode())

    async def ask(producer: AIOKafkaProducer, name: str = "m", rows: int = 1) -> None:
        row = Instance(features=dict.fromkeys(NAMES, 0.5))
        ask = request(
            f"{name}-{time.time_ns()}", name, instances=[row] * rows, background=[row, row]
        )
        await producer.send(topics.requests, ask.to_bytes(), ask.id.encode())

    for running in started:
        running.wait_for(READY)
    prometheus = Prometheus(folder, [f"127.0.0.1:{port}" for port in ports])
    started.append(prometheus)
    prometheus.wait_for(len(ports))
    await _once(connection, register)
    rounds = 0

    async def ask_now_and_then(producer: AIOKafkaProducer) -> None:
        nonlocal rounds
        if (rounds := rounds + 1) % 10 == 0:
            await ask(producer)
            await ask(producer, "unknown")

    traffic.faults = [ask_now_and_then]

    missing = asked()
    fired: dict[str, list[dict[str, str]]] = {}
    began = time.monotonic()
    rules = yaml.safe_load(RULES.read_text())["groups"]
    alerts = {rule["alert"] for group in rules for rule in group["rules"] if "alert" in rule}
    alerts -= _NOT_MADE

    async def observe(until: Callable[[], bool]) -> None:
        while not until():
            for name, expression in list(missing.items()):
                if prometheus.query(expression):
                    del missing[name]
            for labels in prometheus.firing():
                told = fired.setdefault(labels["alertname"], [])
                if labels not in told:
                    told.append(labels)
            await asyncio.sleep(0.5)

    def healthy() -> bool:
        return time.monotonic() - began > _HEALTHY_SECONDS

    await asyncio.gather(traffic.run(healthy), observe(healthy))
    assert fired == {}, "an alert fired although nothing was wrong"
    left = {name for name in missing if not _OF_FAULTS.search(name) and not _EMPTY.search(name)}
    assert left == set()

    # Merge takes one model for each of its partitions here.
    late, refused = beside("n", "stuck"), beside("m", "refused")

    async def strange(producer: AIOKafkaProducer) -> None:
        for model, at in ((late, 1e9), (refused, time.time())):
            row = {"model": model, "features": {"a": 1.0}, "outputs": [time.time() % 1], "time": at}
            await producer.send(topics.rows, json.dumps(row).encode())

    async def junk(producer: AIOKafkaProducer) -> None:
        for _ in range(4):
            await producer.send(topics.rows, b'{"model": "m", "features": ')

    # Ever more until they show, however fast the machine is.
    steps = {"AttributaryLag": 500, "AttributaryRequestBacklog": 3}
    load = dict(steps)

    async def flood(producer: AIOKafkaProducer) -> None:
        strange_shown = fired.keys() >= {
            "AttributaryWatermarkStalled",
            "AttributaryWatermarkMissing",
        }
        if not strange_shown and time.monotonic() < began + _HEALTHY_SECONDS + _STRANGE_SECONDS:
            return
        for _ in range(load["AttributaryRequestBacklog"]):
            await ask(producer, rows=50)
        for n in range(load["AttributaryLag"]):
            await producer.send(topics.rows, b"junk", partition=n % _PARTITIONS)
        for alert, step in steps.items():
            load[alert] = step if alert in fired else min(load[alert] + step, 40 * step)

    async def lose(producer: AIOKafkaProducer) -> None:
        for topic, block, end in (("lost", 0, 30), ("lost", 20, 30), ("anew", 0, 4)):
            manifest = Manifest(
                topic=topic, partition=0, partitions=1, block=block, upto=block + 10,
                previous=None, sealed=True, acknowledged=end, end_offset=end,
            )  # fmt: skip
            for partition in range(_PARTITIONS):
                await producer.send(
                    topics.sketches, manifest.to_bytes(), manifest.key, partition=partition
                )

    await _once(connection, lose)
    traffic.turned = True
    traffic.faults += [strange, junk, flood]
    # Not at once: what has changed must show before the model's owner may move.
    asyncio.get_running_loop().call_later(25, two.process.kill)
    ended = time.monotonic() + _FAULT_SECONDS

    gone = {"AttributaryWorkersGone", "AttributaryRequestWorkersGone"}

    def shown() -> bool:
        return all(_EMPTY.search(name) for name in missing)

    def enough() -> bool:
        return (fired.keys() >= alerts - gone and shown()) or time.monotonic() > ended

    await asyncio.gather(traffic.run(enough), observe(enough))
    told = (one.output[-2000:], explains.output[-2000:])
    assert shown(), (missing, told)
    assert alerts - gone - fired.keys() == set(), told

    for running in started[:3]:
        running.process.kill()
    ended = time.monotonic() + _GONE_SECONDS
    await observe(lambda: fired.keys() >= alerts or time.monotonic() > ended)
    assert alerts - fired.keys() == set()

    window = {"model": "m", "window": "tumbling_2s"}
    about = {
        "AttributaryGap": {"topic": "lost", "partition": "0", "severity": "critical"},
        "AttributaryLogEndLost": {"topic": "anew", "partition": "0", "severity": "critical"},
        "AttributaryWatermarkStalled": {"model": late},
        "AttributaryWatermarkMissing": {"model": refused},
        "AttributaryLag": {"topic": topics.rows},
        "AttributaryPartitionUnread": {"topic": topics.rows},
        "AttributaryWorkerDown": {"instance": f"127.0.0.1:{ports[1]}"},
        "AttributaryRankFlip": {**window, "output": "y", "feature": NAMES[-1]},
        "AttributaryAttributionDrift": {**window, "output": "y", "reference": "baseline"},
        "AttributaryInputDrift": {**window, "feature": "b", "reference": "baseline"},
        "AttributaryOutputDrift": {**window, "output": "y", "reference": "baseline"},
    }
    for alert, expected in about.items():
        assert any(expected.items() <= labels.items() for labels in fired[alert]), fired[alert]
    of_processes = {"AttributaryWorkerDown"}
    for alert in fired.keys() - of_processes:
        assert not any({"instance", "job"} & labels.keys() for labels in fired[alert]), alert


async def _once(connection: Connection, send: Callable[[AIOKafkaProducer], Any]) -> None:
    producer = AIOKafkaProducer(**connection.client_arguments())
    await producer.start()
    try:
        await send(producer)
    finally:
        await producer.stop()
