"""One source's share of one view: its closed blocks, and what is open after them.

A window takes as much memory for one row as for a million, and there can be thousands of them, of rows with
scattered event times or of models that have stopped. So a share of a single sketch is that sketch's
bytes, and one that nothing has touched for a while is packed; both are read again to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from attributary.workers.maths.decayed import DecayedState
from attributary.workers.maths.spans import decay
from attributary.workers.maths.window import WindowState
from attributary.workers.stream.held import Held, Place

Load = Callable[[bytes], WindowState]


@dataclass(frozen=True)
class _Packed:
    data: bytes
    as_of: int | None


class Share:
    """Sketches of one source in order, merged; decayed by age where there is a half-life (ms).

    ``load`` reads a packed window.
    """

    def __init__(self, half_life: int | None, load: Load = WindowState.from_bytes) -> None:
        self._half_life = half_life
        self._load = load
        # Replaced as a whole, never changed while it is lent: another thread may be reading it.
        self._kept: WindowState | DecayedState | _Packed | Held | None = None

    @classmethod
    def of(
        cls,
        half_life: int | None,
        window: WindowState,
        as_of: int | None,
        load: Load = WindowState.from_bytes,
    ) -> Share:
        """Return the share that holds ``window``, as of the end of its newest pane."""
        share = cls(half_life, load)
        share._kept = share._state(window, as_of)
        return share

    @classmethod
    def alone(cls, half_life: int | None, held: Held, load: Load) -> Share:
        """Return the share of one sketch, which can be read."""
        share = cls(half_life, load)
        share._kept = held
        return share

    def add(self, part: WindowState, pane_end: int) -> None:
        """Merge one pane."""
        state = self._unpacked()
        if state is None:
            state = self._state(part.copy(), pane_end)
        elif isinstance(state, DecayedState):
            state.add(part, pane_end)
        else:
            state.merge(part)
        self._kept = state

    def copy(self) -> Share:
        """Return an independent copy."""
        other = Share(self._half_life, self._load)
        kept = self._kept
        if isinstance(kept, DecayedState):
            other._kept = DecayedState(kept.window.copy(), kept.half_life, kept.as_of)
        elif kept is None or isinstance(kept, Held | _Packed):
            other._kept = kept
        else:
            other._kept = kept.copy()
        return other

    def pack(self) -> None:
        """Take as little memory as the rows allow, until it is changed."""
        kept = self._kept
        if kept is None or isinstance(kept, Held | _Packed):
            return
        window = kept.window if isinstance(kept, DecayedState) else kept
        self._kept = _Packed(window.to_bytes(), self.as_of)

    @property
    def empty(self) -> bool:
        """Whether there is no sketch in it."""
        return self._kept is None

    @property
    def as_of(self) -> int | None:
        """End of the newest pane, where the share decays."""
        kept = self._kept
        if isinstance(kept, Held):
            return None if self._half_life is None else kept.pane_end
        return kept.as_of if isinstance(kept, DecayedState | _Packed) else None

    def window(self, as_of: int | None) -> WindowState | None:
        """Return the merged panes, aged to ``as_of``; to read, not to change."""
        state = self._unpacked()
        if not isinstance(state, DecayedState):
            return state
        if as_of is None or state.as_of is None:
            return state.window
        return state.window.scaled(decay(as_of - state.as_of, state.half_life))

    def _state(self, window: WindowState, as_of: int | None) -> WindowState | DecayedState:
        return window if self._half_life is None else DecayedState(window, self._half_life, as_of)

    def _unpacked(self) -> WindowState | DecayedState | None:
        kept = self._kept
        if isinstance(kept, Held):
            return self._state(kept.part(), kept.pane_end)
        if isinstance(kept, _Packed):
            return self._state(self._load(kept.data), kept.as_of)
        return kept


class Partial:
    """One source's share of one view: its closed blocks, and a cache that runs ahead of them.

    The cache is the closed share plus the first open sketches, as long as those do not change; a stream
    in time order changes only its last panes, so most are merged once.
    """

    def __init__(self, half_life: int | None, load: Load = WindowState.from_bytes) -> None:
        self._half_life = half_life
        self._load = load
        self._closed = Share(half_life, load)
        #: The closed share is being read elsewhere: to be copied before it changes.
        self._lent = False
        self._ahead: Share | None = None
        self._ahead_places: list[Place] = []
        self._seen: list[Place] = []

    @classmethod
    def of(
        cls, half_life: int | None, closed: Share, load: Load = WindowState.from_bytes
    ) -> Partial:
        """Return the partial of these closed blocks."""
        partial = cls(half_life, load)
        partial._closed = closed
        return partial

    @property
    def closed(self) -> bool:
        """Whether there is any closed block."""
        return not self._closed.empty

    def lend(self) -> Share:
        """Return the closed blocks; they stay as they are, whatever is closed afterwards."""
        self._lent = True
        return self._closed

    def close(self, held: Held, part: WindowState) -> None:
        """Merge a final sketch."""
        if self._closed.empty:
            self._closed, self._lent = Share.alone(self._half_life, held, self._load), False
        else:
            if self._lent:
                self._closed, self._lent = self._closed.copy(), False
            self._closed.add(part, held.pane_end)
        if self._ahead_places[:1] == [held.place]:
            del self._ahead_places[0]
        else:
            self._ahead_places = []
        if not self._ahead_places:
            self._ahead = None  # the closed share says the same

    def share(self, open_sketches: list[Held]) -> Share:
        """Return closed and open together; to read, not to change."""
        if not open_sketches:
            self._forget_ahead()
            return self._closed
        places = [held.place for held in open_sketches]
        if self._ahead_places != places[: len(self._ahead_places)]:
            self._ahead, self._ahead_places = None, []
        steady = max(len(self._ahead_places), _common_prefix(self._seen, places))
        share = self._ahead or self._closed
        if steady > (done := len(self._ahead_places)):
            share = self._ahead or self._closed.copy()
            # Until all of them are in: one of them may turn out to be unreadable.
            self._ahead, self._ahead_places = None, []
            for held in open_sketches[done:steady]:
                share.add(held.part(), held.pane_end)
            self._ahead, self._ahead_places = share, places[:steady]
        self._seen = places
        if rest := open_sketches[steady:]:
            share = share.copy()
            for held in rest:
                share.add(held.part(), held.pane_end)
        return share

    def rest(self) -> None:
        """Take as little memory as the rows allow, until something is added or asked."""
        self._forget_ahead()
        self._closed.pack()

    def _forget_ahead(self) -> None:
        self._ahead, self._ahead_places, self._seen = None, [], []


def _common_prefix(left: list[Place], right: list[Place]) -> int:
    count = 0
    for mine, other in zip(left, right, strict=False):
        if mine != other:
            break
        count += 1
    return count
