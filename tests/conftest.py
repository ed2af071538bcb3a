"""What the tests share: the broker that ``--broker`` chooses, and topics of one's own on it."""

from __future__ import annotations

import asyncio
import logging
import signal
import uuid
from collections.abc import Iterator
from typing import Protocol

import pytest
from broker_embedded import EmbeddedTestBroker
from broker_kafka import KafkaBroker

from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics
from attributary.service.topics import create_topics

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in the background so, and the commands under test would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def log_levels() -> Iterator[None]:
    """End with the test what a command called in this process sets for its own."""
    library = logging.getLogger("aiokafka")
    before = library.level
    yield
    library.setLevel(before)


class Broker(Protocol):
    """A broker that runs. ``kind`` is "embedded" or "kafka"; only Kafka keeps data on a restart."""

    kind: str

    @property
    def bootstrap(self) -> str:
        """The address that clients take."""

    def start(self) -> None:
        """Start it, and return once it answers."""

    def stop(self) -> None:
        """Stop it in order."""

    def close(self) -> None:
        """Stop it and remove what it kept."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        choices=["embedded", "kafka"],
        default="embedded",
        help="what integration tests run on: the embedded broker, or Apache Kafka (needs Java 17)",
    )


def _new_broker(kind: str) -> Broker:
    return KafkaBroker() if kind == "kafka" else EmbeddedTestBroker()


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The one broker of the test run, running. Use ``own_broker`` to stop or restart one."""
    running = _new_broker(request.config.getoption("--broker"))
    try:
        running.start()
        yield running
    finally:
        running.close()


@pytest.fixture
def own_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A running broker for this test alone, to be stopped and restarted."""
    running = _new_broker(request.config.getoption("--broker"))
    try:
        running.start()
        yield running
    finally:
        running.close()


@pytest.fixture
def connection(broker: Broker) -> Connection:
    """How clients reach ``broker``."""
    return Connection(bootstrap=broker.bootstrap)


@pytest.fixture
def topic_names() -> Topics:
    """Names that no other test uses; the topics do not exist."""
    return Topics.with_prefix(f"t{uuid.uuid4().hex[:12]}.")


@pytest.fixture
def topics(connection: Connection, topic_names: Topics) -> Topics:
    """Topics of this test's own on ``broker``, created as the service creates them."""
    asyncio.run(create_topics(connection, topic_names))
    return topic_names
