"""The reduced state of many t-digests as a value: made from a block of rows, added, packed.

Every function returns a new state and writes to none, so states can be shared without copying.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from attributary.workers.maths.centroids import (
    BoolArray,
    Centroids,
    FloatArray,
    IntArray,
    capacity,
    compress,
    compress_ranks,
    merge_centroids,
    rank_edges,
)

_HUGE = 2.0**900  # a block of values below this cannot overflow when it is summed
_BYTE = 256

_edges = lru_cache(maxsize=64)(rank_edges)


class DigestState(NamedTuple):
    """Centroids and, per column: finite, NaN and infinite values, and the finite extremes."""

    centroids: Centroids
    finite: IntArray
    nan: IntArray
    inf: IntArray
    low: FloatArray
    high: FloatArray

    def any(self) -> bool:
        """Return whether a row has ever entered."""
        return bool(self.finite.any() or self.nan.any() or self.inf.any())


def empty_state(columns: int, compression: int) -> DigestState:
    """Return the state of no rows."""
    nothing = np.zeros(columns, dtype=np.int64)
    return DigestState(
        Centroids.empty(columns, capacity(compression)),
        nothing,
        nothing,
        nothing,
        np.full(columns, np.inf),
        np.full(columns, -np.inf),
    )


def block_state(
    block: npt.NDArray[Any], weights: FloatArray | None, compression: int
) -> DigestState:
    """Return the state of rows (n, columns), n ≥ 1, with weights (n,) > 0 or 1 each."""
    columns, n = block.shape[1], block.shape[0]
    rows = np.empty((columns, n))
    np.add(block.T, 0.0, out=rows, dtype=np.float64)  # column by column; -0.0 becomes 0.0
    if weights is None or np.all(weights == 1):
        rows.sort(axis=1)
        mass = None
    else:
        # Stable, so that the order of equal values, and with it every sum, is the same anywhere.
        order = np.argsort(rows, axis=1, kind="stable")
        rows, mass = np.take_along_axis(rows, order, axis=1), weights[order]
    low, high = rows[:, 0].copy(), rows[:, -1].copy()
    finite = np.full(columns, n, dtype=np.int64)
    nan = np.zeros(columns, dtype=np.int64)
    gaps = ~(np.isfinite(low) & np.isfinite(high))
    if gaps.any():
        present = np.isfinite(rows[gaps])
        finite[gaps] = np.count_nonzero(present, axis=1)
        nan[gaps] = np.count_nonzero(np.isnan(rows[gaps]), axis=1)
        low[gaps] = np.where(present, rows[gaps], np.inf).min(axis=1)
        high[gaps] = np.where(present, rows[gaps], -np.inf).max(axis=1)
    # Plain columns, distinct numbers of weight 1, take the fast way.
    plain = np.zeros(columns, dtype=np.bool_)
    if mass is None and n > capacity(compression):
        plain = ~gaps & (np.maximum(-low, high) < _HUGE)
        plain &= ~(rows[:, 1:] == rows[:, :-1]).any(axis=1)
    return DigestState(
        _block_centroids(rows, mass, plain, compression), finite, nan, n - finite - nan, low, high
    )


def add_states(left: DigestState, right: DigestState, compression: int) -> DigestState:
    """Return the state of both; bit for bit the same in either order, and empty is neutral."""
    if not right.any():
        return left
    if not left.any():
        return right
    return DigestState(
        merge_centroids(left.centroids, right.centroids, compression),
        left.finite + right.finite,
        left.nan + right.nan,
        left.inf + right.inf,
        np.minimum(left.low, right.low),
        np.maximum(left.high, right.high),
    )


def join_columns(left: DigestState, right: DigestState) -> DigestState:
    """Return the state of the columns of both, ``left`` first; they are of one compression."""
    centroids = zip(left.centroids, right.centroids, strict=True)
    rest = zip(left[1:], right[1:], strict=True)
    joined = Centroids._make(np.concatenate(pair) for pair in centroids)
    return DigestState._make([joined, *(np.concatenate(pair) for pair in rest)])


def take_columns(state: DigestState, columns: slice) -> DigestState:
    """Return the state of some columns, in views."""
    centroids = Centroids._make(part[columns] for part in state.centroids)
    return DigestState._make([centroids, *(part[columns] for part in state[1:])])


def scaled_state(state: DigestState, factor: float, compression: int) -> DigestState:
    """Return the state with all weights times ``factor`` > 0; what underflows is forgotten."""
    weight = state.centroids.weight * factor
    gone = (weight < np.finfo(np.float64).tiny) & (state.centroids.weight > 0)
    centroids = state.centroids._replace(weight=weight)
    if not gone.any():
        return state._replace(centroids=centroids)
    weight[gone] = 0.0
    some = weight.any(axis=1)
    return state._replace(
        centroids=compress(centroids.mean, weight, centroids.atom, compression),
        finite=np.where(some, state.finite, 0),
        low=np.where(some, state.low, np.inf),
        high=np.where(some, state.high, -np.inf),
    )


def pack_state(state: DigestState) -> list[npt.NDArray[Any]]:
    """Return the arrays of the byte form; only centroids in use take room.

    A weight that is a whole number below 256 takes one byte, 0 says that it is in the next array.
    """
    used = state.centroids.weight > 0
    mean, weight = state.centroids.mean[used], state.centroids.weight[used]
    short = (weight < _BYTE) & (weight == np.floor(weight))
    return [
        np.stack([state.finite, state.nan, state.inf]),
        np.stack([state.low, state.high]),
        np.count_nonzero(used, axis=1).astype(np.uint32),
        mean,
        np.where(short, weight, 0.0).astype(np.uint8),
        weight[~short],
        np.packbits(state.centroids.atom[used]),
    ]


def unpack_state(arrays: list[npt.NDArray[Any]], compression: int) -> DigestState:
    """Return the state that ``pack_state`` wrote; ValueError where the arrays disagree."""
    kinds = ["<i8", "<f8", "<u4", "<f8", "|u1", "<f8", "|u1"]
    if [array.dtype for array in arrays] != [np.dtype(kind) for kind in kinds]:
        raise ValueError(f"expected arrays of {kinds}, got {[array.dtype for array in arrays]}")
    counts, limits, used, mean, short, long, atom = arrays
    columns, places = used.size, capacity(compression)
    size = int(used.sum())
    shapes: list[tuple[int, ...]] = [(3, columns), (2, columns), (columns,), (size,), (size,)]
    shapes += [(int(np.count_nonzero(short == 0)),), ((size + 7) // 8,)]
    if [array.shape for array in arrays] != shapes or used.max(initial=0) > places:
        raise ValueError(f"{columns} columns of {size} centroids do not have these array sizes")
    weight = short.astype(np.float64)
    weight[short == 0] = long
    taken = np.arange(places) < used[:, None]
    centroids = Centroids.empty(columns, places)
    centroids.mean[taken] = mean
    centroids.weight[taken] = weight
    centroids.atom[taken] = np.unpackbits(atom, count=size).astype(np.bool_)
    low, high = limits
    chain = np.column_stack([low, np.where(taken, centroids.mean, high[:, None]), high])
    some = used > 0
    if not (
        np.array_equal(counts[0] > 0, some)
        and counts.min(initial=0) >= 0
        and np.all(np.isfinite(weight) & (weight > 0))
        and np.isfinite(chain[some]).all()
        and np.all(chain[some, 1:] >= chain[some, :-1])
    ):
        raise ValueError("counts, limits, means and weights contradict each other")
    finite, nan, inf = counts
    return DigestState(centroids, finite, nan, inf, low, high)


def _block_centroids(
    rows: FloatArray, mass: FloatArray | None, plain: BoolArray, compression: int
) -> Centroids:
    """Return the centroids of sorted rows, the columns ``plain`` by their ranks alone."""
    columns, n = rows.shape
    if plain.all():
        return compress_ranks(rows, _edges(n, compression), compression)
    result = Centroids.empty(columns, capacity(compression))
    if plain.any():
        result.put(plain, compress_ranks(rows[plain], _edges(n, compression), compression))
    rest = rows[~plain]
    present = np.isfinite(rest)
    weights = present.astype(np.float64) if mass is None else np.where(present, mass[~plain], 0.0)
    result.put(~plain, compress(rest, weights, None, compression))
    return result
