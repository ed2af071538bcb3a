"""Unbiased estimates of value and position importance from chains of growing coalitions.

A chain joins the units one by one under a permutation: m + 1 values F(S_0), ..., F(S_m). Two
estimates use them differently. The marginals F(S_{k+1}) - F(S_k) cancel what both have in common,
and cost one value each. The coalition means

    VI_i = (1/m) Σ_s E[F | |S| = s, i ∈ S] - E[F | |S| = s, i ∉ S]

use every value for every unit, which wins where the values look like noise. Their mixture is
chosen from the spread of both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from attributary.workers.explainers.positions import Positions

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Chains:
    """Chains of one block: ``slot`` and ``rank`` (c, m) of every unit, ``values`` (c, m + 1).

    ``values`` are less their first, the value with everything masked.
    """

    slot: Integers
    rank: Integers
    values: Floats

    @property
    def member(self) -> npt.NDArray[np.bool_]:
        """Who has joined, (c, m + 1, m)."""
        sizes = np.arange(self.rank.shape[1] + 1)
        found: npt.NDArray[np.bool_] = self.rank[:, None, :] < sizes[:, None]
        return found

    def less(self, predicted: Floats) -> Chains:
        """Return the same chains with what was ``predicted`` (c, m + 1) taken off."""
        return Chains(self.slot, self.rank, self.values - predicted)

    def marginals(self) -> Floats:
        """Return (c, m): by how much each unit changed the value when it joined."""
        return np.take_along_axis(np.diff(self.values, axis=1), self.rank, axis=1)


def from_marginals(chains: Chains, positions: Positions) -> Floats:
    """Return value and position importance (2, m) from the marginals."""
    marginal = chains.marginals()
    weighted = (marginal * positions.centred[chains.slot]).mean(axis=0)
    return np.stack([marginal.mean(axis=0), _per_variance(weighted, positions)])


def from_means(chains: Chains, positions: Positions) -> Floats:
    """Return value and position importance (2, m) from the coalition means.

    A masked unit has no place: it counts with the mean place of the slots that show nothing.
    """
    values, rank = chains.values, chains.rank
    m = rank.shape[1]
    sizes = np.arange(m + 1)
    inside = values[:, 1:] / sizes[1:]  # sizes 1..m
    outside = values[:, :-1] / (m - sizes[:-1])  # sizes 0..m-1
    place = positions.centred[chains.slot]
    by_rank = np.take_along_axis(place, np.argsort(rank, axis=1), axis=1)
    absent = np.cumsum(by_rank[:, ::-1], axis=1)[:, ::-1] / (m - sizes[:-1])
    # A unit of rank r is inside for sizes above r, outside up to r.
    gained = np.take_along_axis(_from_here_on(inside), rank, axis=1)
    left = np.take_along_axis(np.cumsum(outside, axis=1), rank, axis=1)
    left_at = np.take_along_axis(np.cumsum(outside * absent, axis=1), rank, axis=1)
    weighted = (gained * place - left_at).mean(axis=0)
    return np.stack([(gained - left).mean(axis=0), _per_variance(weighted, positions)])


def _from_here_on(values: Floats) -> Floats:
    found: Floats = np.cumsum(values[:, ::-1], axis=1)[:, ::-1]
    return found


def _per_variance(weighted: Floats, positions: Positions) -> Floats:
    if positions.variance == 0.0:
        return np.zeros_like(weighted)
    found: Floats = weighted / positions.variance
    return found


def mixture(estimates: Floats, train: npt.NDArray[np.bool_]) -> Floats:
    """Return the weights (k,), summing to 1, that give blocks ``train`` the least spread.

    ``estimates`` (k, blocks, m) are unbiased for the same m values; the weights are shared by all
    units and shrunk towards the first estimate where few blocks tell.
    """
    centred = estimates[:, train] - estimates[:, train].mean(axis=1, keepdims=True)
    base = centred[0].ravel()
    gaps = (centred[0] - centred[1:]).reshape(len(estimates) - 1, -1)
    gram = gaps @ gaps.T
    freedom = max(int(train.sum()) - 1, 1)
    shrink = np.diag(np.diag(gram)) * 0.5 / freedom + np.eye(len(gram)) * 1e-12 * np.trace(gram)
    if not np.trace(gram) > 0.0:
        return np.array([1.0] + [0.0] * len(gram))
    other = np.linalg.lstsq(gram + shrink, gaps @ base, rcond=1e-10)[0]
    return np.concatenate([[1.0 - other.sum()], other])
