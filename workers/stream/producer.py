"""The workers' producer: everything they send is acknowledged by all replicas before it counts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from attributary.schemas.connection import Connection
from attributary.schemas.errors import BrokerError
from attributary.workers.stream.outgoing import MAX_RECORD_BYTES, Outgoing

_log = logging.getLogger(__name__)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep aiokafka from logging a refused probe as an error: the answer is what was asked for."""
    sender = logging.getLogger("aiokafka.producer.sender")
    before, sender.disabled = sender.disabled, True
    try:
        yield
    finally:
        sender.disabled = before


class AcknowledgedProducer:
    """Sends batches and waits until every record is acknowledged.

    The broker's idempotence is used where it has it: the first start probes for it. Without it a retry
    may repeat or reorder records, which the cumulative sketches and manifests bear.
    """

    def __init__(self, connection: Connection) -> None:
        self._arguments: dict[str, Any] = {
            **connection.client_arguments(),
            "acks": "all",
            "max_request_size": MAX_RECORD_BYTES,
            "linger_ms": 5,
            # Of a few sketches: a partition takes one batch after the other.
            "max_batch_size": MAX_RECORD_BYTES // 4,
        }
        self._producer: AIOKafkaProducer | None = None

    async def start(self) -> None:
        """Connect; BrokerError where no broker answers."""
        for idempotent in (True, False):
            producer = AIOKafkaProducer(**self._arguments, enable_idempotence=idempotent)
            try:
                with _quiet():
                    await asyncio.wait_for(producer.start(), timeout=10)
            except (KafkaError, asyncio.TimeoutError) as error:
                await producer.stop()
                if not idempotent:
                    raise BrokerError(
                        f"no broker answers at {self._arguments['bootstrap_servers']}: {error!r}"
                    ) from None
            else:
                _log.info("idempotent producer: %s", "on" if idempotent else "not offered, off")
                self._producer = producer
                return

    async def send(self, records: Sequence[Outgoing]) -> None:
        """Send the records in order; KafkaError where any of them was not acknowledged."""
        assert self._producer is not None  # noqa: S101
        waiting = [
            await self._producer.send(
                record.topic,
                # aiokafka refuses a record of nothing at all, which others may have written.
                b"" if record.value is None and record.key is None else record.value,
                record.key,
                record.partition,
                headers=list(record.headers),
            )
            for record in records
        ]
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def partitions(self, topic: str) -> int:
        """Return how many partitions the topic has."""
        assert self._producer is not None  # noqa: S101
        return len(await self._producer.partitions_for(topic))

    async def stop(self) -> None:
        """Close the connection."""
        if self._producer is not None:
            await self._producer.stop()
            self._producer = None
