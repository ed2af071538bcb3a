"""Grids in use: the epoch's record made usable, and how a new epoch is proposed.

Every worker proposes what it sees; the first record of an epoch in the grids topic's order is the one
that all use, so no coordinator is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attributary.schemas.arrow import ArrowRows
from attributary.schemas.arrow_columns import plain
from attributary.schemas.card import DEFAULT_PANE_SECONDS, Baseline, ModelCard
from attributary.schemas.errors import Reason, RejectedError
from attributary.schemas.grid import GridRecord
from attributary.schemas.row import FeatureValue, Row
from attributary.workers.maths.binning import midhinge_of_edges
from attributary.workers.maths.grid import Departed, Grid, departed
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.maths.window import WindowState
from attributary.workers.stream.decode import Staged
from attributary.workers.stream.encode import Batch, Refusal, TimeRule, encode, refuse_all
from attributary.workers.stream.layout import Layout, output_names
from attributary.workers.stream.options import IngestOptions

# Cells of one pane sketch over all (column, output) pairs: bounds a sketch's bytes and memory.
_CELL_BUDGET = 2**17
_MOST_CELLS, _FEWEST_CELLS = 16, 4
# A record of the sketches topic takes 8 MiB: a sketch that could grow beyond would never be acknowledged.
_MOST_SKETCH_BYTES = 15 * 2**19
# Bytes at most, measured on weighted rows: of a cell of one pair, and of a centroid.
_CELL_BYTES, _CENTROID_BYTES = 20, 18


@dataclass(frozen=True)
class Epoch:
    """One epoch of one model: its record, its columns and its grid."""

    record: GridRecord
    layout: Layout
    grid: Grid

    @classmethod
    def from_record(cls, record: GridRecord, *, strict: bool = False) -> Epoch:
        """Return the usable form; ValueError where the record contradicts itself."""
        columns, outputs = len(record.columns), len(record.outputs)
        if (len(record.x_edges), len(record.y_edges)) != (columns, outputs):
            raise ValueError(
                f"the grid of {record.model!r} has edges for {len(record.x_edges)} columns and "
                f"{len(record.y_edges)} outputs; it names {columns} and {outputs}"
            )
        grid = Grid(
            epoch=record.epoch,
            x_edges=np.array(record.x_edges, dtype=np.float64),
            y_edges=np.array(record.y_edges, dtype=np.float64),
            x_reference=np.array(record.x_reference, dtype=np.float64),
            y_reference=np.array(record.y_reference, dtype=np.float64),
        )
        return cls(record, Layout(record.columns, record.outputs, strict=strict), grid)

    def with_strict(self, strict: bool) -> Epoch:
        """Return the epoch for a card that is strict, or is not."""
        if self.layout.strict == strict:
            return self
        return replace(self, layout=Layout(self.layout.columns, self.layout.outputs, strict=strict))

    def continues(self, other: Epoch | None) -> bool:
        """Say whether sketches of the two can be merged."""
        return other is not None and (
            self.layout == other.layout
            and self.record.pane_ms == other.record.pane_ms
            and self.record.samples == other.record.samples
            and self.record.compression == other.record.compression
        )

    def fits(self, window: WindowState) -> bool:
        """Say whether the window has this epoch's columns, and what it holds of the epoch its grid."""
        found = window.columns, window.outputs, window.compression, window.sample_size
        record, layout = self.record, self.layout
        mine = len(layout.columns), len(layout.outputs), record.compression, record.samples
        cells = window.epochs.get(record.epoch)
        return found == mine and (cells is None or cells.same_grid(self.grid.comovement()))

    def serves(self, card: ModelCard | None) -> bool:
        """Say whether rows of a model with this card can be counted on this epoch."""
        if card is None:
            return True
        if pane_ms(card) != self.record.pane_ms:
            return False
        if not card.features:
            return not card.outputs or tuple(card.outputs) == self.layout.outputs
        seen: dict[str, list[FeatureValue]] = {}
        for column in self.layout.columns:
            if column.level is not None:
                seen.setdefault(column.feature, []).append(column.level)
        widest = len(self.layout.columns)
        return Layout.learn(card, seen, self.layout.outputs, max_levels=widest) == self.layout


