"""Auto-Φ: one size of neighbourhood for all features, stable under resampling and leaving little out.

The size r minimises V̂(r) + λ_B B̃(r) + λ_D r/M_max. V̂: mean over pairs of resamples of (1 − τ_b)/2 between
their scores. B̃: what is left of the strongest dependence on a candidate outside the neighbourhood,
relative to r = 0. Ties go to the smaller r; a pool shorter than r is used whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attributary.workers.explainers.gaussian_copula import copula_information
from attributary.workers.explainers.linear_algebra import Floats, Integers, Linalg

_PAIRS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class SizeCriterion:
    """What speaks for one size; the sum decides."""

    size: int
    instability: float
    leftover: float
    penalty: float
    #: The mean of Kendall's τ_b over pairs of resamples, which instability rests on; None if undefined.
    agreement: float | None

    @property
    def total(self) -> float:
        """The criterion, to be minimised."""
        return self.instability + self.leftover + self.penalty


def criteria(
    sizes: Sequence[int],
    scores: Floats,
    leftover: Floats,
    *,
    most: int,
    leftover_weight: float = 1.0,
    size_weight: float = 0.1,
) -> list[SizeCriterion]:
    """Return the criterion of each size.

    ``scores`` (sizes, resamples, features) of the features to rank; ``leftover`` (M + 1,) B̂ per size.
    """
    relative = leftover / (leftover[0] + 1e-12)
    agreements = [mean_agreement(of_size) for of_size in scores]
    return [
        SizeCriterion(
            size=size,
            instability=0.0 if agreement is None else (1 - agreement) / 2,
            leftover=leftover_weight * float(relative[min(size, relative.size - 1)]),
            penalty=size_weight * size / most,
            agreement=agreement,
        )
        for size, agreement in zip(sizes, agreements, strict=True)
    ]


def best(found: Sequence[SizeCriterion]) -> SizeCriterion:
    """Return the least criterion, of equals the one of the smaller size."""
    return min(found, key=lambda criterion: (criterion.total, criterion.size))


def mean_agreement(scores: Floats) -> float | None:
    """Return the mean of τ_b over all pairs of resamples, scores (resamples, features).

    A pair in which either is all tied has no τ_b and is left out; None where none is left.
    """
    agreement = kendall_matrix(scores)
    pairs = agreement[np.triu_indices(agreement.shape[0], 1)]
    pairs = pairs[np.isfinite(pairs)]
    return float(pairs.mean()) if pairs.size else None


def kendall_matrix(scores: Floats) -> Floats:
    """Return Kendall's τ_b between all rows of scores (b, k), as one product of signs; NaN if tied."""
    b, k = scores.shape
    gram = np.zeros((b, b))
    # Places instead of values: float32 holds them and their differences exactly.
    places = np.zeros((k, b), dtype=np.float32)
    for column, row in zip(places.T, scores, strict=True):
        column[:] = np.unique(row, return_inverse=True)[1]
    left, right = np.triu_indices(k, 1)
    step = max(_PAIRS_AT_ONCE // max(b, 1), 1)
    for start in range(0, left.size, step):
        part = slice(start, start + step)
        signs = places.take(left[part], axis=0)
        signs -= places.take(right[part], axis=0)
        np.sign(signs, out=signs)
        # float32 holds whole numbers up to 2^24, more than a part's pairs.
        gram += signs.T @ signs
    untied = np.diag(gram)
    scale = np.sqrt(np.outer(untied, untied))
    tau: Floats = np.divide(gram, scale, out=np.full((b, b), np.nan), where=scale > 0)
    return np.clip(tau, -1.0, 1.0)


def leftover_dependence(
    correlation: Floats,
    candidates: Integers,
    *,
    ridge: float,
    linalg: Linalg | None = None,
) -> Floats:
    """Return B̂(r) for r = 0..M: the mean over features of the strongest I(X_i; X_j | X_Φ_i,r) with a
    candidate j outside the first r. Features without candidates are left out."""
    most = candidates.shape[1]
    features = np.flatnonzero((candidates >= 0).any(axis=1))
    strongest = np.zeros((features.size, most + 1))
    for place in range(most):
        # I(X_i; X_j | Φ_r) for j at this place and every r up to it.
        has = features[candidates[features, place] >= 0]
        if not has.size:
            continue
        rows = np.searchsorted(features, has)
        found = copula_information(
            correlation,
            has,
            candidates[has, place, None],
            candidates[has, :place],
            ridge=ridge,
            linalg=linalg,
        )
        strongest[rows, : place + 1] = np.maximum(strongest[rows, : place + 1], found.unique)
    return strongest.mean(axis=0) if features.size else np.zeros(most + 1)
