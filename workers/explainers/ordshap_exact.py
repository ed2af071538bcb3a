"""OrdShap by enumeration: every permutation, every coalition."""

from __future__ import annotations

import itertools
from math import factorial

import numpy as np
import numpy.typing as npt

from attributary.workers.explainers.evaluation import Evaluator

Floats = npt.NDArray[np.float64]

#: 8 units are 1.4 million distinct inputs, 9 would be 17.6 million.
LIMIT = 8
#: Permutations whose coalitions are held at a time.
CHUNK = 256


def shapley_weights(units: int) -> Floats:
    """Return W (2^m, m) with φ = F @ W for values F over coalitions numbered by their bits."""
    member = coalitions(units)
    size = member.sum(axis=1)
    weight = np.array(
        [factorial(s) * factorial(units - s - 1) / factorial(units) for s in range(units)] + [0.0]
    )
    joined = weight[np.maximum(size - 1, 0)][:, None]
    left = weight[size][:, None]
    found: Floats = np.where(member, joined, -left)
    return found


def coalitions(units: int) -> npt.NDArray[np.bool_]:
    """Return (2^m, m): bit i of the row's number says whether unit i is a member."""
    numbers = np.arange(2**units)
    found: npt.NDArray[np.bool_] = (numbers[:, None] >> np.arange(units)) & 1 > 0
    return found


def exact(evaluate: Evaluator) -> tuple[Floats, float]:
    """Return γ (m, m), unit by slot, and mean F(N, σ) - mean F(∅, σ); at most 8 units.

    γ_iℓ is the mean over the permutations that put i at ℓ of the Shapley value of i in the game
    S ↦ ω̃(S, σ), and over all backgrounds.
    """
    units = evaluate.arrangement.slots
    if units > LIMIT:
        raise ValueError(
            f"method='exact' enumerates m! orders of 2^m coalitions and is for m <= {LIMIT} "
            f"movable units, got {units}; use method='permutation'"
        )
    member, weights = coalitions(units), shapley_weights(units)
    order = np.array(list(itertools.permutations(range(units))), dtype=np.int64)
    gamma = np.zeros((units, units))
    whole = empty = 0.0
    slots = np.arange(units)
    for draw in range(evaluate.arrangement.draws):
        for start in range(0, len(order), CHUNK):
            part = order[start : start + CHUNK]
            rows = np.repeat(part, len(member), axis=0)
            # present[σ, S, p]: is the unit at slot p a member of S?
            present = member[:, part].swapaxes(0, 1).reshape(-1, units)
            values = evaluate(rows, present, np.full(len(rows), draw)).reshape(len(part), -1)
            phi = values @ weights
            cell = part * units + slots
            share = np.take_along_axis(phi, part, axis=1)
            gamma += np.bincount(cell.ravel(), share.ravel(), units**2).reshape(gamma.shape)
            whole += float(values[:, -1].sum())
            empty += float(values[:, 0].sum())
    total = len(order) * evaluate.arrangement.draws
    return gamma / (total / units), (whole - empty) / total
