"""A short fault run: workers (and Kafka) die while rows flow, and every row counts once.

The long form is ``make chaos``; docs/testing.md says what it does and what it found.
"""

from __future__ import annotations

from collections import Counter

import pytest
from broker_embedded import EmbeddedTestBroker
from broker_kafka import KafkaBroker
from chaos import Chaos, Options
from chaos_faults import plan

pytestmark = pytest.mark.integration


def test_every_row_counts_once_whatever_dies(own_broker: EmbeddedTestBroker | KafkaBroker) -> None:
    options = Options(seed=7, rows=20_000, faults=6, gap=(0.5, 2.0), block_offsets=512)
    lines: list[str] = []
    found = Chaos(own_broker, options, lines.append).run()
    assert len(found) == 8
    assert all(finding.holds for finding in found), "\n".join([*lines, *map(str, found)])


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
