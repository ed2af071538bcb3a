"""One model's sketches to the windows that are due."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from attributary.schemas.manifest import ModelCount
from attributary.workers.maths.spans import Span
from attributary.workers.maths.window import WindowState
from attributary.workers.stream.due import Due, Settled
from attributary.workers.stream.held import Held, SourceKey, UnreadableSketchError
from attributary.workers.stream.lightweight import Tally
from attributary.workers.stream.model_snapshot import SnapshotModel
from attributary.workers.stream.snapshot_state import Piece, Side
from attributary.workers.stream.views import Pair, View


class ModelMerge(SnapshotModel):
    """The views of one model on one layout; a new layout starts them afresh.

    ``card`` gives the windows. Sketches of an older layout than ``epoch``'s are counted by the ledgers
    and left out of the views, because their columns differ. ``load`` reads the windows of snapshots,
    ``report`` is told of sketches that cannot be used.
    """

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

    def replace(self, older: ModelMerge) -> None:
        """Take over from the merge of an older layout what its blocks still need to be complete.

        Endless views begin anew: their messages replace the older ones' all the same.
        """
        for view, theirs in self._endless_in_both(older):
            view.most = theirs.revision(older._tally(theirs, None))
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
        self._withdraw(self._open.block(source, block))
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
        for view, kept in self._endless_in_both(older):
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

    def _endless_in_both(self, older: ModelMerge) -> Iterator[tuple[View, View]]:
        """Yield the endless views that an older merge has too, with its own."""
        for index, view in self._endless.items():
            for other, theirs in older._endless.items():
                if older._specs[other] == self._specs[index]:
                    yield view, theirs

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
            due = self._settled.popleft().evaluated(self._drop)
            if due is not None:
                yield due

    @property
    def settled_windows(self) -> int:
        """How many settled windows wait to be published."""
        return len(self._settled)

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

    def _drop(self, error: UnreadableSketchError) -> None:
        """Forget a sketch that cannot be used: its block lacks it from now on."""
        if not error.held.header.twin:
            self._withdraw([error.held.header.pane])
        (self._twins if error.held.header.twin else self._open).drop(error.held)
        self.changes += 1
        self._report(str(error))

    def _withdraw(self, panes: Collection[int]) -> None:
        """Note in the views that rows of these panes, of open blocks, are about to count no more."""
        views: list[tuple[Span | None, View]] = [(None, view) for view in self._endless.values()]
        for windowed in self._windowed.values():
            views += windowed.views.items()
        for span, view in views:
            if any(span is None or span.holds(pane) for pane in panes):
                view.most = view.revision(self._tally(view, span))
                view.published = None

    def _tally(self, view: View, span: Span | None) -> Tally:
        return view.tally(self._of(span))

    def _of(self, span: Span | None) -> dict[SourceKey, list[Held]]:
        """Return the open sketches of a window, or all."""
        return self._open.where(lambda held: span is None or span.holds(held.header.pane))

    def _settle(self, index: int, view: View, span: Span) -> None:
        """Keep what a window holds now, until it is published."""
        found = self._of(span)
        tally = view.tally(found)
        if (tally.total, tally.rows_thinned) != view.published:
            window = self._window(index, span)
            self._settled.append(Settled(index, window, view, tally, found, self._pairs(found)))

    def _due(
        self, index: int, view: View, span: Span | None, books: tuple[int, ...] = ()
    ) -> Due | None:
        while True:
            open_sketches = self._of(span)
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
            return Due(index, window, state, tally, final, compared, view.most)


def _same_rows(full: Held, light: Held) -> bool:
    """Say whether a light sketch and another of its pane count the same rows, the other in full."""
    return full.header.fraction == 1 and full.header.rows == light.header.rows
