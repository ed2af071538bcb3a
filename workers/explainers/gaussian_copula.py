"""Information under a Gaussian copula: blocks of correlation matrices, factored together.

All figures are differences of log-determinants of blocks of one correlation matrix of normal scores, in
nats. A Cholesky factor that has the neighbours in front holds those of every prefix of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attributary.workers.explainers.linear_algebra import Floats, Integers, Linalg, NumpyLinalg

DEFAULT_RIDGE = 1e-6
_SINGULAR = 1e-14
# Numbers of blocks at once: 32 MB.
_NUMBERS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class CopulaInformation:
    """Figures of every feature for every prefix of its candidates, r = 0..M: (..., k, M + 1), nats.

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

    ``correlation`` is one (c, c), or one for each of b resamples (b, c, c): then all figures are (b, k,
    M + 1). ``outputs`` (q,), or (k, q) where every feature has its own. All three are column numbers of
    it; a row of candidates ends in -1 where there are fewer. One ridge goes on the whole covariance, so
    that J = H + U exactly and U <= J (differs from the paper: a ridge after the Schur complement breaks
    this). Raises ValueError where a block is singular, which takes ``ridge=0`` and dependent columns.
    """
    linalg = linalg or NumpyLinalg()
    k, most = candidates.shape
    ends = np.broadcast_to(outputs, (k, outputs.shape[-1]))
    index = np.hstack([candidates, ends, features[:, None]])
    stacked = correlation.reshape(-1, *correlation.shape[-2:])
    unique = np.empty((len(stacked), k, most + 1))
    head = np.empty_like(unique)
    step = max(_NUMBERS_AT_ONCE // max(index.size * index.shape[1], 1), 1)
    try:
        for start in range(0, len(stacked), step):
            part = slice(start, start + step)
            unique[part], head[part] = _figures(stacked[part], index, most, ridge, linalg)
    except np.linalg.LinAlgError:
        raise ValueError(
            f"columns depend linearly on each other and ridge is {ridge:g}: pass a larger one, such as "
            f"{DEFAULT_RIDGE:g}"
        ) from None
    shape = (*correlation.shape[:-2], k, most + 1)
    return CopulaInformation(unique.reshape(shape), head.reshape(shape))


def _figures(
    correlation: Floats, index: Integers, most: int, ridge: float, linalg: Linalg
) -> tuple[Floats, Floats]:
    """Return unique and head information (b, k, M + 1) of the rows of ``index`` (k, M + q + 1): the
    candidates, the outputs, the feature."""
    blocks = _blocks(correlation, index, ridge)
    b, k, m, _ = blocks.shape
    factor = linalg.cholesky(blocks.reshape(-1, m, m)).reshape(blocks.shape)
    if (np.diagonal(factor, axis1=2, axis2=3) ** 2 <= _SINGULAR).any():
        raise np.linalg.LinAlgError("a block is singular")
    # What the outputs and the feature have in common with each candidate beyond those before it.
    shared = factor[:, :, most:, :most]
    q = m - most - 1
    own = _left(blocks[:, :, -1, -1], shared[:, :, -1] ** 2)
    if q == 1:
        output = _left(blocks[:, :, most, most], shared[:, :, 0] ** 2)
        both = _left(blocks[:, :, most, -1], shared[:, :, 0] * shared[:, :, -1])
        explained = np.clip(both * both / (own * output), 0.0, 1.0 - np.finfo(np.float64).eps)
        return -np.log1p(-explained) / 2, _gain(np.log(output))
    product = shared.swapaxes(2, 3)[..., :, None] * shared.swapaxes(2, 3)[..., None, :]
    left = _left(blocks[:, :, None, most:, most:], product, axis=2)
    left = left.reshape(-1, q + 1, q + 1)
    logs = 2 * np.log(np.diagonal(linalg.cholesky(left), axis1=1, axis2=2))
    logs = logs.reshape(b, k, most + 1, q + 1)
    unique = np.maximum(np.log(own) - logs[..., -1], 0.0) / 2
    return unique, _gain(logs[..., :-1].sum(axis=-1))


def _left(whole: Floats, taken: Floats, axis: int = -1) -> Floats:
    """Return what is left of ``whole`` after the first 0..M of ``taken`` (..., M along ``axis``)."""
    whole = whole[..., None] if axis == -1 else whole
    return np.concatenate([whole, whole - taken.cumsum(axis=axis)], axis=axis)


def _gain(logs: Floats) -> Floats:
    """Return half of what a log-determinant (..., M + 1) has lost since the first; never below 0."""
    gain: Floats = np.maximum(logs[..., :1] - logs, 0.0) / 2
    return gain


def _blocks(correlation: Floats, index: Integers, ridge: float) -> Floats:
    """Return the blocks (b, k, m, m) at ``index`` (k, m); -1 counts as a column of its own that depends
    on nothing, with variance 1."""
    present = index >= 0
    blocks = correlation[:, index[:, :, None], index[:, None, :]]
    if not present.all():
        blocks *= present[:, :, None] & present[:, None, :]
    diagonal = np.arange(index.shape[1])
    blocks[:, :, diagonal, diagonal] = np.where(present, 1.0 + ridge, 1.0)
    return blocks
