"""The lightweight protocol's subsample: rows drawn uniformly, or from strata of the output in proportion."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def light_rows(
    outputs: npt.ArrayLike, rows: int, rng: np.random.Generator, *, strata: int = 0
) -> Integers:
    """Return ``rows`` different rows of outputs (n,) or (n, q), ascending.

    ``strata`` 0: uniform. Else the output (of several, their first principal component) is cut into so many
    cells of equal mass, or by its values where it has no more, and each gives its share, by largest
    remainders. Raises ValueError for a number of rows outside 1..n.
    """
    values = np.asarray(outputs, dtype=np.float64)
    values = values[:, None] if values.ndim == 1 else values
    n = len(values)
    if not 1 <= rows <= n:
        raise ValueError(f"{rows} of {n} rows; expected 1 to {n}")
    order = rng.permutation(n)
    if not strata:
        return np.sort(order[:rows]).astype(np.int64)
    label = _strata(values, strata)[order]
    sizes = np.bincount(label)
    share = sizes * rows / n
    taken = np.floor(share).astype(np.int64)
    rest = np.argsort(taken - share, kind="stable")[: rows - int(taken.sum())]
    taken[rest] += 1
    ranked = np.argsort(label, kind="stable")
    begins = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    place = np.arange(n) - np.repeat(begins, sizes)
    return np.sort(order[ranked[place < np.repeat(taken, sizes)]]).astype(np.int64)


def _strata(values: Floats, strata: int) -> Integers:
    """Return the stratum (n,) of every row, from 0 without holes."""
    line = PrincipalOutputs(values, 1).of(values)[:, 0] if values.shape[1] > 1 else values[:, 0]
    distinct, label = np.unique(line, return_inverse=True)
    if distinct.size > strata:
        edges = np.unique(np.quantile(line, np.arange(1, strata) / strata))
        _, label = np.unique(np.searchsorted(edges, line, side="left"), return_inverse=True)
    return label.astype(np.int64)


class PrincipalOutputs:
    """The first components of outputs, fitted on ``full`` (n, q), which are standardised first.

    Raises ValueError where ``kept`` is not from 1 to q.
    """

    def __init__(self, full: Floats, kept: int) -> None:
        q = full.shape[1]
        if not 1 <= kept <= q:
            raise ValueError(f"{kept} of {q} outputs; expected 1 to all of them")
        deviation = full.std(axis=0)
        self._mean, self._scale = full.mean(axis=0), np.where(deviation > 0, deviation, 1.0)
        standard = (full - self._mean) / self._scale
        _, axes = np.linalg.eigh(standard.T @ standard)
        self._axes = axes[:, ::-1][:, :kept]

    def of(self, outputs: Floats) -> Floats:
        """Return the components (m, kept) of outputs (m, q)."""
        found: Floats = ((outputs - self._mean) / self._scale) @ self._axes
        return found
