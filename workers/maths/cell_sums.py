"""What the cells of a co-movement grid say about CIR at a given centre."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from attributary.workers.maths import crossing
from attributary.workers.maths.binning import standardise

Floats = npt.NDArray[np.float64]

#: Relative to the terms of a recentred sum: twice what float32 and derived Σ xy may be off by.
_ROUND_OFF = 2.0**-20


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
    # What float32 sums cannot tell from 0 is 0: a constant column has D = 0 through its bytes too.
    least = _ROUND_OFF * n * (np.abs(x.mean) + np.abs(mx)) * (np.abs(y.mean) + np.abs(my))
    net = np.where(np.abs(net) > least, net, 0.0)
    estimate = n * crossing.absolute(x, mx) * crossing.absolute(y, my)
    estimate = np.where(estimate > least, estimate, 0.0)
    crossed = ((x_bounds[0] < mx) & (mx < x_bounds[1])) | ((y_bounds[0] < my) & (my < y_bounds[1]))
    if square_weight is None:
        crossed &= n > 1.0  # a row alone in its cell is exact
    mass = np.abs(net)
    mass = np.where(crossed, np.maximum(mass, estimate), mass)
    zero = np.zeros(())
    at_centre = crossing.signed_square(x, mx, mx) * crossing.signed_square(y, my, my)
    at_reference = crossing.signed_square(x, mx, zero) * crossing.signed_square(y, my, zero)
    shift = n * (at_centre - at_reference)
    weight = np.where(np.maximum(mass, estimate) > 0.0, n, 0.0)
    square = weight
    if square_weight is not None:
        shift = shift * square_weight
        square = weight * square_weight
    return np.stack([part.sum(axis=(-2, -1)) for part in (net, mass, shift, weight, square)])