def pane_ms(card: ModelCard | None) -> int:
    """Return the width of the model's panes in milliseconds."""
    return round((card.pane_seconds if card is not None else DEFAULT_PANE_SECONDS) * 1000)


def learn_layout(
    card: ModelCard | None, batches: Sequence[Row | ArrowRows], options: IngestOptions
) -> Layout:
    """Return the layout for a model's first rows; RejectedError where it exceeds the limits."""
    values: dict[str, list[FeatureValue]] = {}
    outputs: list[str] = []
    for batch in batches:
        if isinstance(batch, Row):
            named = output_names(batch.outputs)
            for name, value in batch.features.items():
                values.setdefault(name, []).append(value)
        else:
            named = list(batch.outputs)
            for name, column in batch.features.items():
                values.setdefault(name, []).extend(plain(column, name))
        outputs = outputs or named
    layout = Layout.learn(card, values, outputs, max_levels=options.max_levels)
    for what, found, most in (
        ("columns", len(layout.columns), options.max_columns),
        ("outputs", len(layout.outputs), options.max_outputs),
    ):
        if not 0 < found <= most:
            raise RejectedError(
                Reason.TOO_LARGE, f"the model has {found} {what}; from 1 to {most} are possible"
            )
    return layout


def propose_first(
    model: str,
    card: ModelCard | None,
    number: int,
    staged: Sequence[Staged],
    options: IngestOptions,
) -> GridRecord | list[Refusal]:
    """Return the first grid of a layout: from the card's baseline, else from the model's first rows.

    Where ``staged`` allow none, because the layout is too wide or none of them fits it, return why each
    of them is refused.
    """
    try:
        return _first_grid(model, card, number, staged, options)
    except RejectedError as error:
        return list(refuse_all(staged, error.reason, str(error)))


def _first_grid(
    model: str,
    card: ModelCard | None,
    number: int,
    staged: Sequence[Staged],
    options: IngestOptions,
) -> GridRecord | list[Refusal]:
    layout = learn_layout(card, [entry.content for entry in staged], options)
    rule = TimeRule(options.max_future_seconds, pane_ms(card), (), options.max_panes)
    parts = list(encode(staged, layout, rule, place=None))
    batches = [part for part in parts if isinstance(part, Batch)]
    if not batches:
        return [part for part in parts if isinstance(part, Refusal)]
    X = np.concatenate([batch.X for batch in batches])
    Y = np.concatenate([batch.Y for batch in batches])
    if card is not None and (baseline := card.baseline) is not None:
        grid, rows = _from_baseline(baseline, layout, number), baseline.rows
    else:
        cells = cells_for(X.shape[1], Y.shape[1], options.compression)
        grid, rows = Grid.from_rows(X, Y, cells=cells, epoch=number), len(X)
    return GridRecord(
        model=model,
        epoch=number,
        layout=number,
        rows=rows,
        pane_ms=pane_ms(card),
        compression=options.compression,
        samples=_samples(0 if card is None else card.samples, grid, options.compression),
        columns=list(layout.columns),
        outputs=list(layout.outputs),
        **_edges(grid),
    )


