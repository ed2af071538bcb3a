"""A short fault run: workers (and Kafka) die while rows flow, and every row counts once.

The long form is ``make chaos``; docs/testing.md says what it does and what it found.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter

import pytest
from broker_embedded import EmbeddedTestBroker
from broker_kafka import KafkaBroker
from chaos import Chaos, Options
from chaos_faults import plan
from command import Running

from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics
from attributary.service.topics import create_topics

pytestmark = pytest.mark.integration


def test_every_row_counts_once_whatever_dies(own_broker: EmbeddedTestBroker | KafkaBroker) -> None:
    options = Options(seed=7, rows=20_000, faults=6, gap=(0.5, 2.0), block_offsets=512)
    lines: list[str] = []
    found = Chaos(own_broker, options, lines.append).run()
    assert len(found) == 8
    assert all(finding.holds for finding in found), "\n".join([*lines, *map(str, found)])


def test_a_worker_stops_in_order_while_its_broker_is_away(
    own_broker: EmbeddedTestBroker | KafkaBroker,
) -> None:
    connection, topics = Connection(bootstrap=own_broker.bootstrap), Topics.with_prefix("away.")
    asyncio.run(create_topics(connection, topics))
    worker = Running(
        *("--bootstrap", connection.bootstrap, "--prefix", "away.", "stream", "--metrics-port", "0")
    )
    try:
        worker.wait_for("ready broker")
        own_broker.stop()
        time.sleep(1.0)  # its fetches fail, and wait to be tried again
        worker.process.send_signal(signal.SIGTERM)
        assert worker.wait(15.0) == 0, worker.output
        assert "Traceback" not in worker.output
    finally:
        worker.close()


@pytest.mark.parametrize("broker_too", [False, True])
def test_a_plan_has_every_kind_of_fault_and_depends_on_its_seed_alone(broker_too: bool) -> None:
    faults = plan(24, 3, broker=broker_too, gap=(1.0, 4.0))
    assert faults == plan(24, 3, broker=broker_too, gap=(1.0, 4.0))
    assert faults != plan(24, 4, broker=broker_too, gap=(1.0, 4.0))
    kinds = Counter(fault.kind.partition("-")[0] for fault in faults)
    assert kinds.total() == 24
    assert min(kinds[kind] for kind in ("kill", "pause", "restart", "scale")) >= 3
    assert kinds["broker"] == broker_too
    assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
