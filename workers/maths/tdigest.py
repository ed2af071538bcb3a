"""Mergeable quantiles of many columns at once (t-digests).

Source: T. Dunning and O. Ertl, "Computing extremely accurate quantiles using t-digests" (2019).
Differs from the paper: repeated values are kept as exact atoms, the quantile rule is linear
interpolation between order statistics (numpy's default, exact while a column has no more distinct
values than it has places), and non-finite values are counted instead of entering the digest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from attributary.workers.maths.centroid_curve import cdf_curve, quantile_curve
from attributary.workers.maths.centroids import Centroids, FloatArray, IntArray
from attributary.workers.maths.tdigest_state import (
    DigestState,
    add_states,
    block_state,
    empty_state,
    join_columns,
    pack_state,
    scaled_state,
    take_columns,
    unpack_state,
)
from attributary.workers.maths.wire import IncompatibleStateError, pack, unpack

_MAGIC = b"TDIG"
_VERSION = 1
_ROWS = 1024  # rows are reduced this many at a time, however they arrive
_SMALLEST, _LARGEST = 20, 10_000  # compression


class TDigests:
    """t-digests of ``columns`` columns; the state is bounded and a function of the rows alone.

    Rows are reduced 1,024 at a time, so how they were cut into updates changes nothing, not a bit;
    nor does a column depend on its neighbours. Reading never mutates. Values are float64: integers
    beyond 2**53 are rounded.

    >>> digests = TDigests(1)
    >>> digests.update([[0.0], [0.0], [0.0], [10.0]])
    >>> digests.quantile([0.25, 0.75])[:, 0].tolist()
    [0.0, 2.5]
    """

    def __init__(self, columns: int, compression: int = 200) -> None:
        if columns < 0:
            raise ValueError(f"columns is {columns}; give the number of columns, 0 or more")
        self.columns = columns
        self.compression = _checked_compression(compression)
        self._reduced = empty_state(columns, compression)
        # Rows that wait for their block of 1,024 to fill; allocated when first needed.
        self._waiting: FloatArray | None = None
        self._waiting_weights = np.ones(_ROWS)
        self._filled = 0
        self._settled: DigestState | None = None  # reduced and waiting rows together, if known

    def update(self, values: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> None:
        """Add rows: values (n, columns), numbers or booleans; weights (n,), finite and ≥ 0.

        NaN and ±inf are data: counted per column, left out of the quantiles. A row of weight 0
        is ignored.
        """
        rows = _checked_rows(values, self.columns)
        mass = None if weights is None else _checked_weights(weights, rows.shape[0])
        if mass is not None and not mass.all():
            rows, mass = rows[mass > 0], mass[mass > 0]
        at = 0
        while at < rows.shape[0]:
            self._settled = None
            stop = min(at + _ROWS - self._filled, rows.shape[0])
            part = None if mass is None else mass[at:stop]
            if stop - at == _ROWS:
                self._absorb(rows[at:stop], part)
            else:
                self._wait(rows[at:stop], part)
            at = stop

    def merge(self, other: TDigests) -> None:
        """Add the columns of another digest to these; the other is left as it was."""
        if (other.columns, other.compression) != (self.columns, self.compression):
            raise ValueError(
                f"cannot merge {other.columns} columns of compression {other.compression} into "
                f"{self.columns} columns of compression {self.compression}; both must be equal"
            )
        theirs = other._state()
        if theirs.any():
            self._reduced = add_states(self._state(), theirs, self.compression)
            self._settled = None
            self._filled = 0

    def copy(self) -> TDigests:
        """Return an independent digest of the same state."""
        twin = TDigests(self.columns, self.compression)
        twin._reduced, twin._settled = self._reduced, self._settled
        if self._filled and self._waiting is not None:
            twin._waiting = self._waiting.copy()
            twin._waiting_weights = self._waiting_weights.copy()
            twin._filled = self._filled
        return twin

    def beside(self, other: TDigests) -> TDigests:
        """Return the digests of these columns and then the other's; of one compression."""
        if other.compression != self.compression:
            raise ValueError(
                f"cannot put compression {other.compression} beside {self.compression}; "
                "both must be equal"
            )
        return TDigests.from_state(join_columns(self._state(), other._state()), self.compression)

    def part(self, columns: slice) -> TDigests:
        """Return the digests of a run of these columns; updates of either leave the other."""
        return TDigests.from_state(take_columns(self._state(), columns), self.compression)

    def scaled(self, factor: float) -> TDigests:
        """Return a digest with all weights times ``factor`` > 0, as decay needs; counts stay."""
        if not 0 < factor < np.inf:
            raise ValueError(f"factor is {factor}; choose a finite number above 0")
        state = scaled_state(self._state(), factor, self.compression)
        return TDigests.from_state(state, self.compression)

    @property
    def count(self) -> IntArray:
        """(columns,) finite values of positive weight."""
        counts: IntArray = self._state().finite.copy()
        return counts

    @property
    def weight(self) -> FloatArray:
        """(columns,) total weight of the finite values."""
        total: FloatArray = self._state().centroids.weight.sum(axis=1)
        return total

    @property
    def nan_count(self) -> IntArray:
        """(columns,) values that were NaN."""
        counts: IntArray = self._state().nan.copy()
        return counts

    @property
    def inf_count(self) -> IntArray:
        """(columns,) values that were infinite."""
        counts: IntArray = self._state().inf.copy()
        return counts

    @property
    def minimum(self) -> FloatArray:
        """(columns,) smallest finite value, NaN where there is none."""
        state = self._state()
        return np.where(state.finite > 0, state.low, np.nan)

    @property
    def maximum(self) -> FloatArray:
        """(columns,) largest finite value, NaN where there is none."""
        state = self._state()
        return np.where(state.finite > 0, state.high, np.nan)

    @property
    def centroids(self) -> Centroids:
        """The centroids, a copy: mean, weight, atom, each (columns, places)."""
        return self._state().centroids.take(np.arange(self.columns))

    @property
    def rank_error(self) -> FloatArray:
        """(columns,) resolution in rank: the largest share one blurred centroid holds; 0 = exact."""
        _, weight, atom = self._state().centroids
        blurred = np.where(atom, 0.0, weight).max(axis=1, initial=0.0)
        total = weight.sum(axis=1)
        share: FloatArray = blurred / np.where(total > 0, total, 1.0)
        return share

    def quantile(self, q: npt.ArrayLike) -> FloatArray:
        """Return (m, columns): the quantiles at q (m,) in [0, 1]; NaN for a column without values.

        Monotone in q. The rule is np.quantile's "linear"; with weights, rank distances are counted
        in the column's mean weight, so that multiplying all weights by a number changes nothing.
        """
        levels = np.atleast_1d(np.asarray(q, dtype=np.float64))
        if levels.ndim != 1 or not np.all((levels >= 0) & (levels <= 1)):
            raise ValueError(f"q is {q!r}; expected numbers from 0 to 1")
        state = self._state()
        some = np.flatnonzero(state.finite)
        result = np.full((levels.size, self.columns), np.nan)
        if some.size:
            result[:, some] = quantile_curve(
                state.centroids.take(some),
                state.finite[some],
                state.low[some],
                state.high[some],
                levels,
            )
        return result

    def cdf(self, x: npt.ArrayLike) -> FloatArray:
        """Return (m, columns): the share of the weight at or below x, (m,) or (m, columns).

        The empirical distribution function where a column's centroids are atoms, linear between
        blurred ones. NaN for a column without values and where x is NaN.
        """
        points = np.atleast_1d(np.asarray(x, dtype=np.float64))
        if points.ndim == 1:
            points = np.broadcast_to(points[:, None], (points.size, self.columns))
        if points.ndim != 2 or points.shape[1] != self.columns:
            raise ValueError(f"x has shape {points.shape}; expected (m,) or (m, {self.columns})")
        state = self._state()
        some = np.flatnonzero(state.finite)
        result = np.full(points.shape, np.nan)
        if some.size:
            result[:, some] = cdf_curve(
                state.centroids.take(some),
                state.low[some],
                state.high[some],
                points[:, some],
            )
        return result

    def to_bytes(self) -> bytes:
        """Return the state, waiting rows reduced; only centroids in use take room."""
        head = np.array([self.compression], dtype=np.uint32)
        return pack(_MAGIC, _VERSION, [head, *pack_state(self._state())])

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> TDigests:
        """Return the digest that ``to_bytes`` wrote.

        Raises IncompatibleStateError for bytes that are foreign, newer, damaged or inconsistent.
        """
        try:
            head, *arrays = unpack(data, _MAGIC, _VERSION)
            # Checked first: the places to allocate depend on it.
            compression = _checked_compression(int(head.item()))
            return cls.from_state(unpack_state(arrays, compression), compression)
        except IncompatibleStateError:
            raise
        except ValueError as error:
            raise IncompatibleStateError(f"these are not t-digests: {error}") from error

    @classmethod
    def from_state(cls, state: DigestState, compression: int) -> TDigests:
        """Return the digest of a reduced state, whose arrays it shares."""
        digest = cls(0, compression)
        digest.columns = state.finite.size
        digest._reduced = state
        return digest

    def _state(self) -> DigestState:
        """Return the state with the waiting rows reduced; nothing observable changes."""
        if not self._filled or self._waiting is None:
            return self._reduced
        if self._settled is None:
            waiting, weights = self._waiting[: self._filled], self._waiting_weights[: self._filled]
            self._settled = self._joined(waiting, weights)
        return self._settled

    def _joined(self, block: npt.NDArray[Any], weights: FloatArray | None) -> DigestState:
        return add_states(
            self._reduced, block_state(block, weights, self.compression), self.compression
        )

    def _absorb(self, block: npt.NDArray[Any], weights: FloatArray | None) -> None:
        self._reduced = self._joined(block, weights)

    def _wait(self, block: npt.NDArray[Any], weights: FloatArray | None) -> None:
        if self._waiting is None:
            self._waiting = np.empty((_ROWS, self.columns))
        stop = self._filled + block.shape[0]
        self._waiting[self._filled : stop] = block
        self._waiting_weights[self._filled : stop] = 1.0 if weights is None else weights
        self._filled = stop
        if stop == _ROWS:
            self._absorb(self._waiting, self._waiting_weights)
            self._filled = 0


def _checked_compression(compression: int) -> int:
    if not _SMALLEST <= compression <= _LARGEST:
        raise ValueError(f"compression is {compression}; choose {_SMALLEST} to {_LARGEST}")
    return compression


def _checked_rows(values: npt.ArrayLike, columns: int) -> npt.NDArray[Any]:
    rows = np.asarray(values)
    if rows.ndim != 2 or rows.shape[1] != columns:
        raise ValueError(f"values have shape {rows.shape}; expected (n, {columns})")
    if rows.dtype.kind not in "biuf":
        raise TypeError(f"values have dtype {rows.dtype}; expected real numbers or booleans")
    return rows


def _checked_weights(weights: npt.ArrayLike, n: int) -> FloatArray:
    mass = np.asarray(weights, dtype=np.float64)
    if mass.shape != (n,):
        raise ValueError(f"weights have shape {mass.shape}; expected ({n},), one per row")
    if not np.all(np.isfinite(mass) & (mass >= 0)):
        raise ValueError("weights must be finite and not negative")
    return mass
