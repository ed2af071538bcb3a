"""Where the heavy steps of a Gaussian copula run: numpy by default, a device if a caller brings one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

if TYPE_CHECKING:
    from attributary.workers.explainers.normal_scores import NormalScores

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# Numbers of normal scores at once: 16 MB, so that memory stays bounded and near.
_SCORES_AT_ONCE = 1 << 21


class Linalg(Protocol):
    """The two heavy steps, both of many matrices at once."""

    def second_moments(self, ranks: NormalScores, counts: Integers, columns: Integers) -> Floats:
        """Return (b, m + 1, m + 1): Σ counts·z zᵀ of the normal scores z of ``columns`` (m,) in each of b
        resamples, rows taken ``counts`` (b, n) times; 1 is the last z. All counts have one sum."""

    def cholesky(self, blocks: Floats) -> Floats:
        """Return the lower factors of blocks (b, m, m).

        Raises numpy.linalg.LinAlgError where a block is not positive definite.
        """


class NumpyLinalg:
    """The steps in numpy."""

    def second_moments(self, ranks: NormalScores, counts: Integers, columns: Integers) -> Floats:
        """Return (b, m + 1, m + 1), see ``Linalg``: resamples in parts that memory bounds."""
        resamples, n = counts.shape
        step = max(_SCORES_AT_ONCE // ((columns.size + 1) * n), 1)
        moments = np.empty((resamples, columns.size + 1, columns.size + 1))
        for start in range(0, resamples, step):
            part = counts[start : start + step]
            root = np.sqrt(part.astype(np.float64))
            Z = np.empty((len(part), columns.size + 1, n))
            Z[:, -1] = 1.0
            self._fill(Z, ranks, part, columns)
            Z *= root[:, None, :]
            np.matmul(Z, Z.transpose(0, 2, 1), out=moments[start : start + step])
        return moments

    def cholesky(self, blocks: Floats) -> Floats:
        """Return the lower factors of blocks (b, m, m)."""
        factors: Floats = np.linalg.cholesky(blocks).astype(np.float64, copy=False)
        return factors

    def _fill(self, Z: Floats, ranks: NormalScores, counts: Integers, columns: Integers) -> None:
        total = int(counts[0].sum())
        # Resamples lie side by side, so that one look-up serves all of them, and several share a machine
        # word: their sums do not reach each other's bits.
        lane = np.uint16 if 2 * total < 1 << 16 else np.uint32
        lanes = 8 // np.dtype(lane).itemsize
        width = -(-len(counts) // lanes) * lanes
        taken = np.zeros((ranks.rows, width), dtype=lane)
        taken[:, : len(counts)] = counts.T
        upto = np.zeros((ranks.rows + 1, width), dtype=lane)
        table = score_table(total)
        for place, column in enumerate(columns):
            own = taken.take(ranks.order[column], axis=0).view(np.uint64)
            np.cumsum(own, axis=0, out=upto.view(np.uint64)[1:])
            twice = upto.take(ranks.first[column], axis=0)
            twice += upto.take(ranks.last[column], axis=0)
            Z[:, place] = table.take(twice[:, : len(counts)].T)


def score_table(total: int) -> Floats:
    """Return Φ⁻¹((R - ½)/total) at 2R - 1 = 0..2 total, for average ranks R; 0 at both ends, which no
    row that is taken has."""
    table = np.zeros(2 * total + 1)
    table[1:-1] = ndtri(np.arange(1, 2 * total) / (2 * total))
    return table
