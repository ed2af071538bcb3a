"""Stream workers on one test's topics, and the broker's own deletion of records."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.records_to_delete import RecordsToDelete
from command import Running

from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics
from attributary.service.supervisor import READY


def settings_of(connection: Connection, topics: Topics) -> dict[str, str]:
    """Return the variables that lead a command to the test's broker and topics."""
    return {
        "ATTRIBUTARY_CONNECTION__BOOTSTRAP": connection.bootstrap,
        "ATTRIBUTARY_TOPIC_PREFIX": topics.rows.removesuffix("rows"),
    }


class Workers:
    """One test's topics, and the workers it started with its settings."""

    def __init__(self, connection: Connection, topics: Topics, settings: Mapping[str, str]) -> None:
        self.connection = connection
        self.topics = topics
        self.running: list[Running] = []
        self._settings = {**settings, **settings_of(connection, topics)}

    def start(self, *arguments: str) -> Running:
        """Start a worker and return it once it says that it is ready."""
        worker = Running("stream", *arguments, **self._settings)
        self.running.append(worker)
        worker.wait_for(READY)
        return worker

    def close(self) -> None:
        """Kill what is left of them."""
        for worker in self.running:
            worker.close()


def delete_records(connection: Connection, before: Mapping[TopicPartition, int]) -> None:
    """Let the broker drop the records before these offsets; the embedded one cannot."""

    async def delete() -> None:
        admin = AIOKafkaAdminClient(**connection.client_arguments())
        await admin.start()
        try:
            await admin.delete_records({p: RecordsToDelete(at) for p, at in before.items()})
        finally:
            await admin.close()

    asyncio.run(asyncio.wait_for(delete(), 10))
