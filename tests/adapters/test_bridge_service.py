"""The bridge's shell without a broker: what is not acknowledged is not committed, letters precede rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaTimeoutError
from prometheus_client import CollectorRegistry

from attributary.schemas.adapters.formats import Adapter
from attributary.schemas.adapters.inference import Naming
from attributary.schemas.connection import Connection
from attributary.schemas.errors import BrokerError
from attributary.schemas.topics import Topics
from attributary.workers.adapt import service as module
from attributary.workers.adapt.metrics import AdaptMetrics
from attributary.workers.adapt.options import AdaptOptions
from attributary.workers.adapt.service import AdaptService
from attributary.workers.stream.outgoing import Outgoing

PARTITION = TopicPartition("foreign", 0)
TOPICS = Topics()


class _Producer:
    """Takes records until it is told to fail."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.fails = False

    async def send(self, records: Sequence[Outgoing]) -> None:
        if self.fails and records:
            raise KafkaTimeoutError
        self.sent += [record.topic for record in records]


class _Consumer:
    """Remembers what is committed."""

    def __init__(self) -> None:
        self.commits: list[dict[TopicPartition, int]] = []

    async def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[Any, int]:
        return dict.fromkeys(partitions, 0)

    async def committed(self, _: TopicPartition) -> None:
        return None

    def seek(self, _: TopicPartition, __: int) -> None:
        """Every test gives the records itself."""

    def highwater(self, _: TopicPartition) -> int:
        return 9

    async def commit(self, offsets: dict[TopicPartition, int]) -> None:
        self.commits.append(dict(offsets))


def _record(offset: int, value: bytes) -> ConsumerRecord:
    return ConsumerRecord(*PARTITION, offset, 1000, 0, None, value, None, -1, len(value), ())


GOOD = json.dumps({"instances": [[1]], "predictions": [2]}).encode()


@pytest.fixture
async def bridge(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[AdaptService, _Producer, _Consumer, CollectorRegistry]:
    """A bridge that has one partition, and the sides of it that a broker would be on."""

    async def nothing(*_: Any) -> int:
        return 0

    monkeypatch.setattr(module, "read_published", nothing)
    registry = CollectorRegistry()
    service = AdaptService(
        Connection(),
        TOPICS,
        ["foreign"],
        "group",
        Adapter("tfserving", Naming(model="m")),
        AdaptOptions(),
        AdaptMetrics.build(registry),
    )
    producer, consumer = _Producer(), _Consumer()
    service.producer = producer  # type: ignore[assignment]
    service._consumer = consumer  # type: ignore[assignment]
    await service.take_over([PARTITION])
    return service, producer, consumer, registry


async def test_what_is_acknowledged_is_committed_and_counted(bridge: Any) -> None:
    service, producer, consumer, registry = bridge
    await service._commit()
    assert consumer.commits == []
    await service._take({PARTITION: [_record(0, GOOD), _record(1, b"broken"), _record(2, GOOD)]})
    await service._commit()
    await service._commit()
    assert producer.sent == [TOPICS.dead_letters, TOPICS.rows]
    assert consumer.commits == [{PARTITION: 3}]
    assert registry.get_sample_value("attributary_adapt_rows_total", {"model": "m"}) == 2
    labels = {"reason": "not_decodable"}
    assert registry.get_sample_value("attributary_adapt_rejected_total", labels) == 1
    assert service.totals == {"messages": 3, "rows": 2, "rejected": 1}


async def test_nothing_is_committed_that_is_not_acknowledged(bridge: Any) -> None:
    service, producer, consumer, _ = bridge
    await service._take({PARTITION: [_record(0, GOOD)]})
    producer.fails = True
    with pytest.raises(BrokerError, match="not acknowledged"):
        await service._take({PARTITION: [_record(1, GOOD)]})
    await service.finish()
    await service.hand_over([PARTITION])
    assert consumer.commits == []


async def test_losses_are_counted_by_reason_and_models_are_bounded(
    bridge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, _, _, registry = bridge
    monkeypatch.setattr(module, "_MOST_MODELS", 1)
    half = {"id": "a", "instances": [[1]]}
    halves = [_record(n, json.dumps(half).encode()) for n in range(2)]
    await service._take({PARTITION: halves})
    service.converter.pairing.end()
    await service._take({})
    lost = {
        reason: registry.get_sample_value("attributary_adapt_lost_halves_total", {"reason": reason})
        for reason in ("repeated", "unanswered")
    }
    assert lost == {"repeated": 1, "unanswered": 1}
    assert registry.get_sample_value("attributary_adapt_waiting_halves") == 0
    service._models.add("other")
    await service._take({PARTITION: [_record(2, GOOD)]})
    assert registry.get_sample_value("attributary_adapt_rows_total", {"model": "(other)"}) == 1
