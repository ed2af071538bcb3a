"""What the cells of a co-movement grid say about CIR at a given centre."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from attributary.workers.maths import crossing
from attributary.workers.maths.binning import standardise

Floats = npt.NDArray[np.float64]

#: Mean products below this, in standard units, are round-off of cells that lie on a centre.
_NOTHING = 1e-5


def cell_bounds(
    edges: Floats, reference: Floats, unit: Floats, seen: Floats
) -> tuple[Floats, Floats]:
    """Return the standardised bounds (columns, K) of every cell, inside the range ``seen``."""
    inner = standardise(edges, reference[:, None], unit[:, None])
    least, greatest = seen[0][:, None], seen[1][:, None]
    empty = least > greatest
    least, greatest = np.where(empty, 0.0, least), np.where(empty, 0.0, greatest)
    low = np.clip(np.concatenate([least, inner], axis=1), least, greatest)
    high = np.clip(np.concatenate([inner, greatest], axis=1), least, greatest)
    return low, high


def cell_sums(
    cells: Floats,
    x_bounds: tuple[Floats, Floats],
    y_bounds: tuple[Floats, Floats],
    mx: Floats,
    my: Floats,
    square_weight: Floats | None,
) -> Floats:
    """Return (5, features): N, D, the correction of Σ w²p|p|, and Σ w and Σ w² where p ≠ 0.

    ``cells`` (4, features, K, K) of one output; ``square_weight`` (features, K, 1) is Σw²/Σw.
    """
    n, sx, sy, sxy = cells
    net = sxy - mx * sy - my * sx + n * (mx * my)
    held = np.where(n > 0.0, n, 1.0)
    x = crossing.spread(sx / held, *x_bounds)
    y = crossing.spread(sy / held, *y_bounds)
    estimate = n * crossing.absolute(x, mx) * crossing.absolute(y, my)
    crossed = ((x_bounds[0] < mx) & (mx < x_bounds[1])) | ((y_bounds[0] < my) & (my < y_bounds[1]))
    mass = np.abs(net)
    mass = np.where(crossed, np.maximum(mass, estimate), mass)
    zero = np.zeros(())
    at_centre = crossing.signed_square(x, mx, mx) * crossing.signed_square(y, my, my)
    at_reference = crossing.signed_square(x, mx, zero) * crossing.signed_square(y, my, zero)
    shift = n * (at_centre - at_reference)
    weight = np.where(np.maximum(mass, estimate) > _NOTHING * n, n, 0.0)
    square = weight
    if square_weight is not None:
        shift = shift * square_weight
        square = weight * square_weight
    return np.stack([part.sum(axis=(-2, -1)) for part in (net, mass, shift, weight, square)])


def recentred(moments: Floats, mx: Floats, my: Floats) -> tuple[Floats, Floats]:
    """Return Σ w²(x - mx)²(y - my)², plain and signed about the reference, each (c, d)."""
    x = np.stack([mx * mx, -2.0 * mx, np.ones_like(mx)])
    y = np.stack([my * my, -2.0 * my, np.ones_like(my)])
    both = np.einsum("sabod,ad,bo->sod", moments, x, y)
    return both[0], both[1]
