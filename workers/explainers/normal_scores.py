"""Normal scores of columns and of their resamples, from one sort: a copula knows no more than ranks.

Average ranks R become Φ⁻¹((R − ½)/s): of the usual treatments of ties only average ranks leave every figure
unchanged under monotone maps of the columns. A resample that takes row i counts[i] times has average ranks
that follow from sums of counts in the order of the original columns: with b rows before a value and e rows
up to the end of its ties, 2R − 1 = b + e.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from attributary.workers.explainers.linear_algebra import (
    Floats,
    Integers,
    Linalg,
    NumpyLinalg,
    score_table,
)

_CONSTANT = 1e-12


class NormalScores:
    """Columns (n, k) as ranks, ready to be resampled without sorting again.

    ``order`` (k, n) sorts each column; ``first`` and ``last`` (k, n) say for every row how many sorted
    values lie before its ties, and how many up to their end. Raises ValueError for NaN, fewer than 2 rows,
    or another shape. Infinite values rank as the ends.
    """

    def __init__(self, columns: npt.ArrayLike) -> None:
        values = np.asarray(columns, dtype=np.float64)
        if values.ndim != 2 or values.shape[0] < 2 or values.shape[1] < 1:
            raise ValueError(f"columns have shape {values.shape}; expected (n, k), n >= 2, k >= 1")
        if (bad := np.flatnonzero(np.isnan(values).any(axis=0))).size:
            raise ValueError(f"columns {bad[:8].tolist()} hold NaN: leave such rows out or impute")
        self.rows, self.columns = values.shape
        n = self.rows
        by_column = np.ascontiguousarray(values.T)
        # Ties in any order: sums are taken at their ends only.
        self.order = np.argsort(by_column, axis=1)
        ascending = np.take_along_axis(by_column, self.order, axis=1)
        fresh = np.ones((self.columns, n + 1), dtype=bool)
        fresh[:, 1:-1] = ascending[:, 1:] != ascending[:, :-1]
        places = np.arange(n + 1)
        start = np.maximum.accumulate(np.where(fresh, places, 0)[:, :-1], axis=1)
        end = np.minimum.accumulate(np.where(fresh, places, n)[:, :0:-1], axis=1)[:, ::-1]
        self.first, self.last = np.empty_like(self.order), np.empty_like(self.order)
        np.put_along_axis(self.first, self.order, start, axis=1)
        np.put_along_axis(self.last, self.order, end, axis=1)

    def scores(self) -> Floats:
        """Return the normal scores (k, n)."""
        scores: Floats = score_table(self.rows)[self.first + self.last]
        return scores

    def correlation(
        self, linalg: Linalg | None = None, blocks: Sequence[Integers] | None = None
    ) -> Floats:
        """Return the correlation (k, k) of the normal scores; a constant column has none (0).

        ``blocks``: of pairs within one of these sets of columns alone, 0 for the others.
        """
        once = np.ones((1, self.rows), dtype=np.int64)
        correlation = np.zeros((self.columns, self.columns))
        if blocks is None:
            blocks = [np.arange(self.columns)]
        for block in blocks:
            correlation[np.ix_(block, block)] = self.correlations(once, block, linalg)[0]
        return correlation

    def correlations(
        self, counts: Integers, columns: Integers, linalg: Linalg | None = None
    ) -> Floats:
        """Return the correlations (b, m, m) of ``columns`` (m,) in b resamples, counts (b, n)."""
        linalg = linalg or NumpyLinalg()
        found = np.empty((len(counts), columns.size, columns.size))
        for chosen in _by_total(counts):
            found[chosen] = _correlations(linalg.second_moments(self, counts[chosen], columns))
        return found


def _by_total(counts: Integers) -> Iterator[Integers]:
    """Yield the resamples that have as many rows."""
    totals = counts.sum(axis=1)
    for total in np.unique(totals):
        yield np.flatnonzero(totals == total)


def _correlations(moments: Floats) -> Floats:
    """Return correlations (b, m, m) from second moments (b, m + 1, m + 1), the last of them of 1."""
    total = moments[:, -1:, -1:]
    mean = moments[:, :-1, -1] / total[:, 0]
    found: Floats = moments[:, :-1, :-1] / total
    found -= mean[:, :, None] * mean[:, None, :]
    variance = np.diagonal(found, axis1=1, axis2=2)
    constant = variance <= _CONSTANT
    scale = 1 / np.sqrt(np.where(constant, np.inf, variance))
    found *= scale[:, :, None]
    found *= scale[:, None, :]
    diagonal = np.arange(found.shape[1])
    found[:, diagonal, diagonal] = 1.0
    return found
