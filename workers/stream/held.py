"""A pane's sketch as merge holds it: its bytes, what orders it, and how it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from zlib import crc32

from attributary.schemas.sketch import SketchHeader
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.maths.window import WindowState
from attributary.workers.maths.wire import IncompatibleStateError

SourceKey = tuple[str, int]
Place = tuple[int, int, int]


def window_of(body: bytes) -> WindowState:
    """Return a pane's bytes as a window of its own."""
    return WindowState.of(PaneSketch.from_bytes(body))


class UnreadableSketchError(Exception):
    """A sketch whose body is not what its header says; ``held`` is the one."""

    def __init__(self, held: Held, why: str) -> None:
        header = held.header
        super().__init__(
            f"the sketch of {header.model!r}, {header.topic}/{header.partition}, block "
            f"{header.block}, pane {header.pane} cannot be used: {why}"
        )
        self.held = held


@dataclass
class Held:
    """The newest sketch of one pane of an open block; ``on_time`` of its rows came before every
    window of their pane was past its allowed lateness.

    ``offset`` and ``clock`` (ms) say where it lies in the log, and since when. ``read`` raises
    IncompatibleStateError for a body that is not what the header says.
    """

    header: SketchHeader
    body: bytes
    pane_end: int
    on_time: int = 0
    read: Callable[[bytes], WindowState] = window_of
    offset: int = 0
    clock: int = 0
    _parsed: WindowState | None = None

    @property
    def version(self) -> tuple[int, bool]:
        """What decides between sketches of one block and pane: the higher holds."""
        return self.header.upto, self.header.final

    @cached_property
    def place(self) -> Place:
        """What orders it, and a mark of its content."""
        return self.header.block, self.header.pane, crc32(self.body, self._fraction_mark)

    @property
    def _fraction_mark(self) -> int:
        return 0 if self.header.fraction == 1 else round(self.header.fraction * 2**20)

    def parse(self) -> None:
        """Make the accumulators ready for the next ``part``, with its errors."""
        self._parsed = self.part()

    def part(self) -> WindowState:
        """Return the accumulators; what is made of them must be a copy.

        Rows of a fraction stand for those that were left out, each for 1/fraction of them.
        UnreadableSketchError where the body is not what the header says.
        """
        if (ready := self._parsed) is not None:
            self._parsed = None
            return ready
        try:
            part = self.read(self.body)
        except IncompatibleStateError as error:
            raise UnreadableSketchError(self, str(error)) from None
        fraction = self.header.fraction
        return part if fraction == 1 else part.scaled(1 / fraction)
