"""From sums to scores: CIR, its interval, effective rows, and the ranking.

CIR = (1 + N/D)/2 is the aligned share of a weighted mass, hence a Wilson interval whose size is an
effective number of rows. The plain delta method covers 10 to 52 % on a rare 0/1 column, where the
rarer sign is hardly seen. Differs from the published rule, which asks for that sign alone: on heavy
tails the largest rows are hardly seen either, and it covers 85 to 92 % on lognormal and t3 columns.
So the whole mass must be carried by enough rows as well; the rule here covers 93 to 99 % on
Gaussian, lognormal, t3, null, common and rare 0/1 columns at 200 and at 2,000 rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from attributary.workers.maths.sums import CirSums

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

#: Normal quantile of a 95 % interval.
Z = 1.96
#: Effective rows that must carry the rarer sign before the delta method is believed ...
ENOUGH_RARE = 30.0
#: ... and the whole mass.
ENOUGH = 60.0
#: Shares of effective to actual rows at which the mass is fully heavy-tailed, and not at all. A
#: product of two Gaussians has 0.33 (x = y) to 0.41 (independent).
_HEAVY, _LIGHT = 0.2, 0.3
#: Shares of the rarer sign below this are round-off of float32 cells.
_ROUND_OFF = 1e-9
#: A variance below this share of Σw²u² is what round-off left of none.
_CANCELLED = 1e-12


class Estimate(NamedTuple):
    """A score with its error; every array of one shape, ``interval`` with a last axis of two."""

    score: Floats
    stderr: Floats
    effective_rows: Floats
    interval: Floats


def estimate(N: Floats, D: Floats, pp: Floats, pu: Floats, uu: Floats, rows: Floats) -> Estimate:
    """Return CIR and its 95 % interval from sums over rows of p and u >= |p|.

    N = Σwp, D = Σwu, pp = Σw²p², pu = Σw²pu, uu = Σw²u², ``rows`` the effective rows with u > 0.
    For one feature u = |p|; for a block both are sums over its members. With r = N/D,
    v = Σw²(p - ru)²/(4D²) and the Kish size K = D²/uu, the effective size is

    - K where v = 0, up to round-off;
    - else, with d = C(1 - C)/v, the smaller of d and K, unless 30 effective rows carry the rarer
      sign and 60 the whole mass;
    - else d, or √(d K) if d > K and the tails are heavy, K <= 0.2 rows; in between up to
      K = 0.3 rows, so that scores do not jump in time.

    The interval is Wilson's with z² (1 + (z² + 1)/(2K)), the first term of Student's correction
    for K rows. The standard error is half of it over z, so that a score of 1 from a single row
    does not claim to be certain.
    """
    # Sums of values beyond the range of what they are kept in say nothing: a sentinel such as 1.8e308 in a
    # column of small numbers.
    with np.errstate(over="ignore", invalid="ignore"):
        known = (D > 0.0) & np.isfinite(N + D + pp + pu + uu)
    mass = np.where(known, D, 1.0)
    ratio = np.clip(np.where(known, N, 0.0) / mass, -1.0, 1.0)
    score = 0.5 + ratio / 2.0
    # In units of D, so that neither 1e-300 nor 1e300 leaves the range when squared.
    pp, pu, uu = (np.where(known, part, 0.0) / mass / mass for part in (pp, pu, uu))
    variance = np.maximum(pp - 2.0 * ratio * pu + ratio * ratio * uu, 0.0) / 4.0
    kish = np.divide(1.0, uu, out=np.zeros_like(uu), where=uu > 0.0)
    binomial = score * (1.0 - score)
    # A block of all levels of a category may have p = 0 in every row, up to round-off.
    certain = (variance <= _CANCELLED * uu) | (binomial <= _ROUND_OFF)
    delta = np.where(certain, kish, binomial / np.where(certain, 1.0, variance))
    rare = (1.0 - np.abs(ratio)) / 2.0
    rare_square = np.maximum(uu - 2.0 * np.sign(ratio) * pu + pp, 0.0) / 4.0
    carried = (rare * rare >= ENOUGH_RARE * rare_square) & (kish >= ENOUGH)
    least = np.minimum(kish, delta)
    share = kish / np.where(rows > 0.0, rows, 1.0)
    heavy = np.clip((_LIGHT - share) / (_LIGHT - _HEAVY), 0.0, 1.0) / 2.0
    tempered = delta * np.divide(least, delta, out=np.ones_like(delta), where=delta > 0.0) ** heavy
    effective = np.where(carried, tempered, least)
    interval = wilson(score, effective, kish)
    return Estimate(score, (interval[..., 1] - interval[..., 0]) / (2.0 * Z), effective, interval)


def wilson(share: Floats, rows: Floats, kish: Floats) -> Floats:
    """Return the 95 % Wilson interval (..., 2) of a share, widened for few ``kish`` rows.

    [0, 1] where there are no rows.
    """
    few = np.maximum(kish, np.finfo(np.float64).tiny)
    z2 = Z * Z * np.minimum(1.0 + (Z * Z + 1.0) / (2.0 * few), 1e9)
    spread = rows + z2
    middle = (rows * share + z2 / 2.0) / spread
    half = np.sqrt(z2 * (rows * share * (1.0 - share) + z2 / 4.0)) / spread
    interval: Floats = np.clip(np.stack([middle - half, middle + half], axis=-1), 0.0, 1.0)
    return interval


@dataclass(frozen=True)
class CirScores:
    """Scores of every output (c) and feature (d), and of blocks of features.

    ``numerator`` and ``denominator`` are in the columns' own units and may overflow to infinity
    there; scores never do.
    """

    score: Floats
    """CIR in [0, 1], (c, d): 1 moves with the output, 0 against it, ½ neither."""
    stderr: Floats
    effective_rows: Floats
    interval: Floats
    """95 %, (c, d, 2)"""
    numerator: Floats
    denominator: Floats
    strength: Floats
    """|2 CIR - 1|, (c, d)"""
    strength_low: Floats
    """Lower end of the interval of the strength, what features are ranked by, (c, d)."""
    direction: npt.NDArray[np.int8]
    """Sign of the numerator, (c, d)"""
    rank: Integers
    """1 is the surest mover of that output, (c, d)"""
    effect: Floats
    """Mean output in the upper minus the lower quartile of x, (c, d); NaN if x is constant."""
    effect_stderr: Floats
    blocks: dict[str, Floats] = field(default_factory=dict)
    """CIR of a block of features, (c,) for each name."""
    block_stderr: dict[str, Floats] = field(default_factory=dict)
    block_effective_rows: dict[str, Floats] = field(default_factory=dict)
    block_interval: dict[str, Floats] = field(default_factory=dict)
    """95 %, (c, 2) for each name."""


def scores_from_sums(
    sums: CirSums, effect: tuple[Floats, Floats], blocks: dict[str, Estimate]
) -> CirScores:
    """Return the scores of ``sums``, the same whether a batch or a stream filled them."""
    one = estimate(sums.N, sums.D, sums.square, sums.signed, sums.square, sums.rows)
    low = strength_bound(one.interval)
    numerator, denominator = sums.in_column_units()
    return CirScores(
        score=one.score,
        stderr=one.stderr,
        effective_rows=one.effective_rows,
        interval=one.interval,
        numerator=numerator,
        denominator=denominator,
        strength=np.abs(2.0 * one.score - 1.0),
        strength_low=np.maximum(low, 0.0),
        direction=np.sign(np.nan_to_num(sums.N, nan=0.0)).astype(np.int8),
        rank=ranks(low),
        effect=effect[0],
        effect_stderr=effect[1],
        blocks={name: block.score for name, block in blocks.items()},
        block_stderr={name: block.stderr for name, block in blocks.items()},
        block_effective_rows={name: block.effective_rows for name, block in blocks.items()},
        block_interval={name: block.interval for name, block in blocks.items()},
    )


def strength_bound(interval: Floats) -> Floats:
    """Return the lower end of the interval of |2 CIR - 1|, negative where ½ is inside.

    How far inside still orders features: one that was seen once comes after one that is
    known to be near ½.
    """
    bound: Floats = np.maximum(2.0 * interval[..., 0] - 1.0, 1.0 - 2.0 * interval[..., 1])
    return bound


def ranks(strength_low: Floats) -> Integers:
    """Return ranks from 1 per output (c, d), strongest first, ties in column order.

    Raw CIR would put a strongly anti-aligned feature last, the point estimate of the strength a
    category seen once first.
    """
    order = np.argsort(-strength_low, axis=-1, kind="stable")
    rank = np.empty(order.shape, dtype=np.int64)
    np.put_along_axis(rank, order, np.arange(1, order.shape[-1] + 1), axis=-1)
    return rank
