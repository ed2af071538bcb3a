"""Information under a Gaussian copula: ranks once, one correlation matrix, small blocks batched.

Average ranks R become normal scores Φ⁻¹((R − ½)/s): of the usual treatments of ties only average ranks
leave every figure unchanged under monotone maps of the columns. All information is a difference of
log-determinants of blocks of one correlation matrix, in nats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

DEFAULT_RIDGE = 1e-6
_CONSTANT = 1e-12


class Linalg(Protocol):
    """Where the two heavy steps run: numpy by default, a device if a caller brings one."""

    def gram(self, Z: Floats) -> Floats:
        """Return Z Zᵀ (k, k) of Z (k, n)."""

    def cumulative_logdets(self, blocks: Floats) -> Floats:
        """Return (b, m): log-determinants of the leading 1..m rows and columns of blocks (b, m, m).

        Raises numpy.linalg.LinAlgError where a block is not positive definite.
        """


class NumpyLinalg:
    """The steps in numpy."""

    def gram(self, Z: Floats) -> Floats:
        """Return Z Zᵀ (k, k) of Z (k, n)."""
        product: Floats = Z @ Z.T
        return product

    def cumulative_logdets(self, blocks: Floats) -> Floats:
        """Return (b, m): log-determinants of the leading 1..m rows and columns of blocks (b, m, m)."""
        factor = np.linalg.cholesky(blocks)
        logs: Floats = 2 * np.log(np.diagonal(factor, axis1=1, axis2=2)).cumsum(axis=1)
        return logs


class NormalScores:
    """Columns (n, k) as ranks, ready to be resampled without sorting again.

    Raises ValueError for NaN, fewer than 2 rows, or another shape. Infinite values rank as the ends.
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
        self._order = np.argsort(by_column, axis=1, kind="stable")
        ascending = np.take_along_axis(by_column, self._order, axis=1)
        place = np.empty_like(self._order)
        np.put_along_axis(place, self._order, np.arange(n)[None, :], axis=1)
        self._place = place + (np.arange(self.columns) * n)[:, None]
        # For columns with ties: where each value's ties begin and end among the ascending ones.
        fresh = np.ones((self.columns, n + 1), dtype=bool)
        fresh[:, 1:-1] = ascending[:, 1:] != ascending[:, :-1]
        self._tied = np.flatnonzero(~fresh.all(axis=1))
        fresh, places = fresh[self._tied], np.arange(n + 1)
        self._start = np.maximum.accumulate(np.where(fresh, places, 0)[:, :-1], axis=1)
        end = np.minimum.accumulate(np.where(fresh, places, n)[:, :0:-1], axis=1)
        self._end = end[:, ::-1]

    def scores(self, counts: Integers | None = None) -> Floats:
        """Return normal scores (k, n) of the rows, each taken ``counts`` (n,) times (default once).

        A row that is taken 0 times has a score that means nothing; it is finite.
        """
        if counts is None:
            counts = np.ones(self.rows, dtype=np.int64)
        total = int(counts.sum())
        # The smallest type that holds twice a rank: what is gathered below should fit the cache.
        small = np.int16 if 2 * total < np.iinfo(np.int16).max else np.int64
        own = np.take(counts.astype(small), self._order)
        upto = np.cumsum(own, axis=1, dtype=small)
        # Rows before a value and up to its end: their sum is twice the average rank, less 1.
        twice = 2 * upto - own
        if self._tied.size:
            padded = np.zeros((self._tied.size, self.rows + 1), dtype=small)
            padded[:, 1:] = upto[self._tied]
            before = np.take_along_axis(padded, self._start, axis=1)
            twice[self._tied] = before + np.take_along_axis(padded, self._end, axis=1)
        table = np.zeros(2 * total + 1)
        table[1:-1] = ndtri(np.arange(1, 2 * total) / (2 * total))
        scores: Floats = np.take(table, np.take(twice, self._place))
        return scores

    def correlation(
        self,
        counts: Integers | None = None,
        linalg: Linalg | None = None,
        blocks: Sequence[Integers] | None = None,
    ) -> Floats:
        """Return the correlation (k, k) of the normal scores; a constant column has none (0).

        ``blocks``: of pairs within one of these sets of columns alone, 0 for the others.
        """
        Z = self.scores(counts)
        weight = np.ones(self.rows) if counts is None else counts.astype(np.float64)
        total = weight.sum()
        mean = (Z @ weight) / total
        if counts is not None:
            Z *= np.sqrt(weight)
        linalg = linalg or NumpyLinalg()
        if blocks is None:
            return _correlation(Z, mean, total, linalg)
        correlation = np.zeros((self.columns, self.columns))
        for block in blocks:
            part = _correlation(Z[block], mean[block], total, linalg)
            correlation[np.ix_(block, block)] = part
        return correlation


