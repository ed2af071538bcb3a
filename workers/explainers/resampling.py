"""Resamples of rows, as counts or as halves; in blocks where rows depend on their predecessors."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


def bootstrap_counts(n: int, rng: np.random.Generator, block_length: int = 1) -> Integers:
    """Return how often each of n rows is drawn in one bootstrap resample of n rows.

    ``block_length`` > 1 draws circular blocks of neighbours (D. Politis and J. Romano, 1992).
    """
    if block_length <= 1:
        return rng.multinomial(n, np.full(n, 1 / n)).astype(np.int64)
    starts = rng.integers(0, n, -(-n // block_length))
    rows = (starts[:, None] + np.arange(block_length)).ravel()[:n] % n
    return np.bincount(rows, minlength=n).astype(np.int64)


def half(n: int, rng: np.random.Generator, block_length: int = 1) -> Integers:
    """Return half of the rows, in order, drawn without replacement, whole blocks at a time.

    The spread of a figure over such halves is its standard error (the delete-half jackknife, J. Shao
    and C. Wu, 1989): resampling with replacement would make ties, which mislead nearest neighbours.
    """
    blocks = -(-n // block_length)
    kept = np.sort(rng.permutation(blocks)[: -(-blocks // 2)])
    rows = (kept[:, None] * block_length + np.arange(block_length)).ravel()
    return rows[rows < n].astype(np.int64)
