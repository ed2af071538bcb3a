"""OrdShap by sampled permutations: chains in balanced blocks, with a fitted control variate.

Differs from the paper: its algorithm divides by the number of permutations, which gives γ/m, and
spends two values per marginal. Here one chain serves all units, blocks balance the slots,
and what a polynomial fitted on the other blocks predicts is integrated exactly instead of being
sampled. Cross-fitting keeps every block's estimate unbiased.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from attributary.workers.explainers.chain_estimates import (
    Chains,
    from_marginals,
    from_means,
    mixture,
)
from attributary.workers.explainers.evaluation import Evaluator
from attributary.workers.explainers.order_surrogate import Surrogate, ridge
from attributary.workers.explainers.permutation_design import Design
from attributary.workers.explainers.positions import Positions

Floats = npt.NDArray[np.float64]

FOLDS = 5
#: Blocks before the first look at the standard error, and how much they grow to the next look.
FIRST_LOOK, GROWTH = 10, 1.4
Z95 = 1.959963984540054


@dataclass(frozen=True)
class Sampled:
    """What the blocks say: ``gamma`` (m, m) unit by slot, NaN where no permutation led.

    ``value``, ``position`` and their errors (m,); the error is half of the 95 % interval, by
    Student's t over blocks, divided by 1.96. ``total`` is mean F(N, σ) - F(∅, σ).
    """

    gamma: Floats
    value: Floats
    position: Floats
    value_stderr: Floats
    position_stderr: Floats
    total: float
    permutations: int


def permutation(
    evaluate: Evaluator,
    positions: Positions,
    design: Design,
    rng: np.random.Generator,
    target: float | None = None,
) -> Sampled:
    """Return estimates from the blocks of ``design``, or from fewer once errors reach ``target``."""
    blocks: list[Chains] = []
    look = FIRST_LOOK
    while True:
        until = design.blocks if target is None else min(look, design.blocks)
        blocks += _evaluated(evaluate, design, until - len(blocks), rng)
        if target is None or len(blocks) == design.blocks:
            return estimate(blocks, positions)
        found = estimate(blocks, positions)
        if max(found.value_stderr.max(), found.position_stderr.max()) <= target:
            return found
        look = int(np.ceil(look * GROWTH))


def _evaluated(
    evaluate: Evaluator, design: Design, count: int, rng: np.random.Generator
) -> list[Chains]:
    """Draw and evaluate ``count`` blocks, several at a time so that batches are full."""
    m = design.units
    rows = 2 * design.shifts * 2 * (m + 1)
    at_once = max(1, 8_192 // rows)
    blocks: list[Chains] = []
    for start in range(0, count, at_once):
        drawn = [
            design.draw(evaluate.arrangement.draws, rng) for _ in range(min(at_once, count - start))
        ]
        slot, rank, draw = (np.concatenate(part) for part in zip(*drawn, strict=True))
        slot, draw = np.repeat(slot, 2, axis=0), np.repeat(draw, 2)
        rank = np.stack([rank, m - 1 - rank], axis=1).reshape(-1, m)
        order = np.argsort(slot, axis=1)
        joined = np.take_along_axis(rank, order, axis=1)
        present = joined[:, None, :] < np.arange(m + 1)[:, None]
        values = evaluate(
            np.repeat(order, m + 1, axis=0), present.reshape(-1, m), np.repeat(draw, m + 1)
        ).reshape(-1, m + 1)
        chains = len(slot) // len(drawn)
        for first in range(0, len(slot), chains):
            part = slice(first, first + chains)
            blocks.append(Chains(slot[part], rank[part], values[part] - values[part, :1]))
    return blocks


def estimate(blocks: list[Chains], positions: Positions) -> Sampled:
    """Combine blocks: plain estimates, estimates with the control variate, their best mixture."""
    count, m = len(blocks), blocks[0].slot.shape[1]
    fold = np.arange(count) % min(FOLDS, count)
    tables, rest = _predicted(blocks, fold, positions)
    known = np.array([[table.mean(axis=1), positions.slope(table)] for table in tables])
    plain = [[f(block, positions) for block in blocks] for f in (from_marginals, from_means)]
    left = [[f(block, positions) for block in rest] for f in (from_marginals, from_means)]
    # (estimate, value or position, block, unit)
    estimates = np.swapaxes(np.array([plain[0], plain[1], left[0] + known, left[1] + known]), 1, 2)
    total = np.array([float(block.values[:, -1].mean()) for block in blocks])
    mixed = np.empty((2, count, m))
    for which in range(2):
        for k in np.unique(fold):
            weights = mixture(estimates[:, which], fold != k)
            mixed[which, fold == k] = np.tensordot(weights, estimates[:, which, fold == k], 1)
    mixed[0] += (total - mixed[0].sum(axis=1))[:, None] / m
    value, position = mixed.mean(axis=1)
    spread = mixed.std(axis=1, ddof=1) / np.sqrt(count) * float(stdtrit(count - 1, 0.975)) / Z95
    gamma = _gamma(tables, rest, positions, value, position)
    permutations = count * len(blocks[0].slot) // 2
    return Sampled(gamma, value, position, spread[0], spread[1], float(total.mean()), permutations)


def _predicted(
    blocks: list[Chains], fold: npt.NDArray[np.int64], positions: Positions
) -> tuple[Floats, list[Chains]]:
    """Return γ (blocks, m, m) of the surrogate fitted without each block's fold, and what it left."""
    count, m = len(blocks), blocks[0].slot.shape[1]
    chains = len(blocks[0].slot)
    form = Surrogate.for_rows(positions.scaled, (count - count // len(set(fold))) * chains * m)
    if form is None:
        return np.zeros((count, m, m)), blocks
    # Coalition sizes count as in the Shapley kernel, in the mean by 1.
    sizes = np.arange(1, m)
    weight = np.concatenate([[1.0], 1.0 / (sizes * (m - sizes)), [2.0 / max(m - 1, 1)]])
    weight[0] = 0.0
    root = np.sqrt(weight / weight[1:].mean())
    p = form.coefficients
    gram, moment = np.zeros((len(set(fold)), p, p)), np.zeros((len(set(fold)), p))
    square = np.zeros(len(set(fold)))
    for k, block in zip(fold, blocks, strict=True):
        X = (form.features(block.slot, block.member) * root[:, None]).reshape(-1, p)
        y = (block.values * root).ravel()
        gram[k] += X.T @ X
        moment[k] += X.T @ y
        square[k] += y @ y
    fits = []
    for k in range(len(square)):
        rows = int((fold != k).sum()) * chains * m
        fits.append(
            ridge(gram.sum(0) - gram[k], moment.sum(0) - moment[k], square.sum() - square[k], rows)
        )
    rest = [
        block.less(form.features(block.slot, block.member) @ fits[k])
        for k, block in zip(fold, blocks, strict=True)
    ]
    tables = [form.gamma(fit) for fit in fits]
    return np.array([tables[k] for k in fold]), rest


def _gamma(
    tables: Floats, rest: list[Chains], positions: Positions, value: Floats, position: Floats
) -> Floats:
    """Return γ (m, m): the surrogate's and what it left, cell by cell, then brought in line.

    A row that was visited everywhere is shifted and tilted so that its mean and its slope are the
    better estimates of both.
    """
    m = len(value)
    total, visits = np.zeros(m * m), np.zeros(m * m)
    for table, block in zip(tables, rest, strict=True):
        cell = (np.arange(m) * m + block.slot).ravel()
        total += np.bincount(cell, block.marginals().ravel() + table.ravel()[cell], minlength=m * m)
        visits += np.bincount(cell, minlength=m * m)
    with np.errstate(invalid="ignore"):
        gamma: Floats = (total / np.where(visits > 0, visits, np.nan)).reshape(m, m)
    visited = ~np.isnan(gamma).any(axis=1)
    full = gamma[visited]
    lift = value[visited] - full.mean(axis=1)
    tilt = position[visited] - positions.slope(full)
    gamma[visited] = full + lift[:, None] + tilt[:, None] * positions.centred
    return gamma
