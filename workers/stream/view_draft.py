"""Views as they were, to be encoded later from another thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from attributary.workers.maths.spans import Span
from attributary.workers.stream.held import SourceKey
from attributary.workers.stream.share import Share
from attributary.workers.stream.snapshot_state import (
    ModelState,
    ShareState,
    Side,
    SideState,
    ViewState,
    encode_state,
)
from attributary.workers.stream.views import View


@dataclass(frozen=True)
class ModelDraft:
    """A model as it was, to be encoded later: ``needs`` is the offset of the oldest sketch that it points
    to, ``ages_at`` the broker's time from which it would hold more itself."""

    make: Callable[[], bytes]
    needs: int | None
    ages_at: int | None


def share_state(source: SourceKey, share: Share) -> ShareState:
    """Return a source's closed blocks as a snapshot holds them."""
    window = share.window(None)
    if window is None:
        raise ValueError(f"the share of {source} holds no block")
    return ShareState(source, share.as_of, window.to_bytes())


@dataclass(frozen=True)
class ViewDraft:
    """A view as it was, to be encoded later; ``lent`` are its closed blocks by side."""

    state: ViewState
    lent: dict[Side, list[tuple[SourceKey, Share]]]

    @classmethod
    def of(cls, spec: int, span: Span | None, view: View, *, whole: bool) -> ViewDraft:
        """Return the view as it is; ``whole``: with its closed blocks, though it ends."""
        sides: dict[Side, SideState] = {}
        lent: dict[Side, list[tuple[SourceKey, Share]]] = {}
        if span is None or whole:
            for name, side in view.sides():
                sides[name] = SideState(side.closed.listed(), [])
                if whole:
                    lent[name] = [(source, side.lend(source)) for source in side.sources()]
        published = None if view.published is None else list(view.published)
        return cls(ViewState(spec, span, published, whole, sides, view.most), lent)

    def encodable(self) -> ViewState:
        """Return what is to be encoded."""
        sides = {
            name: SideState(side.rows, [share_state(*each) for each in self.lent.get(name, ())])
            for name, side in self.state.sides.items()
        }
        return msgspec.structs.replace(self.state, sides=sides)


def encoded(state: ModelState, views: list[ViewDraft]) -> bytes:
    """Return the bytes of a model with its views."""
    return encode_state(msgspec.structs.replace(state, views=[view.encodable() for view in views]))
