"""The newest final window of every model, as the attributions topic tells.

Followed only where a card asks for scheduled runs; a reader that starts looks back over so many records.
"""

from __future__ import annotations

from typing import Any

import msgspec
from aiokafka import ConsumerRecord

from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics
from attributary.workers.stream.log_reader import LogReader

_LOOK_BACK = 500
_MOST_MODELS = 10_000


class _Window(msgspec.Struct):
    kind: str
    start: int
    end: int


class _Told(msgspec.Struct):
    """What is read of a window's message, which may be long."""

    window: _Window
    final: bool


_decoder = msgspec.json.Decoder(_Told)


class FinalWindows(LogReader):
    """Newest final tumbling and hopping windows [start, end), milliseconds, by model and width."""

    def __init__(self, connection: Connection, topics: Topics, **kwargs: Any) -> None:
        super().__init__(connection, [topics.attributions], from_beginning=False, **kwargs)
        self._newest: dict[str, dict[int, int]] = {}

    async def on_start(self) -> None:
        """Connect, and begin a little before the end."""
        await super().on_start()
        first = await self.consumer.beginning_offsets(self.partitions)
        for partition in self.partitions:
            end = await self.consumer.position(partition)
            self.consumer.seek(partition, max(first[partition], end - _LOOK_BACK))

    def add(self, record: ConsumerRecord) -> None:
        """Take a record of the attributions topic; one that is no window's message is passed over."""
        try:
            told = _decoder.decode(record.value or b"")
        except msgspec.MsgspecError:
            return
        window = told.window
        model = (record.key or b"").decode("utf-8", "replace")
        if not told.final or window.kind not in ("tumbling", "hopping"):
            return
        widths = self._newest.setdefault(model, {})
        width = window.end - window.start
        widths[width] = max(window.end, widths.get(width, window.end))
        if len(self._newest) > _MOST_MODELS:
            self._newest.pop(next(iter(self._newest)))

    def newest(self, model: str, width: int | None) -> tuple[int, int] | None:
        """Return the model's newest final window of a width in milliseconds, None: of the widest."""
        widths = self._newest.get(model, {})
        wanted = max(widths, default=0) if width is None else width
        end = widths.get(wanted)
        return None if end is None else (end - wanted, end)
