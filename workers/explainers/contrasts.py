"""Categorical features: the model's exact change from level to level, in place of a derivative."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from attributary.workers.explainers.batched import Block
from attributary.workers.explainers.groups import Levels

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Contrast:
    """A categorical feature of the explained rows.

    ``change`` (n, L), or (n, c, L): f(x with the level) - f(x), 0 for the row's own level;
    ``levels`` (L, k) the values of the columns ``columns`` (k,) at each level, ``frequency`` (L,) the
    levels' shares of the background.
    """

    columns: Integers
    levels: Floats
    frequency: Floats
    change: Floats


def contrast_block(X: Floats, levels: Levels) -> Block:
    """Return every row of ``X`` (n, d) at every level (L), level by level."""
    n = len(X)

    def rows(start: int, stop: int) -> Floats:
        level, row = np.divmod(np.arange(start, stop), n)
        found = X[row]
        found[:, levels.columns] = levels.values[level]
        return found

    return Block(n * len(levels.values), rows)


def change(levels: Levels, at_level: Floats, output: Floats) -> Floats:
    """Return f(x with the level) - f(x) as (n, c, L) from ``at_level`` (L n, c), ``output`` (n, c)."""
    n, c = output.shape
    found = at_level.reshape(-1, n, c) - output
    own = np.flatnonzero(levels.current >= 0)
    # The same row asked twice may differ in its last bit between batches.
    found[levels.current[own], own] = 0.0
    return np.moveaxis(found, 0, 2)


def slopes(levels: Levels, X: Floats, changes: Floats) -> tuple[Floats, Floats]:
    """Return what stands for the gradient and the contributions, both (n, c, k).

    The contributions of the feature's columns add up to f(x) - Σ_l p_l f(x with level l), p the
    levels' shares of the background. One-hot: the slope of a column is the contrast of its level
    with the average level (with the dropped level, where an encoding has one), and a contribution
    is slope · (x - x̄). A code of two values: slope (f(v₂) - f(v₁)) / (v₂ - v₁). A code of more: its
    codes are only names, so slope and contribution both are the contrast with the average level.
    """
    average = changes @ levels.frequency
    if levels.one_hot:
        k = len(levels.columns)
        reference = changes[:, :, k] if changes.shape[2] > k else average
        slope = changes[:, :, :k] - reference[:, :, None]
        mean = levels.frequency[:k]
        return slope, slope * (X[:, levels.columns] - mean)[:, None, :]
    contribution = -average
    codes = levels.values[:, 0]
    value = X[:, levels.columns[0]]
    slope = contribution.copy()
    if len(codes) == 2:
        known = levels.current >= 0
        slope[known] = ((changes[:, :, 1] - changes[:, :, 0]) / (codes[1] - codes[0]))[known]
    elif len(codes) == 1:
        away = value - codes[0]
        slope = np.where(
            away[:, None] == 0.0, 0.0, contribution / np.where(away == 0.0, 1.0, away)[:, None]
        )
    return slope[:, :, None], contribution[:, :, None]
