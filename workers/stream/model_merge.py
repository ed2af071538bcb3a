"""One model's sketches to the windows that are due."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from attributary.schemas.attribution import Window
from attributary.schemas.card import Decayed, Lifetime, ModelCard
from attributary.schemas.manifest import ModelCount
from attributary.schemas.sketch import SketchHeader
from attributary.workers.maths.spans import Hopping, Span
from attributary.workers.maths.window import WindowState
from attributary.workers.maths.wire import IncompatibleStateError
from attributary.workers.stream.epoch import Epoch, pane_ms
from attributary.workers.stream.open_sketches import OpenSketches
from attributary.workers.stream.snapshot_state import (
    ModelShares,
    ModelState,
    OpenState,
    Piece,
    ShareState,
    ViewState,
    encode_state,
)
from attributary.workers.stream.views import (
    Held,
    Share,
    SourceKey,
    UnreadableSketchError,
    View,
    WindowedView,
)

# What has waited this much longer than usual in the log is held by the snapshot itself, which else points
# there: the last windows of a model that has stopped stay open, and retention takes their sketches.
_OLD_MS = 900_000


@dataclass(frozen=True)
class Due:
    """A window to publish: its state, the rows it counts, and whether the watermark is past it."""

    spec: int
    window: Window
    state: WindowState
    rows: int
    final: bool


@dataclass(frozen=True)
class ModelDraft:
    """A model as it was, to be encoded later: ``needs`` is the offset of the oldest sketch that it points
    to, ``ages_at`` the broker's time from which it would hold more itself."""

    make: Callable[[], bytes]
    needs: int | None
    ages_at: int | None


