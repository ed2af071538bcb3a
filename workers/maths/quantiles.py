"""Column quantiles of a batch, by linear interpolation, with weights and missing values.

Sign symmetry of CIR needs a symmetric rule. Without weights this is numpy's ``linear``; with
weights the k-th smallest value stands at (C_k - w_k/2 - w_1/2) / (W - w_1/2 - w_n/2), C the
running weight, which is the same rule where all weights are equal.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def quantiles(values: Floats, q: Floats, weights: Floats | None = None) -> Floats:
    """Return the quantiles ``q`` (m,) of every column of ``values`` (n, d) as (m, d).

    NaN and infinite entries are left out; a column without any other has NaN quantiles.
    ``weights`` (n,) >= 0; rows of weight 0 are left out.
    """
    present = np.isfinite(values)
    if weights is not None:
        present &= (weights > 0.0)[:, None]
    kept = np.where(present, values, np.nan)
    count = present.sum(axis=0)
    columns = np.arange(values.shape[1])
    if values.shape[0] == 0:
        return np.full((q.size, values.shape[1]), np.nan)
    if weights is None:
        ordered = np.sort(kept, axis=0)
        at = q[:, None] * np.maximum(count - 1, 0)
    else:
        order = np.argsort(kept, axis=0, kind="stable")
        ordered = np.take_along_axis(kept, order, axis=0)
        heavy = np.where(np.isnan(ordered), 0.0, weights[order])
        at = _weighted_positions(heavy, count, q)
    below = np.floor(at).astype(np.int64)
    above = np.minimum(below + 1, np.maximum(count - 1, 0))
    return _between(ordered[below, columns], ordered[above, columns], at - below)


def midhinge(quartiles: Floats) -> Floats:
    """Return (Q.25 + Q.75) / 2 of quartiles (2, d), halved first so that 1e308 does not overflow."""
    centre: Floats = quartiles[0] / 2.0 + quartiles[1] / 2.0
    return centre


def _weighted_positions(heavy: Floats, count: npt.NDArray[np.int64], q: Floats) -> Floats:
    """Return where the quantiles stand among the ordered rows, in fractional row numbers."""
    at = np.zeros((q.size, heavy.shape[1]))
    for j, held in enumerate(count):
        if held < 2:
            continue
        w = heavy[:held, j]
        place = np.cumsum(w) - w / 2.0 - w[0] / 2.0
        at[:, j] = np.interp(q, place / place[-1], np.arange(held))
    return at


def _between(low: Floats, high: Floats, share: Floats) -> Floats:
    # Neither a + (b - a) t, which overflows, nor a (1 - t) + b t, which moves equal values.
    mixed: Floats = np.where(low == high, low, low * (1.0 - share) + high * share)
    return mixed
