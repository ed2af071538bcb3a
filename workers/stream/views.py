"""The views of one model: windows over panes, its lifetime, and an exponentially decayed past.

A view adds final sketches source by source, in the order (source, block, pane), and what is still open
comes after them in the same order. So its numbers are a function of the rows, to the last bit, whichever
worker computes them and whenever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple
from zlib import crc32

from attributary.schemas.sketch import SketchHeader
from attributary.workers.maths.decayed import DecayedState
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.maths.spans import Hopping, Span, decay
from attributary.workers.maths.window import WindowState
from attributary.workers.maths.wire import IncompatibleStateError
from attributary.workers.stream.lightweight import Tally
from attributary.workers.stream.snapshot_state import Side

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


class Share:
    """Sketches of one source in order, merged; decayed by age where there is a half-life (ms)."""

    def __init__(self, half_life: int | None) -> None:
        self._half_life = half_life
        self._decayed: DecayedState | None = None
        self._window: WindowState | None = None

    def add(self, part: WindowState, pane_end: int) -> None:
        """Merge one pane."""
        if self._half_life is None:
            if self._window is None:
                self._window = part.copy()
            else:
                self._window.merge(part)
        elif self._decayed is None:
            self._decayed = DecayedState(part.copy(), self._half_life, pane_end)
        else:
            self._decayed.add(part, pane_end)

    def copy(self) -> Share:
        """Return an independent copy."""
        other = Share(self._half_life)
        if self._window is not None:
            other._window = self._window.copy()
        if (kept := self._decayed) is not None:
            other._decayed = DecayedState(kept.window.copy(), kept.half_life, kept.as_of)
        return other

    @classmethod
    def of(cls, half_life: int | None, window: WindowState, as_of: int | None) -> Share:
        """Return the share that holds ``window``, as of the end of its newest pane."""
        share = cls(half_life)
        if half_life is None:
            share._window = window
        else:
            share._decayed = DecayedState(window, half_life, as_of)
        return share

    @property
    def as_of(self) -> int | None:
        """End of the newest pane, where the share decays."""
        return None if self._decayed is None else self._decayed.as_of

    def window(self, as_of: int | None) -> WindowState | None:
        """Return the merged panes, aged to ``as_of``; to read, not to change."""
        kept = self._decayed
        if kept is None:
            return self._window
        if as_of is None or kept.as_of is None:
            return kept.window
        return kept.window.scaled(decay(as_of - kept.as_of, kept.half_life))


class Partial:
    """One source's share of one view: its closed blocks, and a cache that runs ahead of them.

    The cache is the closed share plus the first open sketches, as long as those do not change; a stream
    in time order changes only its last panes, so most are merged once.
    """

    def __init__(self, half_life: int | None) -> None:
        self._closed = Share(half_life)
        #: The closed share is being read elsewhere: to be copied before it changes.
        self._lent = False
        self._ahead: Share | None = None
        self._ahead_places: list[Place] = []
        self._seen: list[Place] = []

    @classmethod
    def of(cls, half_life: int | None, closed: Share) -> Partial:
        """Return the partial of these closed blocks."""
        partial = cls(half_life)
        partial._closed = closed
        return partial

    @property
    def closed(self) -> bool:
        """Whether there is any closed block."""
        return self._closed.window(None) is not None

    def lend(self) -> Share:
        """Return the closed blocks; they stay as they are, whatever is closed afterwards."""
        self._lent = True
        return self._closed

    def close(self, held: Held, part: WindowState) -> None:
        """Merge a final sketch."""
        if self._lent:
            self._closed, self._lent = self._closed.copy(), False
        self._closed.add(part, held.pane_end)
        if self._ahead_places[:1] == [held.place]:
            del self._ahead_places[0]
        else:
            self._ahead, self._ahead_places = None, []

    def share(self, open_sketches: list[Held]) -> Share:
        """Return closed and open together; to read, not to change."""
        places = [held.place for held in open_sketches]
        if self._ahead_places != places[: len(self._ahead_places)]:
            self._ahead, self._ahead_places = None, []
        share = self._ahead or self._closed.copy()
        steady = max(len(self._ahead_places), _common_prefix(self._seen, places))
        done = len(self._ahead_places)
        # Until all of them are in: one of them may turn out to be unreadable.
        self._ahead, self._ahead_places = None, []
        for held in open_sketches[done:steady]:
            share.add(held.part(), held.pane_end)
        self._ahead, self._ahead_places, self._seen = share, places[:steady], places
        if rest := open_sketches[steady:]:
            share = share.copy()
            for held in rest:
                share.add(held.part(), held.pane_end)
        return share


class View:
    """One sum over all sources: a window's, or an endless view's. ``half_life`` in milliseconds."""

    def __init__(self, half_life: int | None = None) -> None:
        self.half_life = half_life
        self._partials: dict[SourceKey, Partial] = {}
        #: The rows of closed blocks.
        self.closed = Tally()
        #: Rows, rows left out and what else the newest message accounts for.
        self.published: tuple[int, ...] | None = None
        self._calibration: tuple[View, View] | None = None

    @property
    def closed_rows(self) -> int:
        """Rows of closed blocks."""
        return self.closed.total

    def side(self, side: Side) -> View:
        """Return the view itself, or that of its calibration blocks in full or light."""
        if side == "all":
            return self
        if self._calibration is None:
            self._calibration = View(self.half_life), View(self.half_life)
        return self._calibration[side == "light"]

    def sides(self) -> list[tuple[Side, View]]:
        """Return the views that there are: the view itself, and those of calibration blocks, if any."""
        found: list[tuple[Side, View]] = [("all", self)]
        if self._calibration is not None:
            full, light = self._calibration
            found += [("full", full), ("light", light)]
        return found

    def close(self, source: SourceKey, held: Held, part: WindowState) -> None:
        """Merge a final sketch."""
        if source not in self._partials:
            self._partials[source] = Partial(self.half_life)
        self._partials[source].close(held, part)
        self.closed.add(held.header)

    def tally(self, open_sketches: Mapping[SourceKey, list[Held]]) -> Tally:
        """Return the rows of closed and open blocks."""
        found = self.closed.copy()
        for part in open_sketches.values():
            for held in part:
                found.add(held.header)
        return found

    def compared(self, pairs: Mapping[SourceKey, list[Pair]]) -> Compared | None:
        """Return both sums of what was sketched both ways, ``pairs`` of open blocks included."""
        if self._calibration is None and not pairs:
            return None
        full = {source: [pair.full for pair in found] for source, found in pairs.items()}
        light = {source: [pair.light for pair in found] for source, found in pairs.items()}
        states = self.side("full").state(full), self.side("light").state(light)
        if states[0] is None or states[1] is None:
            return None
        return Compared(states[0], states[1], self.side("light").tally(light))

    def sources(self) -> list[SourceKey]:
        """Return the sources that have closed blocks here, in order."""
        return [source for source in sorted(self._partials) if self._partials[source].closed]

    def lend(self, source: SourceKey) -> Share:
        """Return the closed blocks of a source; they stay as they are."""
        return self._partials[source].lend()

    def take_over(self, other: View) -> None:
        """Become the other view, which is used no more."""
        self._partials, self.closed = other._partials, other.closed
        self.published, self._calibration = other.published, other._calibration

    def restore(self, source: SourceKey, share: Share) -> None:
        """Begin with these closed blocks of a source."""
        self._partials[source] = Partial.of(self.half_life, share)

    def state(self, open_sketches: Mapping[SourceKey, list[Held]]) -> WindowState | None:
        """Return the sum over all sources in their order; None without a row."""
        for source in open_sketches:
            if source not in self._partials:
                self._partials[source] = Partial(self.half_life)
        shares = [
            self._partials[source].share(open_sketches.get(source, []))
            for source in sorted(self._partials)
        ]
        as_of = max((share.as_of for share in shares if share.as_of is not None), default=None)
        result: WindowState | None = None
        for share in shares:
            window = share.window(as_of)
            if window is None:
                continue
            if result is None:
                result = window.copy()
            else:
                result.merge(window)
        return result


class Pair(NamedTuple):
    """Two sketches of the same rows of one pane."""

    full: Held
    light: Held


class Compared(NamedTuple):
    """The same rows of a view, sketched in full and lightly; ``tally`` counts the light ones."""

    full: WindowState
    light: WindowState
    tally: Tally


class WindowedView:
    """Tumbling or hopping windows: one view per span that can still change."""

    def __init__(self, spans: Hopping, lateness: int) -> None:
        self.spans = spans
        self.lateness = lateness
        self.views: dict[Span, View] = {}
        #: Windows that a snapshot holds whole: it does not know where all of their sketches lie.
        self.whole: set[Span] = set()

    def live(self, pane: int, watermark: int | None) -> list[Span]:
        """Return the windows of a pane that still take rows at this watermark."""
        return [
            span
            for span in self.spans.spans_of(pane)
            if watermark is None or span.end + self.lateness > watermark
        ]

    def close(
        self,
        source: SourceKey,
        held: Held,
        part: WindowState,
        *,
        again: bool = False,
        side: Side = "all",
    ) -> None:
        """Merge a final sketch into the windows that still take rows; ``again``: but for whole ones."""
        for span in self.spans.spans_of(held.header.pane):
            if span in self.views and not (again and span in self.whole):
                self.views[span].side(side).close(source, held, part)

    def drop(self, span: Span) -> None:
        """Forget a window."""
        self.views.pop(span, None)
        self.whole.discard(span)

    def settled(self, watermark: int) -> list[Span]:
        """Return the windows that no row can change any more, oldest first."""
        return sorted(span for span in self.views if span.end + self.lateness <= watermark)


def _common_prefix(left: list[Place], right: list[Place]) -> int:
    count = 0
    for mine, other in zip(left, right, strict=False):
        if mine != other:
            break
        count += 1
    return count
