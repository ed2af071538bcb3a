"""A mergeable sample of rows, chosen by a stable hash of the row's id.

Bottom-k: of all distinct ids the ``size`` smallest hashes stay (E. Cohen and H. Kaplan,
"Summarizing data using bottom-k sketches", 2007). So the sample is uniform over ids, does not
depend on the order of the rows, on how they were split or on rows seen twice, and the same hash
also decides which fixed fraction of the rows a light pass reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from attributary.workers.maths.wire import IncompatibleStateError, pack, unpack

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
HashArray = npt.NDArray[np.uint64]
BoolArray = npt.NDArray[np.bool_]

_MAGIC = b"ROWS"
_VERSION = 1
_SPAN = 2**64


def hash_ids(ids: Sequence[bytes | str]) -> HashArray:
    """Return (n,) the 64-bit BLAKE2b of each id, text as UTF-8: the same everywhere, for good."""
    digests = [
        blake2b(i.encode() if isinstance(i, str) else i, digest_size=8).digest() for i in ids
    ]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def hash_integers(ids: npt.ArrayLike) -> HashArray:
    """Return (n,) a 64-bit mix of integer ids (SplitMix64, a bijection), vectorised.

    An integer and its text have different hashes: use one function for all rows of a stream.
    """
    numbers = np.asarray(ids)
    if numbers.dtype.kind not in "iu":
        raise TypeError(f"ids have dtype {numbers.dtype}; expected integers")
    mixed: HashArray = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def in_fraction(hashes: HashArray, fraction: float) -> BoolArray:
    """Return (n,) which rows belong to the fixed ``fraction`` (0 to 1] of the ids.

    Nested: the rows of a smaller fraction are among those of a larger one.
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"the fraction is {fraction}; choose a number above 0, at most 1")
    last = np.uint64(min(int(fraction * _SPAN), _SPAN) - 1)
    chosen: BoolArray = hashes <= last
    return chosen


class SampledRows(NamedTuple):
    """Rows by ascending (stratum, hash): hashes, event_time (n,), X (n, columns), Y (n, outputs)."""

    hashes: HashArray
    X: FloatArray
    Y: FloatArray
    event_time: IntArray

    def take(self, chosen: npt.NDArray[Any]) -> SampledRows:
        """Return a copy that holds the rows chosen by numbers or by a mask."""
        return SampledRows(
            self.hashes[chosen], self.X[chosen], self.Y[chosen], self.event_time[chosen]
        )


