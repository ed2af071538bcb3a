"""Reads the control topics (models, grids) into the catalogue: all of them, before anything else runs."""

from __future__ import annotations

from typing import Any

from aiokafka import ConsumerRecord

from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.log_reader import LogReader


class ControlReader(LogReader):
    """Follows the control topics; ``on_start`` returns once the catalogue is complete."""

    def __init__(self, connection: Connection, topics: Topics, **kwargs: Any) -> None:
        super().__init__(connection, [topics.models, topics.grids], **kwargs)
        self.catalogue = ControlCatalogue()
        self._models = topics.models

    async def on_start(self) -> None:
        """Read both topics up to where they end now."""
        await super().on_start()
        self.catalogue.complete()

    def add(self, record: ConsumerRecord) -> None:
        """Take a card or a grid."""
        if record.topic == self._models:
            self.catalogue.add_card(record.key, record.value, record.offset)
        else:
            self.catalogue.add_grid(record.value)
