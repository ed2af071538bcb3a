"""One model's sketches to the windows that are due."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from attributary.schemas.attribution import Window
from attributary.schemas.card import Decayed, Lifetime, ModelCard
from attributary.schemas.manifest import ModelCount
from attributary.schemas.sketch import SketchHeader
from attributary.workers.maths.spans import Hopping, Span
from attributary.workers.maths.window import WindowState
from attributary.workers.maths.wire import IncompatibleStateError
from attributary.workers.stream.epoch import Epoch, pane_ms
from attributary.workers.stream.held import Held, SourceKey, UnreadableSketchError
from attributary.workers.stream.lightweight import Tally
from attributary.workers.stream.open_sketches import OpenSketches
from attributary.workers.stream.share import Share
from attributary.workers.stream.snapshot_state import (
    ModelShares,
    ModelState,
    OpenState,
    Piece,
    Rows,
    ShareState,
    Side,
    SideState,
    ViewState,
    encode_state,
)
from attributary.workers.stream.views import Compared, Pair, View, WindowedView

Item = TypeVar("Item", Held, Pair)

# What has waited this much longer than usual in the log is held by the snapshot itself, which else points
# there: the last windows of a model that has stopped stay open, and retention takes their sketches.
_OLD_MS = 900_000


@dataclass(frozen=True)
class Due:
    """A window to publish: its state, the rows it counts, and whether the watermark is past it.

    ``compared`` is what of it was sketched both in full and lightly.
    """

    spec: int
    window: Window
    state: WindowState
    tally: Tally
    final: bool
    compared: Compared | None = None

    @property
    def rows(self) -> int:
        """Rows that it counts, in its state or left out."""
        return self.tally.total


@dataclass(frozen=True)
class ModelDraft:
    """A model as it was, to be encoded later: ``needs`` is the offset of the oldest sketch that it points
    to, ``ages_at`` the broker's time from which it would hold more itself."""

    make: Callable[[], bytes]
    needs: int | None
    ages_at: int | None


