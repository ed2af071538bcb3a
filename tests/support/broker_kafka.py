"""One real Apache Kafka for the tests: KRaft, combined mode, one node, on the loopback address."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from attributary.service import reach
from attributary.service.embedded import HOST, free_port
from attributary.workers import tether

POM = Path(__file__).parents[1] / "kafka" / "pom.xml"
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_JAVA = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def jars() -> Path:
    """Return the folder of Kafka's jars; Maven fetches them once for every state of the pom."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "attributary"
    digest = hashlib.sha256(POM.read_bytes()).hexdigest()[:12]
    folder = cache / f"kafka-{digest}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        fetched = Path(scratch) / "jars"
        subprocess.run(
            ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies",
             f"-DoutputDirectory={fetched}"],
            check=True,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            fetched.rename(folder)
        except OSError:  # another run was quicker
            if not folder.is_dir():
                raise
    return folder


class KafkaBroker:
    """Start, stop and restart one broker; its data stay until ``close``."""

    kind = "kafka"

    def __init__(
        self,
        settings: dict[str, str] | None = None,
        *,
        listeners: Mapping[str, tuple[str, int]] | None = None,
        format_arguments: Sequence[str] = (),
    ) -> None:
        """``listeners``: more of them, as (security protocol, port) by name. ``format_arguments``: for the
        tool that formats the storage."""
        self._folder = Path(tempfile.mkdtemp(prefix="attributary-kafka-"))
        self._port, self._controller = free_port(), free_port()
        self._properties = self._folder / "server.properties"
        self._log = self._folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._write_properties(settings or {}, listeners or {})
            self._format(format_arguments)
        except BaseException:
            self.close()
            raise

    @property
    def bootstrap(self) -> str:
        """The address that clients take."""
        return f"{HOST}:{self._port}"

    def start(self) -> None:
        """Start the broker, on its data, and return once it answers."""
        process = self._process = self._java("kafka.Kafka", str(self._properties))
        deadline = time.monotonic() + _START_SECONDS
        while reach.answers(HOST, self._port, 1.0) is not None:
            if process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"Kafka did not start:\n{self._log.read_text()[-5000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop the broker in order; its data stay."""
        if self._process is not None:
            tether.stop(self._process, _STOP_SECONDS)
            self._process = None

    def kill(self) -> None:
        """Stop the broker as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """Stop the broker and remove its data."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _format(self, arguments: Sequence[str]) -> None:
        tool = self._java(
            "kafka.tools.StorageTool", "format",
            "-t", str(uuid.uuid4()), "-c", str(self._properties), *arguments,
        )  # fmt: skip
        if tool.wait(_START_SECONDS) != 0:
            raise RuntimeError(f"Kafka's storage was not formatted:\n{self._log.read_text()}")

    def _java(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        java = shutil.which("java")
        if java is None:
            raise RuntimeError("Apache Kafka needs Java 17 or newer: install a JRE and Maven")
        with self._log.open("ab") as log:
            return tether.spawn(
                [java, *_JAVA, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                 "-cp", f"{jars()}/*", main, *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
            )  # fmt: skip

    def _write_properties(
        self, settings: dict[str, str], listeners: Mapping[str, tuple[str, int]]
    ) -> None:
        served = {"PLAINTEXT": ("PLAINTEXT", self._port), **listeners}
        addresses = ",".join(f"{name}://{HOST}:{port}" for name, (_, port) in served.items())
        protocols = ",".join(f"{name}:{protocol}" for name, (protocol, _) in served.items())
        values = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{self._controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{addresses},CONTROLLER://{HOST}:{self._controller}",
            "advertised.listeners": addresses,
            "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self._folder / "data"),
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "500",
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            **settings,
        }
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
