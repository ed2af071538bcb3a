"""Scores of groups of features (blocks), and a proposal of groups from correlations.

A block's numerator and denominator are the sums of its members' (BlockCIR, Algorithm 1):
N_G = Σ N_j, D_G = Σ D_j. Differs from the paper: the middle form of its equation 3 and any form
with |Σ p| over the members are wrong for more than one member. Members add in their own units, so
rescaling one changes the block: ``"iqr"`` divides each by its interquartile range first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from scipy.stats import rankdata

from attributary.workers.maths.scores import Estimate, estimate
from attributary.workers.maths.sums import CirSums

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Groups = Mapping[str, Sequence[int] | Integers]
Scale = Literal["none", "iqr"]
SCALES: tuple[Scale, ...] = ("none", "iqr")


def checked_groups(groups: Groups | None, columns: int) -> dict[str, Integers]:
    """Return ``groups`` as index arrays; ValueError for an empty group or a wrong column."""
    checked: dict[str, Integers] = {}
    for name, members in (groups or {}).items():
        index = np.asarray(members, dtype=np.int64)
        if index.ndim != 1 or index.size == 0:
            raise ValueError(f"group {name!r} must be a non-empty list of column numbers")
        if index.min() < 0 or index.max() >= columns or np.unique(index).size != index.size:
            raise ValueError(
                f"group {name!r} holds {index.tolist()}; expected distinct columns "
                f"from 0 to {columns - 1}"
            )
        checked[name] = index
    return checked


def checked_scale(scale: str | None) -> Scale:
    """Return the scale of groups, "iqr" unless "none" is asked for."""
    if scale is None or scale == "iqr":
        return "iqr"
    if scale == "none":
        return "none"
    raise ValueError(f'scale must be None, "none" or "iqr", got {scale!r}')


def member_factors(members: Integers, unit: Floats, iqr: Floats, scale: Scale) -> Floats:
    """Return what multiplies each member's standardised values, at most 1 (the ratio decides).

    ``unit`` and ``iqr`` (d,) in the columns' own units; an IQR of zero divides by 1.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        factor = unit[members].copy()
        if scale == "iqr":
            range_ = iqr[members]
            factor /= np.where(np.isfinite(range_) & (range_ > 0.0), range_, 1.0)
        factor = np.clip(factor, 0.0, 2.0**1000)
        relative: Floats = factor / factor.max()
    return relative


def block_estimates(
    sums: CirSums,
    groups: dict[str, Integers],
    iqr: Floats,
    scale: Scale,
    overlap: Mapping[str, Floats] | None = None,
) -> dict[str, Estimate]:
    """Return the block scores that ``sums`` allow, with intervals that are never too narrow.

    The sums of single features do not tell how far the members of a block coincide in one row.
    With A± the part of a row's mass that is aligned or not, Σw²(A±_G)² <= (Σ_j ‖A±_j‖)²
    (Minkowski) and Σw²A+A- >= 0 bound the variance. ``overlap`` {name: (c, 3)} gives the measured
    ratios Σw²(A±_G)² / Σ_j Σw²(A±_j)² and the cosine of A+ and A- instead.
    """
    found: dict[str, Estimate] = {}
    for name, members in groups.items():
        factor = member_factors(members, sums.x_unit, iqr, scale)
        N, D = (part[:, members] @ factor for part in (sums.N, sums.D))
        known = None if overlap is None else overlap.get(name)
        parts = []
        for at, sign in enumerate((1.0, -1.0)):
            each = (sums.square[:, members] + sign * sums.signed[:, members]) / 2.0
            each = np.maximum(each, 0.0) * factor**2
            bound = np.sqrt(each).sum(axis=1) ** 2
            parts.append(bound if known is None else each.sum(axis=1) * known[:, at])
        aligned, against = parts
        both = np.zeros_like(N)
        if known is not None:
            both = known[:, 2] * np.sqrt(aligned) * np.sqrt(against)
        total = aligned + against
        found[name] = estimate(
            N,
            D,
            total - 2.0 * both,
            aligned - against,
            total + 2.0 * both,
            sums.rows[:, members].max(axis=1),
        )
    return found


def correlation(X: Floats) -> Floats:
    """Return the Spearman correlation (d, d) of the columns of ``X`` (n, d), 0 for a constant.

    Missing values take the column's middle rank, so that a rarely missing column still clusters.
    """
    known = np.isfinite(X)
    rank = np.zeros(X.shape)
    for column, present in enumerate(known.T):
        ranks = rankdata(X[present, column])
        rank[present, column] = ranks - (ranks.size + 1.0) / 2.0
    size = np.sqrt((rank * rank).sum(axis=0))
    unit = rank / np.where(size > 0.0, size, 1.0)
    matrix: Floats = np.clip(unit.T @ unit, -1.0, 1.0)
    return matrix


def propose_groups(matrix: Floats, *, threshold: float = 0.7) -> list[list[int]]:
    """Return groups of columns whose correlation is at least ``threshold`` on average.

    ``matrix`` (d, d) is a correlation matrix; average linkage on 1 - |correlation|, cut at
    1 - threshold. Every column is in exactly one group, groups ordered by their first column;
    anti-correlated columns join as well, because their scores mirror each other.
    """
    size = matrix.shape[0]
    if matrix.shape != (size, size):
        raise ValueError(f"a correlation matrix is square, got {matrix.shape}")
    if not 0.0 < threshold <= 1.0:
        raise ValueError(f"threshold must lie in (0, 1], got {threshold}")
    if size < 2:
        return [[column] for column in range(size)]
    distance = 1.0 - np.abs(np.nan_to_num(matrix, nan=0.0))
    np.fill_diagonal(distance, 0.0)
    tree = linkage(squareform(np.maximum(distance, 0.0), checks=False), method="average")
    labels = fcluster(tree, t=1.0 - threshold + 1e-12, criterion="distance")
    by_label: dict[int, list[int]] = {}
    for column, label in enumerate(labels.tolist()):
        by_label.setdefault(label, []).append(column)
    return sorted(by_label.values())
