"""A broker, topics and worker processes to measure, and what they use while they run."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from aiokafka import AIOKafkaProducer
from prometheus_client.parser import text_string_to_metric_families

from attributary.schemas.card import ModelCard
from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics
from attributary.service.registry import send_card
from attributary.service.supervisor import READY
from attributary.service.topics import create_topics

# The tests' own way to run Apache Kafka and the command.
sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

PARTITIONS = 4
#: Members that start within this time share the partitions from the beginning.
_JOIN_MS = "3000"


def brokers() -> list[str]:
    """Return the brokers that this machine can run."""
    java = shutil.which("java") and shutil.which("mvn")
    return ["embedded", "kafka"] if java else ["embedded"]


@dataclass
class Usage:
    """What a process has used: seconds of processor time, and samples of its memory in bytes."""

    process: psutil.Process
    began: float = 0.0
    rss: list[int] = field(default_factory=list)

    def start(self) -> None:
        """Count processor time from now on."""
        self.began = self._cpu()
        self.rss.clear()

    def sample(self) -> None:
        """Note the memory that is in use now."""
        self.rss.append(self.process.memory_info().rss)

    @property
    def seconds(self) -> float:
        """Processor seconds since ``start``, of all threads."""
        return self._cpu() - self.began

    def _cpu(self) -> float:
        times = self.process.cpu_times()
        return times.user + times.system


class Worker:
    """One ``attributary stream`` process."""

    def __init__(self, connection: Connection, topics: Topics, *roles: str) -> None:
        from command import Running

        self.running = Running(
            "stream",
            *(part for role in roles for part in ("--role", role)),
            ATTRIBUTARY_CONNECTION__BOOTSTRAP=connection.bootstrap,
            ATTRIBUTARY_TOPIC_PREFIX=topics.rows.removesuffix("rows"),
            ATTRIBUTARY_LOG_LEVEL="warning",
            OMP_NUM_THREADS="1",
        )
        self.usage = Usage(psutil.Process(self.running.process.pid))
        self._url = ""

    def wait_ready(self) -> None:
        """Wait until it has joined its groups."""
        self._url = self.running.wait_for(READY).split()[-1]

    def rows(self) -> tuple[int, int]:
        """Return the rows that it has accepted and rejected, all acknowledged by the broker."""
        with urllib.request.urlopen(self._url, timeout=30) as answer:  # noqa: S310
            families = list(text_string_to_metric_families(answer.read().decode()))
        samples = [sample for family in families for sample in family.samples]
        accepted, rejected = (
            sum(s.value for s in samples if s.name == f"attributary_rows_{kind}_total")
            for kind in ("accepted", "rejected")
        )
        return int(accepted), int(rejected)

    def close(self) -> None:
        """End it."""
        self.running.close()


class Stage:
    """A broker with topics of this measurement's own."""

    def __init__(self, kind: str, broker: Any, pid: int) -> None:
        self.kind = kind
        self.connection = Connection(bootstrap=broker.bootstrap)
        self.topics = Topics.with_prefix(f"b{uuid.uuid4().hex[:8]}.")
        self.broker = Usage(psutil.Process(pid))
        self.workers: list[Worker] = []
        asyncio.run(create_topics(self.connection, self.topics))

    def start(self, count: int, *roles: str) -> list[Worker]:
        """Start workers at once and return them when all of them are ready."""
        found = [Worker(self.connection, self.topics, *roles) for _ in range(count)]
        self.workers += found
        for worker in found:
            worker.wait_ready()
        return found

    def register(self, card: ModelCard) -> None:
        """Send a card."""
        asyncio.run(send_card(self.connection, self.topics, card))

    def producer(self) -> AIOKafkaProducer:
        """Return a producer that batches well, to be started."""
        return AIOKafkaProducer(
            **self.connection.client_arguments(),
            acks="all",
            linger_ms=5,
            max_batch_size=2**19,
            max_request_size=8 * 2**20,
        )

    def preload(self, messages: Sequence[bytes], count: int) -> None:
        """Fill the rows topic with ``count`` messages, all partitions alike."""

        async def send() -> None:
            producer = self.producer()
            await producer.start()
            try:
                waiting: list[Any] = []
                for index in range(count):
                    value = messages[index % len(messages)]
                    waiting.append(
                        await producer.send(
                            self.topics.rows, value, partition=index // 64 % PARTITIONS
                        )
                    )
                    if len(waiting) >= 4096:
                        await asyncio.gather(*waiting)
                        waiting.clear()
                await asyncio.gather(*waiting)
            finally:
                await producer.stop()

        asyncio.run(send())


@contextmanager
def staged(kind: str) -> Iterator[Stage]:
    """Run a broker and give a stage on it; everything is gone afterwards."""
    broker: Any
    if kind == "kafka":
        from broker_kafka import KafkaBroker

        broker = KafkaBroker({"group.initial.rebalance.delay.ms": _JOIN_MS})
    else:
        from broker_embedded import EmbeddedTestBroker

        broker = EmbeddedTestBroker()
    stage = None
    try:
        broker.start()
        stage = Stage(kind, broker, broker._process.pid)
        yield stage
    finally:
        for worker in stage.workers if stage is not None else ():
            worker.close()
        broker.close()


def wait(seconds: float, started: float) -> None:
    """Wait until ``seconds`` after ``started`` (monotonic)."""
    time.sleep(max(0.0, started + seconds - time.monotonic()))
