"""OrdShap by the paper's least squares, corrected: a linear model of presence and place.

    F(S, σ) - F(∅) ≈ Σ_{i∈S} α_i + Σ_{i∈S} β_i (σ⁻¹(i) - mean place)

α as KernelSHAP finds it, with Σα = mean_σ F(N, σ) - F(∅), then β from what α leaves. α tends to
the value importance. β is a linear approximation: it tends to the position importance only where
the model is additive. Differs from the paper: eq. 11's constraint, the index of eq. 12 (subset i
goes with permutation i mod K), eq. 14 (it takes off Λ(S)·α, not α).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from attributary.workers.explainers.evaluation import Evaluator
from attributary.workers.explainers.positions import Positions

Floats = npt.NDArray[np.float64]

#: Groups of permutations that are left out in turn for the standard error.
JACKKNIFE = 20


@dataclass(frozen=True)
class Fitted:
    """``alpha``, ``beta`` and their jackknife errors (m,); ``total`` is mean F(N, σ) - F(∅)."""

    alpha: Floats
    beta: Floats
    alpha_stderr: Floats
    beta_stderr: Floats
    total: float


@dataclass(frozen=True)
class _Sums:
    """Sums over samples, one per group of permutations: z presence, u presence times place."""

    zz: Floats
    zy: Floats
    uu: Floats
    uy: Floats
    uz: Floats
    whole: Floats
    count: Floats

    def without(self, group: int | None) -> tuple[Floats, Floats, float]:
        """Return α, β and the total from all groups but one."""
        kept = np.arange(len(self.count)) != (-1 if group is None else group)
        zz, zy, uu, uy, uz, whole, count = (
            part[kept].sum(axis=0)
            for part in (self.zz, self.zy, self.uu, self.uy, self.uz, self.whole, self.count)
        )
        total = float(whole / count)
        # The first unit is what the others leave of the total.
        out = np.vstack([-np.ones(len(zz) - 1), np.eye(len(zz) - 1)])
        free = np.linalg.lstsq(out.T @ zz @ out, out.T @ (zy - zz[:, 0] * total), rcond=None)[0]
        alpha = np.concatenate([[total - free.sum()], free])
        beta = np.linalg.lstsq(uu, uy - uz @ alpha, rcond=None)[0]
        return alpha, beta, total


def least_squares(
    evaluate: Evaluator,
    positions: Positions,
    permutations: int,
    subsets: int,
    rng: np.random.Generator,
) -> Fitted:
    """Fit α and β to ``subsets`` coalitions under ``permutations`` permutations taken in turn."""
    m = evaluate.arrangement.slots
    if permutations < 2 or subsets < 2 * m:
        raise ValueError(
            "least_squares needs n_permutations >= 2 and n_subsets >= 2 per movable unit "
            f"({2 * m}), got {permutations} and {subsets}"
        )
    order = rng.permuted(np.tile(np.arange(m), (permutations, 1)), axis=1)
    draw = rng.integers(evaluate.arrangement.draws, size=permutations)
    none, every = np.zeros((permutations, m), bool), np.ones((permutations, m), bool)
    empty = evaluate(order, none, draw)
    whole = evaluate(order, every, draw) - empty
    member = _subsets(m, subsets, rng)
    turn = np.arange(subsets) % permutations
    values = (
        evaluate(order[turn], np.take_along_axis(member, order[turn], axis=1), draw[turn])
        - empty[turn]
    )
    return fit(member, values, order, turn, whole, positions)


def fit(
    member: npt.NDArray[np.bool_],
    values: Floats,
    order: npt.NDArray[np.int64],
    turn: npt.NDArray[np.int64],
    whole: Floats,
    positions: Positions,
) -> Fitted:
    """Fit values F - F(∅) (n,) of coalitions ``member`` (n, m) under permutation ``turn`` (n,).

    ``order`` (k, m) are the permutations, ``whole`` (k,) their F(N, σ) - F(∅).
    """
    sums = _sums(member, values, order, turn, whole, positions)
    alpha, beta, total = sums.without(None)
    groups = len(sums.count)
    left = np.array([sums.without(group)[:2] for group in range(groups)])
    spread = np.sqrt(((left - left.mean(axis=0)) ** 2).sum(axis=0) * (groups - 1) / groups)
    return Fitted(alpha, beta, spread[0], spread[1], total)


def _subsets(m: int, count: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Draw coalitions by the Shapley kernel, never ∅ or N (a single unit has no others)."""
    if m == 1:
        return np.ones((count, 1), dtype=bool)
    sizes = np.arange(1, m)
    weight = 1.0 / (sizes * (m - sizes))
    size = rng.choice(sizes, p=weight / weight.sum(), size=count)
    rank = rng.permuted(np.tile(np.arange(m), (count, 1)), axis=1)
    return rank < size[:, None]


def _sums(
    member: npt.NDArray[np.bool_],
    values: Floats,
    order: npt.NDArray[np.int64],
    turn: npt.NDArray[np.int64],
    whole: Floats,
    positions: Positions,
) -> _Sums:
    slot = np.argsort(order, axis=1)
    z = member.astype(np.float64)
    u = z * positions.centred[slot][turn]
    groups = min(JACKKNIFE, len(order))
    parts = [turn % groups == g for g in range(groups)]
    of = np.arange(len(order)) % groups
    return _Sums(
        zz=np.array([z[k].T @ z[k] for k in parts]),
        zy=np.array([z[k].T @ values[k] for k in parts]),
        uu=np.array([u[k].T @ u[k] for k in parts]),
        uy=np.array([u[k].T @ values[k] for k in parts]),
        uz=np.array([u[k].T @ z[k] for k in parts]),
        whole=np.array([whole[of == g].sum() for g in range(groups)]),
        count=np.bincount(of, minlength=groups).astype(np.float64),
    )
