"""Everything that is kept of one pane of one model: the sketch that travels and is merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from attributary.workers.maths.block_overlap import BlockOverlap
from attributary.workers.maths.comovement import CoMovement
from attributary.workers.maths.grid import Grid
from attributary.workers.maths.groups import Groups
from attributary.workers.maths.sample import RowSample
from attributary.workers.maths.tdigest import TDigests
from attributary.workers.maths.wire import IncompatibleStateError, pack, unpack

Floats = npt.NDArray[np.float64]

_MAGIC = b"PANE"
_VERSION = 1
#: Rows are reduced this many at a time, however they arrive, so that the sums of a row sequence
#: do not depend, not by a bit, on how it was polled.
REDUCED_ROWS = 1024
_FIRST_ROWS = 16


class PaneState(NamedTuple):
    """The accumulators of a pane with every row reduced. To read, not to change."""

    digests: TDigests
    """of the features, then the outputs: one pass for both costs little more than for one"""
    comovement: CoMovement
    overlap: BlockOverlap
    sample: RowSample | None

    @property
    def x_digests(self) -> TDigests:
        """Digests of the features."""
        return self.digests.part(slice(0, self.comovement.columns))

    @property
    def y_digests(self) -> TDigests:
        """Digests of the outputs."""
        return self.digests.part(slice(self.comovement.columns, self.digests.columns))


class PaneSketch:
    """Accumulators of one pane on one grid epoch; a function of its row sequence alone.

    ``compression`` of the t-digests; ``sample_size`` rows are kept by the bottom-k rule on their
    hashes, none for 0. ``blocks`` {name: columns} are the groups whose scores need a sharp error
    (see ``block_overlap``); other groups can still be scored, with wider intervals.

    >>> import numpy as np
    >>> grid = Grid.from_rows(np.arange(9.0)[:, None], np.arange(9.0)[:, None], cells=4)
    >>> pane = PaneSketch(grid)
    >>> pane.update(np.array([[1.0], [np.nan]]), np.array([[2.0], [3.0]]))
    >>> pane.rows, pane.x_digests.nan_count.tolist()
    (2, [1])
    """

    def __init__(
        self,
        grid: Grid,
        *,
        compression: int = 200,
        sample_size: int = 0,
        blocks: Groups | None = None,
    ) -> None:
        self.grid = grid
        self.compression = compression
        self.sample_size = sample_size
        #: Rows added; those of weight 0 count here and change nothing else.
        self.rows = 0
        self._weight = 0.0
        self._blocks = blocks
        # Made when rows are reduced: it is as large for one row as for a million, and rows of scattered
        # event times make a pane each.
        self._reduced: PaneState | None = None
        self._settled: PaneState | None = None
        self._filled = 0
        self._waiting = _Waiting.empty(0, grid.columns + grid.outputs)

    def update(
        self,
        X: npt.ArrayLike,
        Y: npt.ArrayLike,
        weights: npt.ArrayLike | None = None,
        hashes: npt.NDArray[np.uint64] | None = None,
        event_times: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Add rows ``X`` (n, d), ``Y`` (n, c), ``weights`` (n,) finite and >= 0, default 1.

        ``hashes`` (n,) of the row ids and ``event_times`` (n,) in milliseconds are needed where
        rows are sampled. NaN and infinite values are data: counted, and left out of what they
        would spoil. Raises ValueError for shapes that do not fit.
        """
        x, y = np.asarray(X, dtype=np.float64), np.asarray(Y, dtype=np.float64)
        n = x.shape[0] if x.ndim else 0
        if x.shape != (n, self.grid.columns) or y.shape != (n, self.grid.outputs):
            raise ValueError(
                f"expected X (n, {self.grid.columns}) and Y (n, {self.grid.outputs}), "
                f"got {x.shape} and {y.shape}"
            )
        w = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
        if w.shape != (n,) or not (np.isfinite(w).all() and (w >= 0.0).all()):
            raise ValueError(f"weights must be {n} finite numbers >= 0, one for each row")
        marks, times = self._labels(n, hashes, event_times)
        self.rows += n
        if not w.all():
            kept = w > 0.0
            x, y, w, marks, times = x[kept], y[kept], w[kept], marks[kept], times[kept]
        self._enqueue(x, y, w, marks, times)

    def _labels(
        self,
        n: int,
        hashes: npt.NDArray[np.uint64] | None,
        event_times: npt.NDArray[np.int64] | None,
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        if not self.sample_size:
            return np.zeros(n, dtype=np.uint64), np.zeros(n, dtype=np.int64)
        if hashes is None or event_times is None:
            raise ValueError(
                "a pane that samples rows needs the hashes and event_times of its rows"
            )
        marks, times = np.asarray(hashes, np.uint64), np.asarray(event_times, np.int64)
        if marks.shape != (n,) or times.shape != (n,):
            raise ValueError(f"expected {n} hashes and event_times: {marks.shape}, {times.shape}")
        return marks, times

    def _enqueue(self, *rows: npt.NDArray[Any]) -> None:
        at, n = 0, rows[0].shape[0]
        while at < n:
            self._settled = None
            stop = min(at + REDUCED_ROWS - self._filled, n)
            filled = self._filled + stop - at
            self._make_room(filled)
            self._waiting.put(self._filled, [part[at:stop] for part in rows])
            at, self._filled = stop, filled
            if filled == REDUCED_ROWS:
                self._filled = 0
                self._absorb(self._waiting)

    def _make_room(self, rows: int) -> None:
        room = self._waiting.weights.size
        if rows > room:
            size = min(REDUCED_ROWS, max(rows, 4 * room, _FIRST_ROWS))
            larger = _Waiting.empty(size, self.grid.columns + self.grid.outputs)
            for mine, its in zip(larger, self._waiting, strict=True):
                mine[: self._filled] = its[: self._filled]
            self._waiting = larger

    def _absorb(self, rows: _Waiting) -> None:
        if self._reduced is None:
            self._reduced = self._empty()
        self._reduce(self._reduced, rows)
        self._weight += float(rows.weights.sum())

    @property
    def weight(self) -> float:
        """Total weight of the rows."""
        if not self._filled:
            return self._weight
        return self._weight + float(self._waiting.weights[: self._filled].sum())

    def _empty(self) -> PaneState:
        grid = self.grid
        comovement = grid.comovement()
        return PaneState(
            TDigests(grid.columns + grid.outputs, self.compression),
            comovement,
            BlockOverlap(comovement, self._blocks),
            RowSample(self.sample_size, grid.columns, grid.outputs) if self.sample_size else None,
        )

    @staticmethod
    def _reduce(state: PaneState, rows: _Waiting) -> None:
        # Decided by the values, not by whether weights were given: ones are no weights.
        weights = None if (rows.weights == 1.0).all() else rows.weights
        d = state.comovement.columns
        x, y = rows.values[:, :d], rows.values[:, d:]
        state.digests.update(rows.values, weights)
        state.comovement.update(x, y, weights)
        state.overlap.update(state.comovement, x, y, weights)
        if state.sample is not None:
            state.sample.update(rows.hashes, x, y, rows.times)

    def state(self) -> PaneState:
        """Return the accumulators with the rows that wait reduced, in a copy where any do."""
        if self._settled is None and self._filled:
            settled = self._empty() if self._reduced is None else _copied(self._reduced)
            self._reduce(settled, self._waiting.part(0, self._filled))
            self._settled = settled
        return self._settled or self._reduced or self._empty()

    def rest(self) -> None:
        """Take as little memory as the rows allow, until it is read or added to."""
        self._settled = None

    @property
    def x_digests(self) -> TDigests:
        """Digests of the features, with their NaN and infinity counts."""
        return self.state().x_digests

    @property
    def y_digests(self) -> TDigests:
        """Digests of the outputs."""
        return self.state().y_digests

    @property
    def comovement(self) -> CoMovement:
        """Cells and error sums on the grid of the epoch."""
        return self.state().comovement

    @property
    def sample(self) -> RowSample | None:
        """The sampled rows, None where ``sample_size`` is 0."""
        return self.state().sample

    def merge(self, other: PaneSketch) -> None:
        """Add the rows of another sketch on the same grid; ValueError where they do not fit.

        A merge reduces the rows that wait: what is added afterwards starts a new block of rows.
        """
        if self.grid != other.grid or self.sample_size != other.sample_size:
            raise ValueError(
                f"cannot merge a pane of epoch {other.grid.epoch} and {other.sample_size} sampled "
                f"rows into one of epoch {self.grid.epoch} and {self.sample_size}"
            )
        mine, its = _copied(self.state()), other.state()
        mine.digests.merge(its.digests)
        mine.comovement.merge(its.comovement)
        mine.overlap.merge(its.overlap)
        if mine.sample is not None and its.sample is not None:
            mine.sample.merge(its.sample)
        self._weight = self.weight + other.weight
        self._reduced, self._settled, self._filled = mine, None, 0
        self.rows += other.rows

    def to_bytes(self, dtype: npt.DTypeLike = np.float32) -> bytes:
        """Return the pane as bytes, sums in ``dtype``; the waiting rows stay as they are."""
        state = self.state()
        head = [self.grid.epoch, self.rows, self.compression, self.sample_size]
        parts = [
            state.comovement.to_bytes(dtype),
            state.x_digests.to_bytes(),
            state.y_digests.to_bytes(),
            state.overlap.to_bytes() if state.overlap.blocks else b"",
            b"" if state.sample is None else state.sample.to_bytes(),
        ]
        arrays = [np.frombuffer(part, dtype=np.uint8) for part in parts]
        return pack(
            _MAGIC, _VERSION, [np.array(head, dtype=np.int64), np.array([self.weight]), *arrays]
        )

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> PaneSketch:
        """Return the pane that ``to_bytes`` wrote, sums in float64.

        Raises IncompatibleStateError for bytes that are foreign, newer, damaged or inconsistent.
        """
        try:
            head, weight, *parts = unpack(data, _MAGIC, _VERSION)
            epoch, rows, compression, sample_size = (int(value) for value in head)
            cells, x_digests, y_digests, overlap, sample = (part.tobytes() for part in parts)
            comovement = CoMovement.from_bytes(cells)
            made = cls(
                Grid(
                    epoch,
                    comovement.x_edges,
                    comovement.y_edges,
                    comovement.x_reference,
                    comovement.y_reference,
                ),
                compression=compression,
                sample_size=sample_size,
            )
            features, outputs = (TDigests.from_bytes(part) for part in (x_digests, y_digests))
            if (features.columns, outputs.columns) != (comovement.columns, comovement.outputs):
                raise IncompatibleStateError(
                    "the digests and cells of a pane differ in their columns"
                )
            made._reduced = PaneState(
                features.beside(outputs),
                comovement,
                BlockOverlap.from_bytes(overlap, comovement)
                if overlap
                else BlockOverlap(comovement, None),
                RowSample.from_bytes(sample) if sample_size else None,
            )
            made.rows, made._weight = rows, float(weight.item())
        except IncompatibleStateError:
            raise
        except (ValueError, OverflowError) as error:
            raise IncompatibleStateError(f"these are not a pane's bytes: {error}") from None
        return made

    @staticmethod
    def sample_in(data: bytes | memoryview) -> RowSample | None:
        """Return the sampled rows of a pane's bytes alone; raises as ``from_bytes`` does."""
        try:
            head, _, *parts = unpack(data, _MAGIC, _VERSION)
            return RowSample.from_bytes(parts[-1].tobytes()) if int(head[3]) else None
        except (ValueError, IndexError) as error:
            raise IncompatibleStateError(f"these are not a pane's bytes: {error}") from None


class _Waiting(NamedTuple):
    """Rows in order: features and then outputs (n, d + c), weights, hashes and times (n,).

    The values lie column by column, as they are reduced.
    """

    values: Floats
    weights: Floats
    hashes: npt.NDArray[np.uint64]
    times: npt.NDArray[np.int64]

    @classmethod
    def empty(cls, rows: int, columns: int) -> _Waiting:
        return cls(
            np.empty((columns, rows)).T,
            np.empty(rows),
            np.empty(rows, dtype=np.uint64),
            np.empty(rows, dtype=np.int64),
        )

    def part(self, start: int, stop: int) -> _Waiting:
        return _Waiting._make(part[start:stop] for part in self)

    def put(self, at: int, rows: Sequence[npt.NDArray[Any]]) -> None:
        """Write x (n, d), y (n, c), weights, hashes and times from row ``at`` on."""
        x, y, *rest = rows
        stop, d = at + x.shape[0], x.shape[1]
        self.values[at:stop, :d] = x
        self.values[at:stop, d:] = y
        for mine, its in zip(self[1:], rest, strict=True):
            mine[at:stop] = its


def _copied(state: PaneState) -> PaneState:
    comovement = state.comovement.copy()
    return PaneState(
        state.digests.copy(),
        comovement,
        state.overlap.scaled(1.0, comovement),
        None if state.sample is None else state.sample.copy(),
    )