class ModelMerge:
    """The views of one model on one layout; a new layout starts them afresh.

    ``card`` gives the windows. Sketches of an older layout than ``epoch``'s are counted by the ledgers
    and left out of the views, because their columns differ. ``load`` reads the windows of snapshots,
    ``report`` is told of sketches that cannot be used.
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
        self._report = report
        self._pane_ms = epoch.record.pane_ms
        self._open = OpenSketches()
        self._outdated = OpenSketches()
        #: Sketches of closed blocks in open windows, in the order that they were folded in.
        self._pieces: dict[SourceKey, list[Piece]] = {}
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

    def add(self, held: Held) -> bool:
        """Take a sketch of this layout; False where it says nothing new."""
        header = held.header
        live = [
            (windowed, span)
            for windowed in self._windowed.values()
            for span in windowed.live(header.pane, self.watermark)
        ]
        if live or not self._windowed:
            held.on_time = header.rows
        if not self._open.add(held):
            return False
        self.changes += 1
        for windowed, span in live:
            windowed.views.setdefault(span, View())
        known = self.oldest
        self.oldest = header.pane if known is None else min(known, header.pane)
        return True

    def add_outdated(self, header: SketchHeader) -> None:
        """Note a sketch of an older layout: it completes its block, and that is all."""
        self._outdated.add(Held(header, b"", header.pane))
        self.changes += 1

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
        self.changes += 1

    def forget_where(self, source: SourceKey, counted: Callable[[int, int], bool]) -> None:
        """Drop the sketches of the source's blocks [start, end) that are counted, in part or whole."""
        for part in (self._outdated, self._open):
            for block, upto in part.reaches(source).items():
                if counted(block, upto):
                    self.forget(source, block)

    def inherit(self, older: ModelMerge) -> None:
        """Go on with the endless views of a merge of the same layout that has read the same records."""
        self.changes += 1
        for index, view in self._endless.items():
            for other, kept in older._endless.items():
                if older._specs[other] == self._specs[index]:
                    view.take_over(kept)
        self.late_rows = older.late_rows
        if older.oldest is not None:
            self.oldest = older.oldest if self.oldest is None else min(self.oldest, older.oldest)
        for _, held in older._open:
            self._open.add(held)
        for _, held in older._outdated:
            self._outdated.add(held)
        self.advance(older.watermark)

    def readable(self, source: SourceKey, block: int) -> bool:
        """Say whether all sketches of the block can be used; those that cannot are dropped."""
        found = True
        for held in list(self._open.block(source, block).values()):
            try:
                held.parse()
            except UnreadableSketchError as error:
                self._drop(error)
                found = False
        return found

    def close(self, source: SourceKey, block: int) -> None:
        """Merge the sketches of a block whose books are closed; ``readable`` has looked at them."""
        self._outdated.take(source, block)
        self.changes += 1
        for held in self._open.take(source, block):
            part = held.part()
            self.late_rows += held.header.rows - held.on_time
            self._fold(source, held, part, again=False)
            for view in self._endless.values():
                view.close(source, held, part)
            self.closings[source] += 1

    def fold_again(self, source: SourceKey, held: Held, part: WindowState) -> None:
        """Merge a sketch of a closed block, found in the log again, into the windows that lack it."""
        self._fold(source, held, part, again=True)

    def _fold(self, source: SourceKey, held: Held, part: WindowState, *, again: bool) -> None:
        for windowed in self._windowed.values():
            windowed.close(source, held, part, again=again)
        if self._in_open_window(held.header.pane):
            piece = Piece(held.header, held.place[2], held.offset, held.clock)
            self._pieces.setdefault(source, []).append(piece)

    def open_again(self, held: Held) -> None:
        """Hold a sketch of an open block that a snapshot points to."""
        self._open.add(held)

    def advance(self, watermark: int | None) -> None:
        """Move the watermark on, and settle the windows that no row can change any more."""
        if watermark is None or (self.watermark is not None and watermark <= self.watermark):
            return
        self.watermark = watermark
        self.changes += 1
        settled = False
        for index, windowed in self._windowed.items():
            for span in windowed.settled(watermark):
                due = self._due(index, windowed.views[span], span)
                if due is not None:
                    self._settled.append(due)
                windowed.drop(span)
                settled = True
        if settled:
            for source, pieces in self._pieces.items():
                self._pieces[source] = [
                    piece for piece in pieces if self._in_open_window(piece.header.pane)
                ]

    def settled(self) -> Iterator[Due]:
        """Yield the settled windows that are not published as they are, once."""
        while self._settled:
            yield self._settled.popleft()

    @property
    def settled_windows(self) -> int:
        """How many settled windows wait to be published."""
        return len(self._settled)

    def due(self, books: tuple[int, ...] = ()) -> Iterator[Due]:
        """Yield what has changed since it was published.

        ``books`` of the model make an endless view due again where they say something else than before.
        """
        yield from self.settled()
        for index, windowed in self._windowed.items():
            for span in sorted(windowed.views):
                if self.watermark is not None and span.end <= self.watermark:
                    due = self._due(index, windowed.views[span], span)
                    if due is not None:
                        yield due
        for index, view in self._endless.items():
            due = self._due(index, view, None, books)
            if due is not None:
                yield due

    def draft(self, clock: int) -> ModelDraft:
        """Return the model as it is now, for a snapshot at the broker's time ``clock``."""
        pieces = [piece for kept in self._pieces.values() for piece in kept]
        since: dict[int, int] = {}
        for piece in pieces:
            pane = piece.header.pane
            since[pane] = min(piece.clock, since.get(pane, piece.clock))
        ages: list[int] = []
        views: list[tuple[ViewState, list[tuple[SourceKey, Share]]]] = [
            (ViewState(index, None, view.closed_rows, _listed(view.published), False, []), [])
            for index, view in self._endless.items()
        ]
        for index, windowed in self._windowed.items():
            for span, view in windowed.views.items():
                panes = windowed.spans.panes(span)
                oldest = min((since[pane] for pane in panes if pane in since), default=None)
                if oldest is not None and span not in windowed.whole:
                    ages.append(oldest + span.end - span.start + windowed.lateness + _OLD_MS)
                    if ages[-1] <= clock:
                        windowed.whole.add(span)
                whole = span in windowed.whole
                state = ViewState(index, span, view.closed_rows, _listed(view.published), whole, [])
                lent = [(source, view.lend(source)) for source in view.sources()] if whole else []
                views.append((state, lent))
        pieces = [piece for piece in pieces if self._in_open_window(piece.header.pane, whole=False)]
        held = []
        for _, each in self._open:
            ages.append(each.clock + _OLD_MS)
            piece = Piece(each.header, each.place[2], each.offset, each.clock)
            held.append(OpenState(piece, each.on_time, each.body if ages[-1] <= clock else None))
        needs = [piece.offset for piece in pieces]
        needs += [state.piece.offset for state in held if state.body is None]
        model = ModelState(
            card=self._windows_json(),
            epoch=self.epoch.record.epoch,
            late_rows=self.late_rows,
            watermark=self.watermark,
            oldest=self.oldest,
            views=[],
            open=held,
            outdated=[each.header for _, each in self._outdated],
            pieces=pieces,
        )
        return ModelDraft(
            lambda: _encoded(model, views),
            min(needs, default=None),
            min((age for age in ages if age > clock), default=None),
        )

    def draft_shares(self, source: SourceKey) -> Callable[[], bytes]:
        """Return what encodes the source's closed blocks in the endless views, as they are now."""
        lent = {
            index: view.lend(source)
            for index, view in self._endless.items()
            if source in view.sources()
        }
        return lambda: encode_state(
            ModelShares(
                self.card.model,
                source,
                {index: _share_state(source, share) for index, share in lent.items()},
            )
        )

    @property
    def closed_sources(self) -> set[SourceKey]:
        """The sources with closed blocks in the endless views."""
        return {source for view in self._endless.values() for source in view.sources()}

    def restore(
        self,
        state: ModelState,
        shares: Mapping[SourceKey, ModelShares],
        read_of: Callable[[SketchHeader], Callable[[bytes], WindowState]],
    ) -> None:
        """Begin where ``state`` was; IncompatibleStateError where its windows or columns are others.

        What it points to in the log is not there yet: see ``fold_again`` and ``open_again``.
        """
        self.late_rows, self.watermark = state.late_rows, state.watermark
        self.oldest = state.oldest
        for each in state.views:
            if each.span is None:
                if each.spec not in self._endless:
                    raise IncompatibleStateError(f"view {each.spec} is not an endless one")
                view = self._endless[each.spec]
                found = [
                    part.shares[each.spec] for part in shares.values() if each.spec in part.shares
                ]
                view.closed_rows = each.closed_rows
            else:
                if each.spec not in self._windowed:
                    raise IncompatibleStateError(f"view {each.spec} is not one of windows")
                windowed, span = self._windowed[each.spec], Span(*each.span)
                view = windowed.views[span] = View()
                found = each.shares
                if each.whole:
                    windowed.whole.add(span)
                    view.closed_rows = each.closed_rows
            view.published = None if each.published is None else tuple(each.published)
            for share in found:
                window = self._load(share.window)
                view.restore(share.source, Share.of(view.half_life, window, share.as_of))
        for opened in state.open:
            if opened.body is not None:
                piece = opened.piece
                read = read_of(piece.header)
                held = self.held(piece.header, opened.body, read, piece.offset, piece.clock)
                held.on_time = opened.on_time
                self.open_again(held)
        for header in state.outdated:
            self.add_outdated(header)

    def _windows_json(self) -> bytes:
        card = self.card
        return ModelCard(
            model=card.model,
            pane_seconds=card.pane_seconds,
            allowed_lateness_seconds=card.allowed_lateness_seconds,
            windows=card.windows,
        ).to_bytes()

    def _in_open_window(self, pane: int, *, whole: bool = True) -> bool:
        return any(
            span in windowed.views and (whole or span not in windowed.whole)
            for windowed in self._windowed.values()
            for span in windowed.spans.spans_of(pane)
        )

    def _drop(self, error: UnreadableSketchError) -> None:
        """Forget a sketch that cannot be used: its block lacks it from now on."""
        self._open.drop(error.held)
        self.changes += 1
        self._report(str(error))

    def _due(
        self, index: int, view: View, span: Span | None, books: tuple[int, ...] = ()
    ) -> Due | None:
        while True:
            open_sketches = self._open.where(
                lambda held: span is None or span.holds(held.header.pane)
            )
            rows = view.closed_rows + sum(
                held.header.rows for part in open_sketches.values() for held in part
            )
            if (rows, *books) == view.published:
                return None
            try:
                state = view.state(open_sketches)
            except UnreadableSketchError as error:
                self._drop(error)
                continue
            if state is None:
                return None
            view.published = rows, *books
            self.changes += 1
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


def _share_state(source: SourceKey, share: Share) -> ShareState:
    window = share.window(None)
    if window is None:
        raise ValueError(f"the share of {source} holds no block")
    return ShareState(source, share.as_of, window.to_bytes())


def _encoded(
    state: ModelState, views: list[tuple[ViewState, list[tuple[SourceKey, Share]]]]
) -> bytes:
    encoded = [
        msgspec.structs.replace(view, shares=[_share_state(*lent) for lent in shares])
        for view, shares in views
    ]
    return encode_state(msgspec.structs.replace(state, views=encoded))


def _listed(published: tuple[int, ...] | None) -> list[int] | None:
    return None if published is None else list(published)
