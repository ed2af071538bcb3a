"""Staged rows to arrays on a layout, and the rows that cannot be used, by record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from attributary.schemas.arrow import ArrowRows
from attributary.schemas.errors import Reason, RejectedError
from attributary.schemas.row import Row, RowError, event_time_ms
from attributary.workers.maths.sample import hash_ids
from attributary.workers.stream.decode import Record, Staged
from attributary.workers.stream.layout import Floats, Layout


@dataclass(frozen=True)
class Batch:
    """Usable rows in order: X (n, columns), Y (n, outputs), weight (n,) or None where all are 1,
    event times in milliseconds (n,), and hashes of the row ids (n,) where they are asked for."""

    X: Floats
    Y: Floats
    weight: Floats | None
    times: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.uint64] | None


@dataclass(frozen=True)
class Refusal:
    """Rows of one record that cannot be used; no ``errors``: all of it, for ``reason``."""

    record: Record
    rows: int
    reason: Reason
    message: str
    errors: tuple[RowError, ...] = ()


class TimeRule:
    """Which event times a block takes: none too far ahead, and in no more than so many panes.

    Each pane is a sketch: rows scattered over a year must not make one each. ``panes`` are the starts of
    those that the block has; what is admitted is added to a copy.
    """

    def __init__(
        self, max_future_seconds: float, pane_ms: int, panes: Iterable[int], most: int
    ) -> None:
        self._max_future = max_future_seconds
        self._pane_ms = pane_ms
        self._panes = set(panes)
        self._most = most

    def check(self, time: int, record: Record) -> None:
        """Raise RejectedError where a row of this event time cannot be counted."""
        ahead = (time - record.timestamp) / 1000
        if ahead > self._max_future:
            raise RejectedError(
                Reason.FAR_FUTURE,
                f"event time is {ahead:.0f} s ahead of the broker's clock, at most "
                f"{self._max_future:g} s is allowed; numbers are seconds since 1970",
            )
        pane = time // self._pane_ms
        if pane not in self._panes and len(self._panes) >= self._most:
            raise RejectedError(
                Reason.TOO_MANY_PANES,
                f"event times of one block lie in more than {self._most} panes of "
                f"{self._pane_ms / 1000:g} s; publish in time order, or set wider panes on the card",
            )
        self._panes.add(pane)

    def admits(self, times: npt.NDArray[np.int64]) -> bool:
        """Admit times (n,) that are the broker's own: all of them, or none where they are too many panes."""
        panes = self._panes.union(np.unique(times // self._pane_ms).tolist())
        if self._max_future < 0 or len(panes) > self._most:
            return False
        self._panes = panes
        return True

    def check_all(
        self, times: npt.NDArray[np.int64], record: Record
    ) -> tuple[npt.NDArray[np.bool_], list[RowError]]:
        """Return which rows of one record can be counted (n,), and why the others cannot."""
        usable = np.ones(len(times), dtype=bool)
        errors: list[RowError] = []
        # One row decides for its pane, except that only some of a pane may be too far ahead.
        panes = times // self._pane_ms
        late = (times - record.timestamp) / 1000 > self._max_future
        _, first, group = np.unique(
            np.stack([panes, late]), axis=1, return_index=True, return_inverse=True
        )
        for kind in np.argsort(first):
            try:
                self.check(int(times[first[kind]]), record)
            except RejectedError as error:
                rows = np.flatnonzero(group.ravel() == kind)
                usable[rows] = False
                errors += [RowError(int(row), error.reason, str(error)) for row in rows]
        return usable, sorted(errors, key=lambda error: error.index)


def encode(
    staged: Sequence[Staged], layout: Layout, rule: TimeRule, place: str | None
) -> Iterator[Batch | Refusal]:
    """Yield the rows as arrays in order.

    ``place`` (topic/partition) names rows without an id; None: row ids are not hashed.
    """
    for is_row, run in groupby(staged, lambda entry: isinstance(entry.content, Row)):
        if is_row:
            yield from _encode_rows(list(run), layout, rule, place)
        else:
            for entry in run:
                yield from _encode_arrow(entry, layout, rule, place)


def _encode_rows(
    staged: list[Staged], layout: Layout, rule: TimeRule, place: str | None
) -> Iterator[Batch | Refusal]:
    rows = [entry.content for entry in staged if isinstance(entry.content, Row)]
    encoded = layout.encode(rows)
    errors = list(encoded.errors)
    times, usable = _times(staged, rows, encoded.kept, rule, errors)
    if usable.any():
        hashes = None
        if place is not None:
            hashes = hash_ids([_row_id(rows[i], staged[i], place) for i in encoded.kept])
        yield _batch(encoded.X, encoded.Y, encoded.weight, times, hashes, usable)
    errors.sort(key=lambda error: error.index)
    for _, found in groupby(errors, lambda error: staged[error.index].record.offset):
        within = list(found)
        yield refusal(
            staged[within[0].index].record,
            [RowError(staged[e.index].index, e.reason, e.message) for e in within],
        )


def _times(
    staged: list[Staged], rows: list[Row], kept: list[int], rule: TimeRule, errors: list[RowError]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return event times (n,) of the kept rows and which can be counted, and note why others cannot."""
    usable = np.ones(len(kept), dtype=bool)
    if all(row.time is None for row in rows):
        times = np.array([staged[index].record.timestamp for index in kept], dtype=np.int64)
        if rule.admits(times):
            return times, usable
    times = np.zeros(len(kept), dtype=np.int64)
    for position, index in enumerate(kept):
        record = staged[index].record
        try:
            time = times[position] = event_time_ms(rows[index].time, record.timestamp)
            rule.check(time, record)
        except RejectedError as error:
            usable[position] = False
            errors.append(RowError(index, error.reason, str(error)))
    return times, usable


def _encode_arrow(
    entry: Staged, layout: Layout, rule: TimeRule, place: str | None
) -> Iterator[Batch | Refusal]:
    record, rows = entry.record, entry.content
    assert isinstance(rows, ArrowRows)  # noqa: S101
    try:
        encoded = layout.encode_arrow(rows)
    except RejectedError as error:
        yield Refusal(record, rows.rows, error.reason, str(error))
        return
    times = rows.time
    if times is None:
        times = np.full(rows.rows, record.timestamp, dtype=np.int64)
    usable, errors = rule.check_all(times, record)
    if usable.any():
        hashes = None
        if place is not None:
            ids = rows.ids or [_place(place, record, index) for index in range(rows.rows)]
            hashes = hash_ids(ids)
        yield _batch(encoded.X, encoded.Y, encoded.weight, times, hashes, usable)
    if errors:
        yield refusal(record, errors)


def refuse_all(staged: Sequence[Staged], reason: Reason, message: str) -> Iterator[Refusal]:
    """Yield the refusal of all these rows, one per record."""
    for _, found in groupby(staged, lambda entry: entry.record.offset):
        run = list(found)
        record, rows = run[0].record, sum(entry.rows for entry in run)
        if isinstance(run[0].content, Row):
            yield refusal(record, [RowError(entry.index, reason, message) for entry in run])
        else:
            yield Refusal(record, rows, reason, message)


def refusal(record: Record, errors: Sequence[RowError]) -> Refusal:
    """Return the refusal of some rows of one record; the first error speaks for all."""
    return Refusal(record, len(errors), errors[0].reason, errors[0].message, tuple(errors))


def _batch(
    X: Floats,
    Y: Floats,
    weight: Floats | None,
    times: npt.NDArray[np.int64],
    hashes: npt.NDArray[np.uint64] | None,
    usable: npt.NDArray[np.bool_],
) -> Batch:
    if usable.all():
        return Batch(X, Y, weight, times, hashes)
    return Batch(
        X[usable],
        Y[usable],
        None if weight is None else weight[usable],
        times[usable],
        None if hashes is None else hashes[usable],
    )


def _row_id(row: Row, staged: Staged, place: str) -> bytes:
    if row.id is not None:
        return str(row.id).encode("utf-8", "surrogatepass")
    return _place(place, staged.record, staged.index)


def _place(place: str, record: Record, index: int) -> bytes:
    return f"{place}/{record.offset}/{index}".encode()
