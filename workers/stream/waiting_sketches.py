"""Sketches whose grid is not known yet: it is on its way, or has gone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple
from zlib import crc32

from attributary.schemas.sketch import SketchHeader
from attributary.workers.stream.snapshot_state import Piece

# A grid is sent before the first of its sketches, so few wait, and not for long.
MOST_BYTES = 256 * 2**20


class Waiting(NamedTuple):
    """A sketch, where it lies in the log, and since when (ms)."""

    header: SketchHeader
    body: bytes
    offset: int
    clock: int


class WaitingSketches:
    """They wait in the order in which they came; where there is no room, the oldest are left out.

    ``report`` is told of those.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._waiting: deque[Waiting] = deque()
        self._bytes = 0

    def add(self, waiting: Waiting) -> None:
        """Keep a sketch."""
        self._waiting.append(waiting)
        self._bytes += len(waiting.body)
        while self._bytes > MOST_BYTES and len(self._waiting) > 1:
            oldest = self._waiting.popleft()
            self._bytes -= len(oldest.body)
            header = oldest.header
            self._report(
                f"the sketch of {header.model!r}, {header.topic}/{header.partition}, block "
                f"{header.block}, is left out: epoch {header.epoch} is not in the grids topic, and "
                f"{MOST_BYTES >> 20} MiB of such sketches wait"
            )

    def take(self) -> list[Waiting]:
        """Return all of them, and keep none."""
        found, self._waiting, self._bytes = list(self._waiting), deque(), 0
        return found

    def __iter__(self) -> Iterator[Waiting]:
        """Yield them in order."""
        return iter(self._waiting)

    def blocks(self) -> set[tuple[str, int, int]]:
        """Return the blocks that they belong to: topic, partition, first offset."""
        return {
            (entry.header.topic, entry.header.partition, entry.header.block)
            for entry in self._waiting
        }

    def pieces(self) -> list[Piece]:
        """Return where a snapshot finds them again."""
        return [
            Piece(entry.header, crc32(entry.body), entry.offset, entry.clock)
            for entry in self._waiting
        ]
