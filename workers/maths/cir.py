"""CIR of a batch: how consistently each feature moves with each output, with its error.

ExCIR: centre m = midhinge, x̃ = x - m(x), ỹ = y - m(y), p = x̃ỹ, N = Σwp, D = Σw|p|,
CIR = (1 + N/D)/2, and exactly ½ where D = 0. Over all features and outputs N = X̃ᵀWỸ and
D = |X̃|ᵀW|Ỹ|, two matrix products. Differs from the paper in the word: its "mid-mean" is the
midhinge, not the mean of the central half.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from attributary.workers.maths.binning import standardise
from attributary.workers.maths.effect import Side, contrast
from attributary.workers.maths.groups import (
    Groups,
    checked_groups,
    checked_scale,
    member_factors,
)
from attributary.workers.maths.quantiles import midhinge, quantiles
from attributary.workers.maths.scores import CirScores, Estimate, estimate, scores_from_sums
from attributary.workers.maths.sums import CirSums

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_QUARTILES = np.array([0.25, 0.75])


def cir(
    X: npt.ArrayLike,
    Y: npt.ArrayLike,
    *,
    weights: npt.ArrayLike | None = None,
    groups: Groups | None = None,
    scale: str | None = None,
) -> CirScores:
    """Score features ``X`` (n, d) against outputs ``Y`` (n, c), or (n,) for one output.

    ``weights`` (n,) finite and >= 0 enter the sums and the quartiles. ``groups`` {name: columns}
    are scored as blocks; ``scale`` is how their members are made comparable: None or "iqr" divides
    by the interquartile range, "none" adds raw units (the paper). Single features do not depend
    on it. Outputs should be logits or margins: CIR is invariant under positive affine maps of an
    output, not under a sigmoid.

    A row whose feature is NaN or infinite is left out of that feature's sums, one whose output is
    NaN or infinite out of that output's. Raises ValueError for shapes that do not fit.

    >>> y = [1, 2, 3, 4, 10]
    >>> cir([[0, 4, 0], [1, 3, 4], [2, 2, 0], [3, 1, 4], [4, 0, 0]], y).score.round(4).tolist()
    [[1.0, 0.0, 0.2727]]
    """
    x, y, w = _checked(X, Y, weights)
    members = checked_groups(groups, x.shape[1])
    mode = checked_scale(scale)
    x_quartiles, y_quartiles = quantiles(x, _QUARTILES, w), quantiles(y, _QUARTILES, w)
    x_std, x_known, x_unit = _about_midhinge(x, x_quartiles)
    y_std, y_known, y_unit = _about_midhinge(y, y_quartiles)
    wy = y_std if w is None else y_std * w[:, None]
    wwyy = wy * wy
    active, moved = ((part != 0.0).astype(np.float64) for part in (y_std, x_std))
    with np.errstate(under="ignore"):
        sums = CirSums(
            N=wy.T @ x_std,
            D=np.abs(wy).T @ np.abs(x_std),
            square=wwyy.T @ (x_std * x_std),
            signed=(wwyy * np.sign(y_std)).T @ (x_std * np.abs(x_std)),
            weight=(active if w is None else active * w[:, None]).T @ moved,
            weight_square=(active if w is None else active * (w * w)[:, None]).T @ moved,
            x_unit=x_unit,
            y_unit=y_unit,
        )
    iqr = _range(x_quartiles)
    factors = {name: member_factors(index, x_unit, iqr, mode) for name, index in members.items()}
    blocks = _blocks(x_std, y_std, w, members, factors)
    effect = _effect(x, x_known, x_quartiles, y_std, y_known, w)
    with np.errstate(over="ignore"):
        scaled = (effect[0] * y_unit[:, None], effect[1] * y_unit[:, None])
    return scores_from_sums(sums, scaled, blocks)


def _checked(
    X: npt.ArrayLike, Y: npt.ArrayLike, weights: npt.ArrayLike | None
) -> tuple[Floats, Floats, Floats | None]:
    x, y = np.asarray(X, dtype=np.float64), np.asarray(Y, dtype=np.float64)
    if y.ndim == 1:
        y = y[:, None]
    if x.ndim != 2 or y.ndim != 2 or x.shape[0] != y.shape[0]:
        raise ValueError(
            f"expected X (n, d) and Y (n, c) or (n,) with the same n, got {x.shape} and {y.shape}"
        )
    if weights is None:
        return x, y, None
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != (x.shape[0],) or not (np.isfinite(w).all() and (w >= 0.0).all()):
        raise ValueError(f"weights must be {x.shape[0]} finite numbers >= 0, got {w.shape}")
    return x, y, w


def _about_midhinge(
    values: Floats, quartiles: Floats
) -> tuple[Floats, npt.NDArray[np.bool_], Floats]:
    """Return values about their midhinge in units of a power of two, 0 where missing."""
    known = np.isfinite(values)
    centre = np.nan_to_num(midhinge(quartiles), nan=0.0)
    half = np.abs(np.where(known, values / 2.0 - centre / 2.0, 0.0)).max(axis=0, initial=0.0)
    exponent = np.where(half > 0.0, np.frexp(half)[1] + 1, 0)
    unit = np.ldexp(1.0, np.clip(exponent, -1000, 1000))
    about = standardise(values, centre, unit)
    about[~known] = 0.0
    return about, known, unit


def _range(quartiles: Floats) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        spread: Floats = quartiles[1] - quartiles[0]
    return spread


def _blocks(
    x: Floats,
    y: Floats,
    w: Floats | None,
    groups: dict[str, Integers],
    factors: dict[str, Floats],
) -> dict[str, Estimate]:
    """Return the block scores with their exact error sums, row by row."""
    weight = np.ones((x.shape[0], 1)) if w is None else w[:, None]
    wy = (y * weight).T
    square = wy * wy
    active = (y != 0.0) * weight
    found: dict[str, Estimate] = {}
    for name, members in groups.items():
        scaled = x[:, members] * factors[name]
        net, gross = scaled.sum(axis=1), np.abs(scaled).sum(axis=1)
        moved = gross > 0.0
        held, held_square = active.T @ moved, (active * weight).T @ moved
        found[name] = estimate(
            N=wy @ net,
            D=np.abs(wy) @ gross,
            pp=square @ (net * net),
            pu=(square * np.sign(wy)) @ (net * gross),
            uu=square @ (gross * gross),
            rows=held**2 / np.where(held_square > 0.0, held_square, 1.0),
        )
    return found


def _effect(
    x: Floats,
    known: npt.NDArray[np.bool_],
    quartiles: Floats,
    y: Floats,
    y_known: npt.NDArray[np.bool_],
    w: Floats | None,
) -> tuple[Floats, Floats]:
    """Return the effect and its standard error (c, d) in the units of ``y``."""
    low, high = quartiles
    tied = low == high
    below, above = known & (x < low), known & (x > high)
    # Where the quartiles coincide, their value joins the side that is empty.
    join_low = ~tied | ~below.any(axis=0)
    join_high = ~tied | ~above.any(axis=0)
    constant = tied & join_low & join_high
    lower = np.where(join_low, known & (x <= low), below)
    upper = np.where(join_high, known & (x >= high), above)
    weight = np.ones(x.shape[0]) if w is None else w
    seen = y_known * weight[:, None]
    seen_y = seen * y
    sides = []
    for side in (lower, upper):
        rows = side.astype(np.float64)
        squares = [seen * seen, seen * seen_y, seen_y * seen_y]
        sides.append(
            Side(seen.T @ rows, seen_y.T @ rows, np.stack([part.T @ rows for part in squares]))
        )
    effect, error = contrast(*sides)
    return np.where(constant, np.nan, effect), np.where(constant, np.nan, error)
