"""The views of one model and the sketches that are still open, as merge and its snapshots share them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from attributary.schemas.attribution import Window
from attributary.schemas.card import Decayed, Lifetime, ModelCard, Tumbling, WindowSpec
from attributary.schemas.sketch import SketchHeader
from attributary.workers.maths.spans import Hopping, Span
from attributary.workers.maths.window import WindowState
from attributary.workers.stream.due import Settled
from attributary.workers.stream.epoch import Epoch, pane_ms
from attributary.workers.stream.held import Held, SourceKey
from attributary.workers.stream.open_sketches import OpenSketches
from attributary.workers.stream.snapshot_state import Piece
from attributary.workers.stream.views import View, WindowedView


class ModelViews:
    """The views of one model on one layout, empty.

    ``card`` gives the windows. ``load`` reads the windows of snapshots, ``report`` is told of sketches that
    cannot be used.
    """

    def __init__(
        self,
        card: ModelCard,
        epoch: Epoch,
        load: Callable[[bytes], WindowState] = WindowState.from_bytes,
        report: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.card = card
        self.epoch = epoch
        self._load = load
        self.late_rows = 0
        self.watermark: int | None = None
        self.oldest: int | None = None
        #: Whether a snapshot is still the newest: changes, and sketches closed by source, so far.
        self.changes = 0
        self.closings: Counter[SourceKey] = Counter()
        #: Windows that were settled before their time, because too many were open.
        self.settled_early = 0
        self._report = report
        self._pane_ms = epoch.record.pane_ms
        self._open = OpenSketches()
        self._outdated = OpenSketches()
        #: Light sketches of rows that are sketched in full besides.
        self._twins = OpenSketches()
        #: Panes of closed blocks that had one, in a merge that finds them in the log again.
        self._paired: set[tuple[SourceKey, int, int]] = set()
        #: Sketches of closed blocks in open windows, in the order that they were folded in.
        self._pieces: dict[SourceKey, list[Piece]] = {}
        self._settled: deque[Settled] = deque()
        self._specs = card.windows
        self._lengths: dict[int, dict[str, float]] = {}
        self._windowed: dict[int, WindowedView] = {}
        self._endless: dict[int, View] = {}
        lateness = round(card.allowed_lateness_seconds * 1000)
        for index, spec in enumerate(card.windows):
            self._lengths[index] = _lengths(spec)
            if isinstance(spec, Lifetime):
                self._endless[index] = View(load=load)
            elif isinstance(spec, Decayed):
                half_life = round(spec.half_life_seconds * 1000)
                self._endless[index] = View(half_life, load)
            elif pane_ms(card) == self._pane_ms:
                # Else the card has changed, and its next layout, on other panes, is on the way.
                width = round(spec.seconds * 1000)
                hop = round(self._lengths[index].get("hop_seconds", spec.seconds) * 1000)
                spans = Hopping(width=width, hop=hop, pane=self._pane_ms)
                self._windowed[index] = WindowedView(spans, lateness)

    @property
    def layout(self) -> int:
        """The layout that is merged."""
        return self.epoch.record.layout

    def held(
        self,
        header: SketchHeader,
        body: bytes,
        read: Callable[[bytes], WindowState],
        offset: int = 0,
        clock: int = 0,
    ) -> Held:
        """Return a sketch as it is held."""
        pane_end = header.pane + self._pane_ms
        return Held(header, body, pane_end, read=read, offset=offset, clock=clock)

    def add_outdated(self, header: SketchHeader) -> None:
        """Note a sketch of an older layout: it completes its block, and that is all."""
        self._outdated.add(Held(header, b"", header.pane))
        self.changes += 1

    def open_again(self, held: Held) -> None:
        """Hold a sketch of an open block that a snapshot points to."""
        (self._twins if held.header.twin else self._open).add(held)

    @property
    def open_windows(self) -> int:
        """How many windows can still change."""
        return sum(len(windowed.views) for windowed in self._windowed.values())

    def rest(self) -> None:
        """Note that a round of publishing is over; what nothing touches for a while takes little memory."""
        for view in self._endless.values():
            view.rest()
        for windowed in self._windowed.values():
            for view in windowed.views.values():
                view.rest()

    @property
    def closed_sources(self) -> set[SourceKey]:
        """The sources with closed blocks in the endless views."""
        return {source for view in self._endless.values() for source in view.sources()}

    def _in_open_window(self, pane: int, *, whole: bool = True) -> bool:
        return any(
            span in windowed.views and (whole or span not in windowed.whole)
            for windowed in self._windowed.values()
            for span in windowed.spans.spans_of(pane)
        )

    def _window(self, index: int, span: Span | None) -> Window:
        spec = self._specs[index]
        if span is None:
            # The end of what is counted: the pane after the watermark's, or after the oldest row.
            start = self.oldest or 0
            latest = start if self.watermark is None else self.watermark
            end = latest // self._pane_ms * self._pane_ms + self._pane_ms
            span = Span(start, end)
        return Window(
            kind=spec.kind,
            start=span.start,
            end=span.end,
            **self._lengths[index],
        )


def _lengths(spec: WindowSpec) -> dict[str, float]:
    """Return a window's lengths by their names in messages."""
    if isinstance(spec, Lifetime):
        return {}
    if isinstance(spec, Decayed):
        return {"half_life_seconds": spec.half_life_seconds}
    if isinstance(spec, Tumbling):
        return {"seconds": spec.seconds}
    return {"seconds": spec.seconds, "hop_seconds": spec.hop_seconds}
