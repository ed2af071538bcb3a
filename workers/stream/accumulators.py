"""What ingest counts rows in and what merge adds up: the one place where the two choose it.

The cores of ingest and merge only pass accumulators on, so that the simulation can drive them with
smaller, exact ones in which every row is seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from attributary.schemas.card import ModelCard
from attributary.schemas.grid import GridRecord
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.maths.window import WindowState
from attributary.workers.stream.decode import Staged
from attributary.workers.stream.drift import DriftBook
from attributary.workers.stream.encode import Refusal
from attributary.workers.stream.epoch import Epoch, propose_first, propose_next
from attributary.workers.stream.held import window_of
from attributary.workers.stream.layout import Layout
from attributary.workers.stream.options import IngestOptions


class Accumulators:
    """Digests and co-movement cells."""

    def pane(self, epoch: Epoch) -> PaneSketch:
        """Return an empty accumulator of rows on this epoch's grid."""
        return PaneSketch(
            epoch.grid,
            compression=epoch.record.compression,
            sample_size=epoch.record.samples,
            blocks=epoch.layout.groups,
        )

    def first_grid(
        self,
        model: str,
        card: ModelCard | None,
        number: int,
        staged: Sequence[Staged],
        options: IngestOptions,
    ) -> GridRecord | list[Refusal]:
        """Return the grid to propose for a model's first rows, else why each of them is refused."""
        return propose_first(model, card, number, staged, options)

    def renewal(
        self, epoch: Epoch, panes: Sequence[PaneSketch], options: IngestOptions
    ) -> GridRecord | None:
        """Return the grid to propose after a block whose panes these are, if any."""
        return propose_next(epoch, panes, options)

    def window(self, body: bytes) -> WindowState:
        """Return a pane's bytes as a window of its own."""
        return window_of(body)

    def fits(self, window: WindowState, epoch: Epoch) -> bool:
        """Say whether a window can be merged with those of the epoch's layout."""
        return epoch.fits(window)

    def saved(self, data: bytes) -> WindowState:
        """Return the window that a snapshot holds."""
        return WindowState.from_bytes(data)

    def drift(self, layout: Layout) -> DriftBook:
        """Return what compares a model's windows with earlier ones."""
        return DriftBook(layout)


SKETCHES = Accumulators()
