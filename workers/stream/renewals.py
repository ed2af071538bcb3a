"""When a model gets a new grid: its rows have left the old one, and that happens seldom enough.

Every view keeps cells for each epoch that it has rows of, and a lifetime keeps them all. Data that jumps to
and fro would make an epoch a block. So after a few epochs of one layout, each further one takes four
times as many rows as the one before, and there is a last one. Rows beyond its edges are still counted, in
the outermost cells, and resolve less.
"""

from __future__ import annotations

from collections.abc import Sequence

from attributary.schemas.grid import GridRecord
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.stream.accumulators import Accumulators
from attributary.workers.stream.epoch import Epoch
from attributary.workers.stream.options import IngestOptions

#: Epochs of one layout, at most.
MOST_EPOCHS = 12
# The first renewals come at once: of a grid from too few rows, of shifts, of the seasons of a year.
_AT_ONCE = 8
_GROWTH = 4


class Renewals:
    """The next epochs that one source partition asks for."""

    def __init__(self, accumulators: Accumulators, options: IngestOptions) -> None:
        self._accumulators = accumulators
        self._options = options
        self._due: list[GridRecord] = []
        #: The newest epoch of a model, and its rows in blocks that had left it.
        self._left: dict[str, tuple[int, int]] = {}
        #: Blocks that have left their grid and got no new one.
        self.held_back = 0

    def add(self, epoch: Epoch, panes: Sequence[PaneSketch], rows: int) -> None:
        """Look at the panes of a whole block on the model's newest epoch, of so many rows."""
        record = self._accumulators.renewal(epoch, panes, self._options)
        if record is None:
            return
        name, number = epoch.record.model, epoch.record.epoch
        known, before = self._left.get(name, (number, 0))
        rows += before if known == number else 0
        self._left[name] = number, rows
        made = number - epoch.record.layout
        needed = self._options.grid_rows * _GROWTH ** (made - _AT_ONCE)
        if made + 1 >= MOST_EPOCHS or (made >= _AT_ONCE and rows < needed):
            self.held_back += 1
        else:
            self._due.append(record)

    def take(self) -> list[GridRecord]:
        """Return what has become due since this was asked last."""
        due, self._due = self._due, []
        return due
