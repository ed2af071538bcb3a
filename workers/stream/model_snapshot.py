"""What of one model goes into a snapshot, and how it begins again from there."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attributary.schemas.card import ModelCard
from attributary.schemas.sketch import SketchHeader
from attributary.workers.maths.spans import Span
from attributary.workers.maths.window import WindowState
from attributary.workers.maths.wire import IncompatibleStateError
from attributary.workers.stream.held import SourceKey
from attributary.workers.stream.lightweight import Tally
from attributary.workers.stream.model_views import ModelViews
from attributary.workers.stream.share import Share
from attributary.workers.stream.snapshot_state import (
    ModelShares,
    ModelState,
    OpenState,
    Piece,
    Rows,
    ShareState,
    Side,
    encode_state,
)
from attributary.workers.stream.view_draft import ModelDraft, ViewDraft, encoded, share_state
from attributary.workers.stream.views import View

# What has waited this much longer than usual in the log is held by the snapshot itself, which else points
# there: the last windows of a model that has stopped stay open, and retention takes their sketches.
_OLD_MS = 900_000


class SnapshotModel(ModelViews):
    """Views that can be written down while they go on, and restored."""

    def draft(self, clock: int) -> ModelDraft:
        """Return the model as it is now, for a snapshot at the broker's time ``clock``."""
        pieces = [piece for kept in self._pieces.values() for piece in kept]
        since: dict[int, int] = {}
        for piece in pieces:
            pane = piece.header.pane
            since[pane] = min(piece.clock, since.get(pane, piece.clock))
        ages: list[int] = []
        views = [
            ViewDraft.of(index, None, view, whole=False) for index, view in self._endless.items()
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
                views.append(ViewDraft.of(index, span, view, whole=whole))
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
            lambda: encoded(model, views),
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
                    side: {index: share_state(source, share) for index, share in of.items()}
                    for side, of in lent.items()
                },
            )
        )

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
            view.most = each.most
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