@dataclass(frozen=True)
class _Settled:
    """A window that takes no more rows, not evaluated yet: many may settle at once."""

    spec: int
    window: Window
    view: View
    tally: Tally
    open: dict[SourceKey, list[Held]]
    pairs: dict[SourceKey, list[Pair]]


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
        self._settled: deque[_Settled] = deque()
        self._specs = card.windows
        self._windowed: dict[int, WindowedView] = {}
        self._endless: dict[int, View] = {}
        lateness = round(card.allowed_lateness_seconds * 1000)
        for index, spec in enumerate(card.windows):
            if isinstance(spec, Lifetime):
                self._endless[index] = View(load=load)
            elif isinstance(spec, Decayed):
                half_life = round(spec.half_life_seconds * 1000)
                self._endless[index] = View(half_life, load)
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
        if header.twin:
            self.changes += 1
            return self._twins.add(held)
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
            if span not in windowed.views:
                windowed.views[span] = View(load=self._load)
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
        for part in (self._outdated, self._open, self._twins):
            part.take(source, block)
        self.changes += 1

    def forget_where(self, source: SourceKey, counted: Callable[[int, int], bool]) -> None:
        """Drop the sketches of the source's blocks [start, end) that are counted, in part or whole."""
        for part in (self._outdated, self._open, self._twins):
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
        for held in older._open.variants():
            self._open.add(held)
        for held in older._twins.variants():
            self._twins.add(held)
        for _, held in older._outdated:
            self._outdated.add(held)
        self.advance(older.watermark)

    def readable(self, source: SourceKey, block: int) -> bool:
        """Say whether all sketches of the block can be used; those that cannot are dropped."""
        found = True
        for part in (self._open, self._twins):
            for held in list(part.block(source, block).values()):
                try:
                    held.parse()
                except UnreadableSketchError as error:
                    self._drop(error)
                    found = found and held.header.twin
        return found

    def close(self, source: SourceKey, block: int) -> None:
        """Merge the sketches of a block whose books are closed; ``readable`` has looked at them."""
        self._outdated.take(source, block)
        self.changes += 1
        twins = {twin.header.pane: twin for twin in self._twins.take(source, block)}
        for held in self._open.take(source, block):
            self.late_rows += held.header.rows - held.on_time
            twin = twins.get(held.header.pane)
            sides: list[tuple[Side, Held]] = [("all", held)]
            if twin is not None and _same_rows(held, twin):
                sides += [("full", held), ("light", twin)]
            part = held.part()
            for side, each in sides:
                part = each.part() if side == "light" else part
                self._fold(source, each, part, side)
                for view in self._endless.values():
                    view.side(side).close(source, each, part)
            self.closings[source] += 1

    def fold_again(self, source: SourceKey, held: Held, part: WindowState) -> None:
        """Merge a sketch of a closed block, found in the log again, into the windows that lack it."""
        header = held.header
        self._fold(source, held, part, "light" if header.twin else "all", again=True)
        if not header.twin and (source, header.block, header.pane) in self._paired:
            self._fold(source, held, part, "full", again=True)

    def _fold(
        self, source: SourceKey, held: Held, part: WindowState, side: Side, *, again: bool = False
    ) -> None:
        for windowed in self._windowed.values():
            windowed.close(source, held, part, again=again, side=side)
        # The full side takes the same sketches as all, where there is a twin.
        if side != "full" and self._in_open_window(held.header.pane):
            piece = Piece(held.header, held.place[2], held.offset, held.clock)
            self._pieces.setdefault(source, []).append(piece)

    def _pairs(self, sketches: Mapping[SourceKey, list[Held]]) -> dict[SourceKey, list[Pair]]:
        """Return those that have a twin of the same rows, with it."""
        found: dict[SourceKey, list[Pair]] = {}
        for source, several in sketches.items():
            for held in several:
                twin = self._twins.block(source, held.header.block).get(held.header.pane)
                if twin is not None and _same_rows(held, twin):
                    found.setdefault(source, []).append(Pair(held, twin))
        return found

    def open_again(self, held: Held) -> None:
        """Hold a sketch of an open block that a snapshot points to."""
        (self._twins if held.header.twin else self._open).add(held)

    def advance(self, watermark: int | None) -> None:
        """Move the watermark on, and settle the windows that no row can change any more."""
        if watermark is None or (self.watermark is not None and watermark <= self.watermark):
            return
        self.watermark = watermark
        self.changes += 1
        settled = False
        for index, windowed in self._windowed.items():
            for span in windowed.settled(watermark):
                self._settle(index, windowed.views[span], span)
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
            due = self._evaluated(self._settled.popleft())
            if due is not None:
                yield due

    @property
    def settled_windows(self) -> int:
        """How many settled windows wait to be published."""
        return len(self._settled)

    @property
    def open_windows(self) -> int:
        """How many windows can still change."""
        return sum(len(windowed.views) for windowed in self._windowed.values())

    def settle_early(self, windows: int) -> None:
        """Settle so many windows, the oldest, before their time; rows that still come for them are late."""
        ends = sorted(
            span.end + windowed.lateness
            for windowed in self._windowed.values()
            for span in windowed.views
        )
        if ends and windows > 0:
            before = self.open_windows
            self.advance(ends[min(windows, len(ends)) - 1])
            self.settled_early += before - self.open_windows

    def rest(self) -> None:
        """Note that a round of publishing is over; what nothing touches for a while takes little memory."""
        for view in self._endless.values():
            view.rest()
        for windowed in self._windowed.values():
            for view in windowed.views.values():
                view.rest()

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
        views = [
            _ViewDraft.of(index, None, view, whole=False) for index, view in self._endless.items()
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
                views.append(_ViewDraft.of(index, span, view, whole=whole))
        pieces = [piece for piece in pieces if self._in_open_window(piece.header.pane, whole=False)]
        held = []
        for each in (*self._open.variants(), *self._twins.variants()):
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
        lent: dict[Side, dict[int, Share]] = {}
        for index, view in self._endless.items():
            for side, each in view.sides():
                if source in each.sources():
                    lent.setdefault(side, {})[index] = each.lend(source)
        return lambda: encode_state(
            ModelShares(
                self.card.model,
                source,
                {
                    side: {index: _share_state(source, share) for index, share in of.items()}
                    for side, of in lent.items()
                },
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
            else:
                if each.spec not in self._windowed:
                    raise IncompatibleStateError(f"view {each.spec} is not one of windows")
                windowed, span = self._windowed[each.spec], Span(*each.span)
                view = windowed.views[span] = View(load=self._load)
                if each.whole:
                    windowed.whole.add(span)
            view.published = None if each.published is None else tuple(each.published)
            for name, side in each.sides.items():
                found = side.shares or [
                    part.shares[name][each.spec]
                    for part in shares.values()
                    if each.spec in part.shares.get(name, {})
                ]
                self._restore_side(view.side(name), side.rows, found)
        self._paired = {
            ((piece.header.topic, piece.header.partition), piece.header.block, piece.header.pane)
            for piece in state.pieces
            if piece.header.twin
        }
        for opened in state.open:
            if opened.body is not None:
                piece = opened.piece
                read = read_of(piece.header)
                held = self.held(piece.header, opened.body, read, piece.offset, piece.clock)
                held.on_time = opened.on_time
                self.open_again(held)
        for header in state.outdated:
            self.add_outdated(header)

    def _restore_side(self, view: View, rows: Rows, shares: list[ShareState]) -> None:
        view.closed = Tally.of(rows)
        for share in shares:
            window = self._load(share.window)
            view.restore(share.source, Share.of(view.half_life, window, share.as_of, self._load))

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
        (self._twins if error.held.header.twin else self._open).drop(error.held)
        self.changes += 1
        self._report(str(error))

    def _settle(self, index: int, view: View, span: Span) -> None:
        """Keep what a window holds now, until it is published."""
        found = self._open.where(lambda held: span.holds(held.header.pane))
        tally = view.tally(found)
        if (tally.total, tally.rows_thinned) != view.published:
            window = self._window(index, span)
            self._settled.append(_Settled(index, window, view, tally, found, self._pairs(found)))

    def _evaluated(self, settled: _Settled) -> Due | None:
        view, found, pairs, tally = settled.view, settled.open, settled.pairs, settled.tally
        while True:
            try:
                state, compared = view.state(found), view.compared(pairs)
            except UnreadableSketchError as error:
                self._drop(error)
                found, pairs = _without(found, error.held), _without(pairs, error.held)
                tally = view.tally(found)
                continue
            if state is None:
                return None
            return Due(settled.spec, settled.window, state, tally, final=True, compared=compared)

    def _due(
        self, index: int, view: View, span: Span | None, books: tuple[int, ...] = ()
    ) -> Due | None:
        while True:
            open_sketches = self._open.where(
                lambda held: span is None or span.holds(held.header.pane)
            )
            tally = view.tally(open_sketches)
            published = tally.total, tally.rows_thinned, *books
            if published == view.published:
                return None
            try:
                state = view.state(open_sketches)
                compared = view.compared(self._pairs(open_sketches))
            except UnreadableSketchError as error:
                self._drop(error)
                continue
            if state is None:
                return None
            view.published = published
            self.changes += 1
            window, final = self._window(index, span), span is not None
            return Due(index, window, state, tally, final, compared)

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


@dataclass(frozen=True)
class _ViewDraft:
    """A view as it was, to be encoded later; ``lent`` are its closed blocks by side."""

    state: ViewState
    lent: dict[Side, list[tuple[SourceKey, Share]]]

    @classmethod
    def of(cls, spec: int, span: Span | None, view: View, *, whole: bool) -> _ViewDraft:
        sides: dict[Side, SideState] = {}
        lent: dict[Side, list[tuple[SourceKey, Share]]] = {}
        if span is None or whole:
            for name, side in view.sides():
                sides[name] = SideState(side.closed.listed(), [])
                if whole:
                    lent[name] = [(source, side.lend(source)) for source in side.sources()]
        published = None if view.published is None else list(view.published)
        return cls(ViewState(spec, span, published, whole, sides), lent)

    def encodable(self) -> ViewState:
        sides = {
            name: SideState(side.rows, [_share_state(*each) for each in self.lent.get(name, ())])
            for name, side in self.state.sides.items()
        }
        return msgspec.structs.replace(self.state, sides=sides)


def _encoded(state: ModelState, views: list[_ViewDraft]) -> bytes:
    return encode_state(msgspec.structs.replace(state, views=[view.encodable() for view in views]))


def _without(sketches: dict[SourceKey, list[Item]], held: Held) -> dict[SourceKey, list[Item]]:
    """Return all but a sketch, or a pair with it; a source that has none left is not named."""
    kept = {
        source: [
            item
            for item in several
            if all(each is not held for each in (item if isinstance(item, Pair) else (item,)))
        ]
        for source, several in sketches.items()
    }
    return {source: several for source, several in kept.items() if several}


def _same_rows(full: Held, light: Held) -> bool:
    """Say whether a light sketch and another of its pane count the same rows, the other in full."""
    return full.header.fraction == 1 and full.header.rows == light.header.rows
