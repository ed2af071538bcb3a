"""Copula information of many resamples at once: ranks, correlations and factors in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from attributary.workers.explainers.gaussian_copula import CopulaInformation, copula_information
from attributary.workers.explainers.linear_algebra import Integers, Linalg
from attributary.workers.explainers.normal_scores import NormalScores

# Numbers of correlations at once: 16 MB.
_CORRELATIONS_AT_ONCE = 1 << 21


def resampled_information(
    scores: NormalScores,
    counts: Integers,
    outputs: Integers,
    candidates: Integers,
    blocks: Sequence[Integers],
    sizes: Sequence[int],
    *,
    ridge: float,
    linalg: Linalg | None = None,
    told: Callable[[float], None] = lambda share: None,
) -> CopulaInformation:
    """Return the figures (b, k, s) of all features in b resamples, rows taken ``counts`` (b, n) times.

    ``candidates`` (k, M) of the first k columns, ``outputs`` (q,); ``sizes``: of the first so many
    candidates, s times 0..M. ``blocks``: sets of columns that each feature, its candidates and the outputs
    share one of. ``told`` between parts how much is done, of 1. Raises ValueError as `copula_information`
    does.
    """
    k, kept = len(candidates), list(sizes)
    unique = np.empty((len(counts), k, len(kept)))
    head = np.empty_like(unique)
    done = 0
    for block in blocks:
        features = block[block < k]
        within = np.full(scores.columns + 1, -1, dtype=np.int64)
        within[block] = np.arange(block.size)
        step = max(_CORRELATIONS_AT_ONCE // block.size**2, 1)
        for start in range(0, len(counts), step):
            told(done / (len(counts) * k))
            part = slice(start, start + step)
            found = copula_information(
                scores.correlations(counts[part], block, linalg),
                within[features],
                within[outputs],
                within[candidates[features]],
                ridge=ridge,
                linalg=linalg,
            )
            unique[part, features] = found.unique[..., kept]
            head[part, features] = found.head[..., kept]
            done += features.size * len(counts[part])
    return CopulaInformation(unique, head)
