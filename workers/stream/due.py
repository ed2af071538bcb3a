"""Windows to publish: ready, or settled and not evaluated yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from attributary.schemas.attribution import Window
from attributary.workers.maths.window import WindowState
from attributary.workers.stream.held import Held, SourceKey, UnreadableSketchError
from attributary.workers.stream.lightweight import Tally
from attributary.workers.stream.views import Compared, Pair, View

Item = TypeVar("Item", Held, Pair)


@dataclass(frozen=True)
class Due:
    """A window to publish: its state, the rows it counts, and whether the watermark is past it.

    ``compared`` is what of it was sketched both in full and lightly, ``most`` the most rows that it had
    counted when some of them were taken back.
    """

    spec: int
    window: Window
    state: WindowState
    tally: Tally
    final: bool
    compared: Compared | None = None
    most: int = 0

    @property
    def rows(self) -> int:
        """Rows that it counts, in its state or left out."""
        return self.tally.total

    @property
    def revision(self) -> int:
        """The most rows that it has counted."""
        return max(self.most, self.rows)


@dataclass(frozen=True)
class Settled:
    """A window that takes no more rows, not evaluated yet: many may settle at once."""

    spec: int
    window: Window
    view: View
    tally: Tally
    open: dict[SourceKey, list[Held]]
    pairs: dict[SourceKey, list[Pair]]

    def evaluated(self, drop: Callable[[UnreadableSketchError], None]) -> Due | None:
        """Return the window as it is to be published, None without a row; ``drop`` is told of sketches that
        cannot be used."""
        view, found, pairs, tally = self.view, self.open, self.pairs, self.tally
        most = view.revision(tally)
        while True:
            try:
                state, compared = view.state(found), view.compared(pairs)
            except UnreadableSketchError as error:
                drop(error)
                found, pairs = _without(found, error.held), _without(pairs, error.held)
                tally = view.tally(found)
                continue
            if state is None:
                return None
            return Due(self.spec, self.window, state, tally, True, compared, most)


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
