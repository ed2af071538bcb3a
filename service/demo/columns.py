"""A card's columns written out from its rows: numeric values as they are, every level as 0 and 1.

Worked out from the card alone, apart from how the workers encode rows: comparing the two means something.
"""

from __future__ import annotations

import numpy as np

from attributary.schemas.card import Baseline, Feature, ModelCard
from attributary.service.demo.dataset import Numbers, Rows
from attributary.workers.maths.grid import Grid
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.maths.window import WindowState
from attributary.workers.stream.epoch import cells_for
from attributary.workers.stream.layout import Layout
from attributary.workers.stream.options import IngestOptions
from attributary.workers.stream.training import baseline_of

OTHER = "(other)"


def column_names(feature: Feature) -> list[str]:
    """Return the columns of one feature, as messages name them."""
    if feature.kind == "numeric":
        return [feature.name]
    return [f"{feature.name}={level}" for level in [*(feature.levels or []), OTHER]]


def feature_columns(feature: Feature, rows: Rows) -> Numbers:
    """Return the columns of one feature (n, columns)."""
    values = rows.features[feature.name]
    if feature.kind == "numeric":
        return np.asarray(values, dtype=np.float64)[:, None]
    levels = np.array(feature.levels or [], dtype=object)
    known = values[:, None] == levels[None, :]
    return np.column_stack([known, ~known.any(axis=1)]).astype(np.float64)


def with_baseline(card: ModelCard, rows: Rows) -> ModelCard:
    """Return the card with the grid of its training ``rows``: what later windows are compared with."""
    grid = Grid.from_rows(_matrix(card, rows), rows.outputs)
    baseline = Baseline(
        x_edges=grid.x_edges.tolist(), y_edges=grid.y_edges.tolist(), rows=len(rows)
    )
    return card.model_copy(update={"baseline": baseline})


def with_training(card: ModelCard, rows: Rows) -> ModelCard:
    """Return the card with its training ``rows`` as the baseline: windows are compared with them at once.

    As ``attributary baseline`` makes it of a table.
    """
    X, Y = _matrix(card, rows), rows.outputs
    layout = Layout.learn(card, {}, tuple(card.outputs), max_levels=IngestOptions().max_levels)
    grid = Grid.from_rows(X, Y, cells=cells_for(X.shape[1], Y.shape[1]))
    pane = PaneSketch(grid, compression=IngestOptions().compression, blocks=layout.groups)
    pane.update(X, Y)
    state = WindowState.of(pane)
    baseline = baseline_of(grid, state, state.evaluate(layout.groups))
    return card.model_copy(update={"baseline": baseline})


def _matrix(card: ModelCard, rows: Rows) -> Numbers:
    return np.column_stack([feature_columns(feature, rows) for feature in card.features])
