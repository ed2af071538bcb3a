"""What lies in a topic."""

from __future__ import annotations

import asyncio

from aiokafka import ConsumerRecord

from attributary.schemas.connection import Connection
from attributary.service.reader import Reader


def read_topic(connection: Connection, topic: str) -> list[ConsumerRecord]:
    """Return all records that are there now."""
    return asyncio.run(read_topic_async(connection, topic))


async def read_topic_async(connection: Connection, topic: str) -> list[ConsumerRecord]:
    """Return all records that are there now, inside an event loop."""
    reader = Reader(connection, [topic], from_beginning=True, follow=False)
    await reader.start()
    found: list[ConsumerRecord] = []
    try:
        while (records := await reader.read()) is not None:
            found += records
    finally:
        await reader.stop()
    return found
