"""A real Prometheus scrapes running workers: every panel and rule has data, every alert its fault."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost
import yaml
from aiokafka import AIOKafkaProducer
from command import Running
from ondemand import request
from stream_workers import settings_of

from attributary.schemas.card import Feature, InformationSchedule, ModelCard, Tumbling
from attributary.schemas.connection import Connection
from attributary.schemas.manifest import Manifest
from attributary.schemas.request import Instance
from attributary.schemas.topics import Topics
from attributary.service.artefacts import artefact_of
from attributary.service.embedded import free_port
from attributary.service.supervisor import READY

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
_FAULT_SECONDS = 80.0
_SETTINGS = {
    "ATTRIBUTARY_INGEST__FLUSH_SECONDS": "0.3",
    "ATTRIBUTARY_INGEST__GRID_WAIT_SECONDS": "1",
    "ATTRIBUTARY_MERGE__PUBLISH_SECONDS": "0.5",
    "ATTRIBUTARY_MERGE__SNAPSHOT_SECONDS": "2",
    "ATTRIBUTARY_MERGE__IDLE_SECONDS": "3",
    "ATTRIBUTARY_ONDEMAND__CONCURRENCY": "1",
    "ATTRIBUTARY_ONDEMAND__SCHEDULE_SECONDS": "2",
    "ATTRIBUTARY_ONDEMAND__QUEUE": "8",
}
# Hours and minutes become seconds, so that a test can wait for them; thresholds of load become a test's load.
_FASTER = {
    "[5m]": "[5s]", "[10m]": "[5s]", "offset 1h": "offset 16s", "> 1e6": "> 500",
}  # fmt: skip


class Prometheus:
    """A Prometheus of the test's own on loopback."""

    def __init__(self, folder: Path, targets: list[str]) -> None:
        rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())
        for group in rules["groups"]:
            for rule in group["rules"]:
                for slow, fast in _FASTER.items():
                    rule["expr"] = rule["expr"].replace(slow, fast)
                if "for" in rule:
                    rule["for"] = "1s"
        (folder / "rules.yml").write_text(yaml.safe_dump(rules))
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [
                {"job_name": "attributary", "static_configs": [{"targets": targets}]}
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._url = f"http://127.0.0.1:{(port := free_port())}"
        self._log = (folder / "log").open("w")
        self.process = subprocess.Popen(
            [
                "prometheus", f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=self._log, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the instant vector of an expression."""
        arguments = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self._url}/api/v1/query?{arguments}", timeout=5) as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return result

    def firing(self) -> set[str]:
        """Return the alerts that fire now."""
        found = self.query('ALERTS{alertstate="firing"}')
        return {one["metric"]["alertname"] for one in found}

    def ready(self) -> bool:
        """Say whether it answers."""
        try:
            return bool(self.query("up"))
        except OSError:
            return False

    def close(self) -> None:
        """Stop it."""
        self.process.terminate()
        self.process.wait(20)
        self._log.close()


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
                for partition in range(4):
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


def panels() -> dict[str, str]:
    """Return every panel's queries as Grafana would send them."""
    given = {
        "$model": "m", "$output": "y", "$window": "tumbling_2s", "$feature": ".*",
        "$reference": "baseline", "$__rate_interval": "5s",
    }  # fmt: skip
    found = {}
    for path in sorted((DEPLOY / "grafana" / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                expression = target["expr"]
                for name, value in given.items():
                    expression = expression.replace(name, value)
                found[f"{path.stem}: {panel['title']} {target['refId']}"] = expression
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "record" in rule:
                found[rule["record"]] = rule["record"]
    return found


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
    await _once(connection, register)
    asked = 0

    async def ask_now_and_then(producer: AIOKafkaProducer) -> None:
        nonlocal asked
        if (asked := asked + 1) % 10 == 0:
            await ask(producer)
            await ask(producer, "unknown")

    traffic.faults = [ask_now_and_then]

    missing = panels()
    fired: set[str] = set()
    began = time.monotonic()
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())["groups"]
    alerts = {rule["alert"] for group in rules for rule in group["rules"] if "alert" in rule}

    async def observe(until: Callable[[], bool]) -> None:
        while not until():
            if prometheus.ready():
                for name, expression in list(missing.items()):
                    if prometheus.query(expression):
                        del missing[name]
                fired.update(prometheus.firing())
            await asyncio.sleep(0.5)

    def healthy() -> bool:
        return time.monotonic() - began > _HEALTHY_SECONDS

    await asyncio.gather(traffic.run(healthy), observe(healthy))
    assert fired == set(), "an alert fired although nothing was wrong"
    assert not [name for name in missing if "rejected" not in name.lower()], missing

    async def stuck(producer: AIOKafkaProducer) -> None:
        row = {"model": "stuck", "features": {"a": 1.0}, "outputs": [time.time() % 1], "time": 1e9}
        await producer.send(topics.rows, json.dumps(row).encode())

    async def junk(producer: AIOKafkaProducer) -> None:
        for _ in range(4):
            await producer.send(topics.rows, b'{"model": "m", "features": ')

    # Ever more until they show, however fast the machine is.
    steps = {"AttributaryLag": 500, "AttributaryRequestBacklog": 3}
    load = dict(steps)

    async def flood(producer: AIOKafkaProducer) -> None:
        for _ in range(load["AttributaryRequestBacklog"]):
            await ask(producer, rows=50)
        for n in range(load["AttributaryLag"]):
            await producer.send(topics.rows, b"junk", partition=n % 4)
        for alert, step in steps.items():
            load[alert] = step if alert in fired else min(load[alert] + step, 40 * step)

    async def lose(producer: AIOKafkaProducer) -> None:
        for block in (0, 20):
            manifest = Manifest(
                topic="lost", partition=0, partitions=1, block=block, upto=block + 10,
                previous=None, sealed=True, acknowledged=30, end_offset=30,
            )  # fmt: skip
            for partition in range(4):
                await producer.send(
                    topics.sketches, manifest.to_bytes(), manifest.key, partition=partition
                )

    await _once(connection, lose)
    traffic.turned = True
    traffic.faults += [stuck, junk, flood]
    # Not at once: what has changed must show before the model's owner may move.
    asyncio.get_running_loop().call_later(30, two.process.kill)
    ended = time.monotonic() + _FAULT_SECONDS

    def enough() -> bool:
        return (fired >= alerts and not missing) or time.monotonic() > ended

    await asyncio.gather(traffic.run(enough), observe(enough))
    assert missing == {}
    assert alerts - fired == set(), (one.output[-2000:], explains.output[-2000:])


async def _once(connection: Connection, send: Callable[[AIOKafkaProducer], Any]) -> None:
    producer = AIOKafkaProducer(**connection.client_arguments())
    await producer.start()
    try:
        await send(producer)
    finally:
        await producer.stop()