class RowSample:
    """The ``size`` rows of smallest hash; ``size`` 0 keeps none.

    With ``edges`` (ascending, finite), rows are split into ``len(edges) + 1`` strata by output
    ``stratum_output``, stratum k holding edges[k-1] <= y < edges[k] and the last one NaN too, and
    every stratum keeps its own share of ``size``, so that rare outputs are represented. ``seen``
    counts the rows offered, per stratum, so that shares can be undone.

    Two rows of one hash are one row; should they differ, the one earlier in time, then smaller in
    its numbers, stays, so that results do not depend on their order.
    """

    def __init__(
        self,
        size: int,
        columns: int,
        outputs: int,
        *,
        stratum_output: int = 0,
        edges: npt.ArrayLike = (),
    ) -> None:
        cuts = np.asarray(edges, dtype=np.float64).copy()
        if min(size, columns, outputs) < 0:
            raise ValueError(f"size {size}, columns {columns}, outputs {outputs} must be >= 0")
        if cuts.ndim != 1 or not np.isfinite(cuts).all() or np.any(np.diff(cuts) <= 0):
            raise ValueError(f"edges are {edges!r}; expected ascending finite numbers")
        if cuts.size and not 0 <= stratum_output < outputs:
            raise ValueError(f"stratum_output is {stratum_output} of {outputs} outputs")
        self.size, self.columns, self.outputs = size, columns, outputs
        self.stratum_output = stratum_output
        self.edges = cuts
        strata = cuts.size + 1
        #: (strata,) rows each stratum may keep; they add up to ``size``.
        self.quotas = np.full(strata, size // strata, dtype=np.int64)
        self.quotas[: size % strata] += 1
        self._seen = np.zeros(strata, dtype=np.int64)
        self._rows = SampledRows(
            np.zeros(0, dtype=np.uint64),
            np.zeros((0, columns)),
            np.zeros((0, outputs)),
            np.zeros(0, dtype=np.int64),
        )

    @property
    def seen(self) -> IntArray:
        """(strata,) rows offered so far, repeats included."""
        seen: IntArray = self._seen.copy()
        return seen

    def update(
        self,
        hashes: HashArray,
        X: npt.ArrayLike,
        Y: npt.ArrayLike,
        event_time: npt.ArrayLike,
    ) -> None:
        """Offer rows: hashes (n,) uint64 of their ids, X (n, columns), Y (n, outputs).

        event_time (n,) in whole units, milliseconds in this project's messages.
        """
        rows = SampledRows(
            np.asarray(hashes),
            np.asarray(X, dtype=np.float64),
            np.asarray(Y, dtype=np.float64),
            np.asarray(event_time),
        )
        n = rows.hashes.shape[0] if rows.hashes.ndim else 0
        expected = ((n,), (n, self.columns), (n, self.outputs), (n,))
        if (found := tuple(part.shape for part in rows)) != expected:
            raise ValueError(f"hashes, X, Y, event_time have shapes {found}; expected {expected}")
        if rows.hashes.dtype != np.uint64 or rows.event_time.dtype.kind not in "iu":
            raise TypeError(
                f"hashes are {rows.hashes.dtype} and event_time {rows.event_time.dtype}; "
                "expected uint64 (see hash_ids) and integers"
            )
        rows = rows._replace(event_time=rows.event_time.astype(np.int64))
        stratum = self._strata(rows)
        self._seen += np.bincount(stratum, minlength=self._seen.size)
        # Most rows of a long stream are too late: look at them no further.
        hopeful = rows.hashes <= self._limits()[stratum]
        self._keep(rows.take(hopeful))

    def merge(self, other: RowSample) -> None:
        """Add the rows of another sample of the same shape."""
        if self._shape() != other._shape() or not np.array_equal(self.edges, other.edges):
            raise ValueError(
                f"cannot merge samples of {other._shape()} and {self._shape()} (size, columns, "
                "outputs, stratum_output) or of other edges; all must be equal"
            )
        self._seen += other._seen
        self._keep(other._rows)

    def rows(self) -> SampledRows:
        """Return the sampled rows, a copy."""
        return self._rows.take(np.arange(self._rows.hashes.size))

    def copy(self) -> RowSample:
        """Return an independent sample of the same state."""
        twin = RowSample(
            self.size,
            self.columns,
            self.outputs,
            stratum_output=self.stratum_output,
            edges=self.edges,
        )
        twin._seen = self._seen.copy()
        twin._rows = self.rows()
        return twin

    def to_bytes(self) -> bytes:
        """Return the sample as bytes, values in float64."""
        shape = np.array(self._shape(), dtype=np.int64)
        return pack(_MAGIC, _VERSION, [shape, self.edges, self._seen, *self._rows])

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> RowSample:
        """Return the sample that ``to_bytes`` wrote.

        Raises IncompatibleStateError for bytes that are foreign, newer, damaged or inconsistent.
        """
        try:
            shape, edges, seen, *parts = unpack(data, _MAGIC, _VERSION)
            size, columns, outputs, stratum_output = (int(number) for number in shape)
            sample = cls(size, columns, outputs, stratum_output=stratum_output, edges=edges)
            rows = SampledRows(*parts)
            n = rows.hashes.size
            kinds = [(part.dtype.str[1:], part.shape) for part in (seen, *rows)]
            expected = [("i8", seen.shape), ("u8", (n,)), ("f8", (n, columns))]
            expected += [("f8", (n, outputs)), ("i8", (n,))]
            if kinds != expected or seen.shape != sample._seen.shape or seen.min() < 0:
                raise ValueError(f"found {kinds}, expected {expected}")
            sample._seen = seen
            sample._keep(rows)
            if sample._rows.hashes.size != n:
                raise ValueError(f"{n} rows are more than the sample may keep")
        except IncompatibleStateError:
            raise
        except (ValueError, TypeError, OverflowError, MemoryError) as error:
            raise IncompatibleStateError(f"these are not sampled rows: {error}") from error
        return sample

    def _shape(self) -> tuple[int, int, int, int]:
        return self.size, self.columns, self.outputs, self.stratum_output

    def _strata(self, rows: SampledRows) -> IntArray:
        if not self.edges.size:
            return np.zeros(rows.hashes.size, dtype=np.int64)
        output = rows.Y[:, self.stratum_output]
        return np.searchsorted(self.edges, output, side="right").astype(np.int64)

    def _limits(self) -> HashArray:
        """Return (strata,) the largest hash that could still enter."""
        limits = np.full(self.quotas.size, np.iinfo(np.uint64).max, dtype=np.uint64)
        stratum = self._strata(self._rows)
        held = np.bincount(stratum, minlength=self.quotas.size)
        full = (held == self.quotas) & (held > 0)
        limits[full] = self._rows.hashes[np.cumsum(held)[full] - 1]
        return limits

    def _keep(self, more: SampledRows) -> None:
        """Join rows to those held, drop repeats, and cut every stratum to its quota."""
        if not self.size or not more.hashes.size:
            return
        rows = SampledRows(*(np.concatenate(pair) for pair in zip(self._rows, more, strict=True)))
        stratum = self._strata(rows)
        order = self._order(stratum, rows)
        stratum, hashes = stratum[order], rows.hashes[order]
        fresh = np.r_[True, (stratum[1:] != stratum[:-1]) | (hashes[1:] != hashes[:-1])]
        order, stratum = order[fresh], stratum[fresh]
        held = np.bincount(stratum, minlength=self.quotas.size)
        rank = np.arange(order.size) - (np.cumsum(held) - held)[stratum]
        order = order[rank < self.quotas[stratum]]
        self._rows = rows.take(order)

    @staticmethod
    def _order(stratum: IntArray, rows: SampledRows) -> npt.NDArray[np.intp]:
        """Return the order by stratum and hash; repeats by time, then by the bits of the numbers."""
        order = np.lexsort((rows.event_time, rows.hashes, stratum))
        hashes = rows.hashes[order]
        if np.any(hashes[1:] == hashes[:-1]):
            bits = np.ascontiguousarray(np.column_stack([rows.X, rows.Y])).view(np.uint64)
            order = np.lexsort((*bits.T[::-1], rows.event_time, rows.hashes, stratum))
        return order