def propose_next(
    epoch: Epoch, panes: Sequence[PaneSketch], options: IngestOptions
) -> GridRecord | None:
    """Return a grid for rows that have left ``epoch``'s, or for a grid from too few rows, else None.

    ``panes`` are all sketches of one block. New edges are the quantiles of their digests, for the columns
    that have left alone: a block is a poor baseline for the others.
    """
    if not panes:
        return None
    state = panes[0].comovement.copy()
    for pane in panes[1:]:
        state.merge(pane.comovement)
    rows = sum(pane.rows for pane in panes)
    scanty = epoch.record.rows < options.grid_rows <= rows
    left = departed(state)
    if not scanty and not left.any:
        return None
    digests = panes[0].state().digests.copy()
    for pane in panes[1:]:
        digests.merge(pane.state().digests)
    ranks = (np.arange(1024) + 0.5) / 1024
    values = digests.quantile(ranks)
    grid = Grid.from_rows(
        values[:, : state.columns],
        values[:, state.columns :],
        cells=epoch.grid.cells,
        epoch=epoch.record.epoch + 1,
    )
    if not scanty:
        grid = _with_columns(epoch.grid, grid, left)
        rows = max(rows, epoch.record.rows)
    changes = {"epoch": grid.epoch, "rows": rows, **_edges(grid)}
    return epoch.record.model_copy(update=changes)


def _with_columns(old: Grid, new: Grid, left: Departed) -> Grid:
    """Return ``new``'s edges for the columns that have left, ``old``'s for the others."""
    return Grid(
        new.epoch,
        np.where(left.x[:, None], new.x_edges, old.x_edges),
        np.where(left.y[:, None], new.y_edges, old.y_edges),
        np.where(left.x, new.x_reference, old.x_reference),
        np.where(left.y, new.y_reference, old.y_reference),
    )


def _from_baseline(baseline: Baseline, layout: Layout, number: int) -> Grid:
    found = (len(baseline.x_edges), len(baseline.y_edges))
    expected = (len(layout.columns), len(layout.outputs))
    if found != expected:
        raise RejectedError(
            Reason.WRONG_TYPE,
            f"the card's baseline has edges for {found[0]} columns and {found[1]} outputs, its "
            f"features make {expected[0]} and {expected[1]}; register a card that agrees",
        )
    try:
        x_edges = np.array(baseline.x_edges, dtype=np.float64)
        y_edges = np.array(baseline.y_edges, dtype=np.float64)
        for edges in (x_edges, y_edges):
            if not (edges.size and np.isfinite(edges).all()):
                raise ValueError("a column has no edge, or one that is not finite")
        return Grid(
            number, x_edges, y_edges, midhinge_of_edges(x_edges), midhinge_of_edges(y_edges)
        )
    except ValueError as error:
        raise RejectedError(Reason.WRONG_TYPE, f"the card's baseline: {error}") from None


def cells_for(columns: int, outputs: int, compression: int = 200) -> int:
    """Return K, the cells a side, so that a pane of a wide model stays bounded."""
    room = (_MOST_SKETCH_BYTES - _digest_bytes(columns + outputs, compression)) // _CELL_BYTES
    affordable = math.isqrt(max(0, min(_CELL_BUDGET, room)) // max(1, columns * outputs))
    return max(_FEWEST_CELLS, min(_MOST_CELLS, affordable))


def _digest_bytes(columns: int, compression: int) -> int:
    return columns * compression * _CENTROID_BYTES


def _samples(asked: int, grid: Grid, compression: int) -> int:
    """Return how many rows a pane can keep; RejectedError where its sketch is too large without any."""
    columns = grid.columns + grid.outputs
    cells = grid.columns * grid.outputs * grid.cells**2
    room = _MOST_SKETCH_BYTES - cells * _CELL_BYTES - _digest_bytes(columns, compression)
    if room < 0:
        raise RejectedError(
            Reason.TOO_LARGE,
            f"{grid.columns} columns and {grid.outputs} outputs of {grid.cells} cells make a sketch of "
            f"{(_MOST_SKETCH_BYTES - room) / 2**20:.1f} MiB, at most 8 can be sent: declare fewer "
            "levels, outputs or cells",
        )
    return min(asked, room // (8 * columns + 32))


def _edges(grid: Grid) -> dict[str, Any]:
    return {
        name: getattr(grid, name).tolist()
        for name in ("x_edges", "y_edges", "x_reference", "y_reference")
    }
