"""One model's sketches to the windows that are due."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from attributary.schemas.attribution import Window
from attributary.schemas.card import Decayed, Lifetime, ModelCard
from attributary.schemas.manifest import ModelCount
from attributary.schemas.sketch import SketchHeader
from attributary.workers.maths.spans import Hopping, Span
from attributary.workers.maths.window import WindowState
from attributary.workers.stream.epoch import Epoch, pane_ms
from attributary.workers.stream.open_sketches import OpenSketches
from attributary.workers.stream.views import Held, SourceKey, View, WindowedView, window_of


@dataclass(frozen=True)
class Due:
    """A window to publish: its state, the rows it counts, and whether the watermark is past it."""

    spec: int
    window: Window
    state: WindowState
    rows: int
    final: bool


class ModelMerge:
    """The views of one model on one layout; a new layout starts them afresh.

    ``card`` gives the windows. Sketches of an older layout than ``epoch``'s are counted by the ledgers
    and left out of the views, because their columns differ.
    """

    def __init__(
        self, card: ModelCard, epoch: Epoch, read: Callable[[bytes], WindowState] = window_of
    ) -> None:
        self.epoch = epoch
        self._read = read
        self.late_rows = 0
        self.watermark: int | None = None
        self.oldest: int | None = None
        self._pane_ms = epoch.record.pane_ms
        self._open = OpenSketches()
        self._outdated = OpenSketches()
        self._settled: deque[Due] = deque()
        self._specs = card.windows
        self._windowed: dict[int, WindowedView] = {}
        self._endless: dict[int, View] = {}
        lateness = round(card.allowed_lateness_seconds * 1000)
        for index, spec in enumerate(card.windows):
            if isinstance(spec, Lifetime):
                self._endless[index] = View()
            elif isinstance(spec, Decayed):
                self._endless[index] = View(round(spec.half_life_seconds * 1000))
            elif pane_ms(card) == self._pane_ms:
                # Else the card has changed, and its next layout, on other panes, is on the way.
                width = round(spec.seconds * 1000)
                hop = round(getattr(spec, "hop_seconds", spec.seconds) * 1000)
                spans = Hopping(width=width, hop=hop, pane=self._pane_ms)
                self._windowed[index] = WindowedView(spans, lateness)

    @property
    def layout(self) -> int:
        """The layout that is merged."""
        return self.epoch.record.layout

    def add(self, header: SketchHeader, body: bytes) -> bool:
        """Take a sketch of this layout; False where it says nothing new."""
        held = Held(header, body, header.pane + self._pane_ms, read=self._read)
        live = [
            (windowed, span)
            for windowed in self._windowed.values()
            for span in windowed.live(header.pane, self.watermark)
        ]
        if live or not self._windowed:
            held.on_time = header.rows
        if not self._open.add(held):
            return False
        for windowed, span in live:
            windowed.views.setdefault(span, View())
        known = self.oldest
        self.oldest = header.pane if known is None else min(known, header.pane)
        return True

    def add_outdated(self, header: SketchHeader) -> None:
        """Note a sketch of an older layout: it completes its block, and that is all."""
        self._outdated.add(Held(header, b"", header.pane))

    def replace(self, older: ModelMerge) -> None:
        """Take over from the merge of an older layout what its blocks still need to be complete."""
        for part in (older._outdated, older._open):
            for _, held in part:
                self.add_outdated(held.header)

    def holds(self, source: SourceKey, block: int, count: ModelCount) -> bool:
        """Say whether every row that the manifest counts is in the sketches held."""
        held = {**self._outdated.block(source, block), **self._open.block(source, block)}
        return all(
            pane in held and held[pane].header.rows >= rows for pane, rows in count.accepted.items()
        )

    def forget(self, source: SourceKey, block: int) -> None:
        """Drop the sketches of a block that counts no more."""
        self._outdated.take(source, block)
        self._open.take(source, block)

    def close(self, source: SourceKey, block: int) -> None:
        """Merge the sketches of a block whose books are closed."""
        self._outdated.take(source, block)
        for held in self._open.take(source, block):
            part = held.part()
            self.late_rows += held.header.rows - held.on_time
            for windowed in self._windowed.values():
                windowed.close(source, held, part)
            for view in self._endless.values():
                view.close(source, held, part)

    def advance(self, watermark: int | None) -> None:
        """Move the watermark on, and settle the windows that no row can change any more."""
        if watermark is None or (self.watermark is not None and watermark <= self.watermark):
            return
        self.watermark = watermark
        for index, windowed in self._windowed.items():
            for span in windowed.settled(watermark):
                due = self._due(index, windowed.views[span], span)
                if due is not None:
                    self._settled.append(due)
                del windowed.views[span]

    def settled(self) -> Iterator[Due]:
        """Yield the settled windows that are not published as they are, once."""
        while self._settled:
            yield self._settled.popleft()

    def due(self, rejected: int, gaps: int = 0) -> Iterator[Due]:
        """Yield what has changed since it was published.

        ``rejected`` rows of the model and ``gaps`` belong to no window; they make an endless view due again.
        """
        yield from self.settled()
        for index, windowed in self._windowed.items():
            for span in sorted(windowed.views):
                if self.watermark is not None and span.end <= self.watermark:
                    due = self._due(index, windowed.views[span], span)
                    if due is not None:
                        yield due
        for index, view in self._endless.items():
            due = self._due(index, view, None, (rejected, gaps))
            if due is not None:
                yield due

    def _due(
        self, index: int, view: View, span: Span | None, books: tuple[int, ...] = ()
    ) -> Due | None:
        open_sketches = self._open.where(lambda held: span is None or span.holds(held.header.pane))
        rows = view.closed_rows + sum(
            held.header.rows for part in open_sketches.values() for held in part
        )
        if (rows, *books) == view.published:
            return None
        state = view.state(open_sketches)
        if state is None:
            return None
        view.published = rows, *books
        return Due(index, self._window(index, span), state, rows, final=span is not None)

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
            seconds=getattr(spec, "seconds", None),
            hop_seconds=getattr(spec, "hop_seconds", None),
            half_life_seconds=getattr(spec, "half_life_seconds", None),
        )
