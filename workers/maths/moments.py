"""Moments Σ w² xᵃ yᵇ of every (feature, output) pair: what the error of a score is made of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def pair_moments(
    x: Floats, known: Flags | None, y: Floats, present: Flags, weights: Floats | None
) -> Floats:
    """Return (2, 3, 3, c, d): Σ w² xᵃ yᵇ for a, b up to 2, then times sign(x) sign(y).

    ``x`` (d, n) and ``y`` (c, n) are about the reference and 0 where missing; ``known`` (d, n) says
    where x is not (None: everywhere), ``present`` (c, n) where y is not. Two matrix products.
    """
    (d, n), c = x.shape, len(y)
    moments = np.empty((2, 3, 3, c, d))
    powers = np.stack([present.astype(np.float64), y, y * y])
    signed = powers * np.sign(y)
    if weights is not None:
        powers *= weights * weights
        signed *= weights * weights
    right = powers.reshape(3 * c, n).T
    plain = np.empty((2, d, n))
    plain[0] = x
    np.multiply(x, x, out=plain[1])
    found = (plain.reshape(2 * d, n) @ right).reshape(2, d, 3, c)
    moments[0, 1:] = found.transpose(0, 2, 3, 1)
    if known is None:
        moments[0, 0] = powers.sum(axis=2)[:, :, None]
    else:
        found = (known.astype(np.float64) @ right).reshape(d, 3, c)
        moments[0, 0] = found.transpose(1, 2, 0)
    oriented = np.empty((3, d, n))
    np.sign(x, out=oriented[0])
    np.abs(x, out=oriented[1])
    np.multiply(x, oriented[1], out=oriented[2])
    found = (oriented.reshape(3 * d, n) @ signed.reshape(3 * c, n).T).reshape(3, d, 3, c)
    moments[1] = found.transpose(0, 2, 3, 1)
    return moments


def recentred(moments: Floats, mx: Floats, my: Floats) -> tuple[Floats, Floats]:
    """Return Σ w²(x - mx)²(y - my)², plain and signed about the reference, each (c, d)."""
    x = np.stack([mx * mx, -2.0 * mx, np.ones_like(mx)])
    y = np.stack([my * my, -2.0 * my, np.ones_like(my)])
    both = np.einsum("sabod,ad,bo->sod", moments, x, y)
    return both[0], both[1]
