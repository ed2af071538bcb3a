"""The views of one model: windows over panes, its lifetime, and an exponentially decayed past.

A view adds final sketches source by source, in the order (source, block, pane), and what is still open
comes after them in the same order. So its numbers are a function of the rows, to the last bit, whichever
worker computes them and whenever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from attributary.workers.maths.spans import Hopping, Span
from attributary.workers.maths.window import WindowState
from attributary.workers.stream.held import Held, SourceKey
from attributary.workers.stream.lightweight import Tally
from attributary.workers.stream.share import Load, Partial, Share
from attributary.workers.stream.snapshot_state import Side

# A view that has not been added to or evaluated for so many rounds of publishing is packed.
_QUIET_ROUNDS = 30


class View:
    """One sum over all sources: a window's, or an endless view's. ``half_life`` in milliseconds.

    ``load`` reads the windows that it has packed.
    """

    def __init__(self, half_life: int | None = None, load: Load = WindowState.from_bytes) -> None:
        self.half_life = half_life
        self._load = load
        self._quiet = 0
        self._partials: dict[SourceKey, Partial] = {}
        #: The rows of closed blocks.
        self.closed = Tally()
        #: Rows, rows left out and what else the newest message accounts for.
        self.published: tuple[int, ...] | None = None
        #: The most rows that it counted when some of them were taken back, or its layout replaced.
        self.most = 0
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
            self._calibration = (
                View(self.half_life, self._load),
                View(self.half_life, self._load),
            )
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
        self._quiet = 0
        if source not in self._partials:
            self._partials[source] = Partial(self.half_life, self._load)
        self._partials[source].close(held, part)
        self.closed.add(held.header)

    def rest(self) -> None:
        """Note that a round of publishing is over; what nothing touches for a while takes little memory."""
        self._quiet += 1
        if self._quiet == _QUIET_ROUNDS:
            for partial in self._partials.values():
                partial.rest()
        for side in self._calibration or ():
            side.rest()

    def tally(self, open_sketches: Mapping[SourceKey, list[Held]]) -> Tally:
        """Return the rows of closed and open blocks."""
        found = self.closed.copy()
        for part in open_sketches.values():
            for held in part:
                found.add(held.header)
        return found

    def revision(self, tally: Tally) -> int:
        """Return the most rows that the view has counted, with those of ``tally`` now."""
        return max(self.most, tally.total)

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
        self.most = other.most

    def restore(self, source: SourceKey, share: Share) -> None:
        """Begin with these closed blocks of a source."""
        self._quiet = 0
        self._partials[source] = Partial.of(self.half_life, share, self._load)

    def state(self, open_sketches: Mapping[SourceKey, list[Held]]) -> WindowState | None:
        """Return the sum over all sources in their order; None without a row."""
        self._quiet = 0
        for source in open_sketches:
            if source not in self._partials:
                self._partials[source] = Partial(self.half_life, self._load)
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