def _correlation(Z: Floats, mean: Floats, total: float, linalg: Linalg) -> Floats:
    """Return the correlation (k, k) of weighted scores (k, n), by their means and total weight."""
    covariance = linalg.gram(Z) / total - np.outer(mean, mean)
    variance = np.diag(covariance).copy()
    constant = variance <= _CONSTANT
    scale = np.sqrt(np.where(constant, 1.0, variance))
    correlation: Floats = covariance / scale / scale[:, None]
    correlation[constant] = correlation[:, constant] = 0.0
    np.fill_diagonal(correlation, 1.0)
    return correlation


@dataclass(frozen=True)
class CopulaInformation:
    """Figures of every feature for every prefix of its candidates, r = 0..M: arrays (k, M + 1), nats.

    ``unique`` I(Q; X_i | X_Φ), ``head`` I(Q; X_Φ), ``joint`` I(Q; X_Φ, X_i) = head + unique.
    """

    unique: Floats
    head: Floats

    @property
    def joint(self) -> Floats:
        """I(Q; X_Φ, X_i), never below ``unique``."""
        return self.head + self.unique


def copula_information(
    correlation: Floats,
    features: Integers,
    outputs: Integers,
    candidates: Integers,
    *,
    ridge: float = DEFAULT_RIDGE,
    linalg: Linalg | None = None,
) -> CopulaInformation:
    """Return the information of ``features`` (k,) on ``outputs`` given their candidates (k, M).

    ``outputs`` (q,), or (k, q) where every feature has its own. All three are column numbers of
    ``correlation``; a row of candidates ends in -1 where there are fewer. One ridge goes on the whole
    covariance, so that J = H + U exactly and U <= J (differs from the paper: a ridge after the Schur
    complement breaks this). Raises ValueError where a block is singular, which takes ``ridge=0`` and
    dependent columns.
    """
    linalg = linalg or NumpyLinalg()
    k, most = candidates.shape
    q = outputs.shape[-1]
    own, ends = features[:, None], np.broadcast_to(outputs, (k, q))
    try:
        # Prefixes of one ordering share a factor: four factors serve all sizes at once.
        iq_phi = _logdets(correlation, np.hstack([own, ends, candidates]), ridge, linalg)[:, q:]
        q_phi = _logdets(correlation, np.hstack([ends, candidates]), ridge, linalg)[:, q - 1 :]
        i_phi = _logdets(correlation, np.hstack([own, candidates]), ridge, linalg)
        phi = np.zeros((k, most + 1))
        if most:
            phi[:, 1:] = _logdets(correlation, candidates, ridge, linalg)
    except np.linalg.LinAlgError:
        raise ValueError(
            f"columns depend linearly on each other and ridge is {ridge:g}: pass a larger one, such as "
            f"{DEFAULT_RIDGE:g}"
        ) from None
    unique = (i_phi + q_phi - phi - iq_phi) / 2
    head = (q_phi[:, :1] + phi - q_phi) / 2
    return CopulaInformation(np.maximum(unique, 0.0), np.maximum(head, 0.0))


def _logdets(correlation: Floats, index: Integers, ridge: float, linalg: Linalg) -> Floats:
    """Return cumulative log-determinants (b, m) of the blocks at ``index`` (b, m); -1 counts as
    a column of its own that depends on nothing, with variance 1."""
    m = index.shape[1]
    present = index >= 0
    blocks = correlation[index[:, :, None], index[:, None, :]]
    blocks *= present[:, :, None] & present[:, None, :]
    diagonal = np.arange(m)
    blocks[:, diagonal, diagonal] = np.where(present, 1.0 + ridge, 1.0)
    return linalg.cumulative_logdets(blocks)
