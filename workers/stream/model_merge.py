"""One model's sketches to the windows that are due."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from attributary.schemas.attribution import Window
from attributary.schemas.card import Decayed, Lifetime, ModelCard
from attributary.schemas.manifest import ModelCount
from attributary.schemas.sketch import SketchHeader
from attributary.workers.maths.spans import Hopping, Span
from attributary.workers.maths.window import WindowState
from attributary.workers.stream.epoch import Epoch
from attributary.workers.stream.open_sketches import OpenSketches
from attributary.workers.stream.views import Held, SourceKey, View, WindowedView


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

    def __init__(self, card: ModelCard, epoch: Epoch) -> None:
        self.epoch = epoch
        self.late_rows = 0
        self.watermark: int | None = None
        self.oldest: int | None = None
        self._pane_ms = epoch.record.pane_ms
        self._open = OpenSketches()
        self._specs = card.windows
        self._windowed: dict[int, WindowedView] = {}
        self._endless: dict[int, View] = {}
        lateness = round(card.allowed_lateness_seconds * 1000)
        for index, spec in enumerate(card.windows):
            if isinstance(spec, Lifetime):
                self._endless[index] = View()
            elif isinstance(spec, Decayed):
                self._endless[index] = View(round(spec.half_life_seconds * 1000))
            else:
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
        held = Held(header, body, header.pane + self._pane_ms)
        if not self._windowed or any(
            view.live(header.pane, self.watermark) for view in self._windowed.values()
        ):
            held.on_time = header.rows
        known = self.oldest
        self.oldest = header.pane if known is None else min(known, header.pane)
        return self._open.add(held)

    def holds(self, source: SourceKey, block: int, count: ModelCount) -> bool:
        """Say whether every row that the manifest counts is in the sketches held."""
        held = self._open.block(source, block)
        return all(
            pane in held and held[pane].header.rows >= rows for pane, rows in count.accepted.items()
        )

    def close(self, source: SourceKey, block: int) -> int:
        """Merge the sketches of a block whose books are closed; return their rows."""
        rows = 0
        for held in self._open.take(source, block):
            sketch = held.sketch()
            rows += held.header.rows
            self.late_rows += held.header.rows - held.on_time
            for windowed in self._windowed.values():
                windowed.close(source, held, sketch, self.watermark)
            for view in self._endless.values():
                view.close(source, held, sketch)
        return rows

    def due(self, watermark: int | None, rejected: int) -> Iterator[Due]:
        """Yield what has changed since it was published, and forget what cannot change any more.

        ``rejected`` rows of the model belong to no window; they make an endless view due again.
        """
        if watermark is not None:
            self.watermark = max(watermark, self.watermark or watermark)
        for index, windowed in self._windowed.items():
            if self.watermark is not None:
                yield from self._due_windows(index, windowed, self.watermark)
                windowed.drop(self.watermark)
        for index, view in self._endless.items():
            due = self._due(index, view, None, rejected)
            if due is not None:
                yield due

    def _due_windows(self, index: int, windowed: WindowedView, watermark: int) -> Iterator[Due]:
        spans = set(windowed.views)
        for _, held in self._open:
            spans.update(windowed.live(held.header.pane, watermark))
        for span in sorted(spans):
            if span.end <= watermark:
                view = windowed.views.setdefault(span, View())
                due = self._due(index, view, span)
                if due is not None:
                    yield due

    def _due(self, index: int, view: View, span: Span | None, rejected: int = 0) -> Due | None:
        open_sketches = self._open.where(lambda held: span is None or span.holds(held.header.pane))
        rows = view.closed_rows + sum(
            held.header.rows for part in open_sketches.values() for held in part
        )
        if (rows, rejected) == view.published:
            return None
        state = view.state(open_sketches)
        if state is None:
            return None
        view.published = rows, rejected
        return Due(index, self._window(index, span), state, rows, final=span is not None)

    def _window(self, index: int, span: Span | None) -> Window:
        spec = self._specs[index]
        if span is None:
            # The end of what is counted: the pane after the watermark's, or after the oldest row.
            start = self.oldest or 0
            end = (self.watermark or start) // self._pane_ms * self._pane_ms + self._pane_ms
            span = Span(start, end)
        return Window(
            kind=spec.kind,
            start=span.start,
            end=span.end,
            seconds=getattr(spec, "seconds", None),
            hop_seconds=getattr(spec, "hop_seconds", None),
            half_life_seconds=getattr(spec, "half_life_seconds", None),
        )
