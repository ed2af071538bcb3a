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
from attributary.workers.maths.sample import HashArray, in_fraction
from attributary.workers.stream.decode import Record, Staged
from attributary.workers.stream.layout import Encoded, Floats, Layout
from attributary.workers.stream.row_hashes import row_hashes

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Batch:
    """Usable rows in order: X (n, columns), Y (n, outputs), weight (n,) or None where all are 1,
    event times in milliseconds (n,), and hashes of the row ids (n,) where they are asked for.

    ``left_out`` are the event times of usable rows that are not among them: counted, and not sketched.
    """

    X: Floats
    Y: Floats
    weight: Floats | None
    times: Integers
    hashes: HashArray | None
    left_out: Integers

    def part(self, rows: Mask | slice) -> Batch:
        """Return some of the rows that are in the arrays, and nothing left out."""
        return Batch(
            self.X[rows],
            self.Y[rows],
            None if self.weight is None else self.weight[rows],
            self.times[rows],
            None if self.hashes is None else self.hashes[rows],
            self.left_out[:0],
        )


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
        panes = self._panes.union(panes_of(times // self._pane_ms))
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


def panes_of(panes: Integers) -> list[int]:
    """Return the different ones of panes (n,), ascending; rows mostly come from one or two."""
    if not panes.size:
        return []
    first, last = int(panes.min()), int(panes.max())
    return [first] if first == last else np.unique(panes).tolist()


def encode(
    staged: Sequence[Staged],
    layout: Layout,
    rule: TimeRule,
    place: str | None,
    fraction: float = 1.0,
) -> Iterator[Batch | Refusal]:
    """Yield the rows as arrays in order.

    ``place`` (topic/partition) names rows without an id; None: row ids are not hashed. A ``fraction`` below 1
    is the share of the rows, by their hashes, that becomes arrays; all are checked.
    """
    for is_row, run in groupby(staged, lambda entry: isinstance(entry.content, Row)):
        if is_row:
            yield from _encode_rows(list(run), layout, rule, place, fraction)
        else:
            for entry in run:
                yield from _encode_arrow(entry, layout, rule, place, fraction)


def _encode_rows(
    staged: list[Staged], layout: Layout, rule: TimeRule, place: str | None, fraction: float
) -> Iterator[Batch | Refusal]:
    rows = [entry.content for entry in staged if isinstance(entry.content, Row)]
    hashes = None
    if place is not None:
        offsets = [entry.record.offset for entry in staged]
        indices = [entry.index for entry in staged]
        hashes = row_hashes(place, offsets, indices, [_row_id(row) for row in rows])
    chosen = _chosen(hashes, fraction)
    encoded = layout.encode(rows, chosen)
    errors = list(encoded.errors)
    times, usable = _times(staged, rows, encoded.kept, rule, errors)
    if len(times) if usable is None else usable.any():
        if hashes is not None and encoded.errors:
            hashes = hashes[encoded.kept]
        held = None if chosen is None else chosen[encoded.kept]
        yield _batch(encoded, times, hashes, usable, held)
    if not errors:
        return
    errors.sort(key=lambda error: error.index)
    for _, found in groupby(errors, lambda error: staged[error.index].record.offset):
        within = list(found)
        yield refusal(
            staged[within[0].index].record,
            [RowError(staged[e.index].index, e.reason, e.message) for e in within],
        )


def _times(
    staged: list[Staged], rows: list[Row], kept: list[int], rule: TimeRule, errors: list[RowError]
) -> tuple[Integers, Mask | None]:
    """Return event times (n,) of the kept rows and which can be counted, and note why others cannot.

    None: all can be.
    """
    if all(row.time is None for row in rows):
        times = np.array([staged[index].record.timestamp for index in kept], dtype=np.int64)
        if rule.admits(times):
            return times, None
    usable = np.ones(len(kept), dtype=bool)
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
    entry: Staged, layout: Layout, rule: TimeRule, place: str | None, fraction: float
) -> Iterator[Batch | Refusal]:
    record, rows = entry.record, entry.content
    assert isinstance(rows, ArrowRows)  # noqa: S101
    hashes = None
    if place is not None:
        offsets = np.full(rows.rows, record.offset)
        hashes = row_hashes(place, offsets, np.arange(rows.rows), rows.ids)
    chosen = _chosen(hashes, fraction)
    try:
        encoded = layout.encode_arrow(rows if chosen is None else rows.only(chosen))
    except RejectedError as error:
        yield Refusal(record, rows.rows, error.reason, str(error))
        return
    times, usable = rows.time, None
    errors: list[RowError] = []
    if times is None:
        times = np.full(rows.rows, record.timestamp, dtype=np.int64)
    if rows.time is not None or not rule.admits(times[:1]):
        usable, errors = rule.check_all(times, record)
    if usable is None or usable.any():
        yield _batch(encoded, times, hashes, usable, chosen)
    if errors:
        yield refusal(record, errors)


def _chosen(hashes: HashArray | None, fraction: float) -> Mask | None:
    if fraction == 1:
        return None
    if hashes is None:
        raise ValueError("a fraction of the rows is chosen by their hashes: name their place")
    return in_fraction(hashes, fraction)


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
    encoded: Encoded,
    times: Integers,
    hashes: HashArray | None,
    usable: Mask | None,
    held: Mask | None,
) -> Batch:
    """Return the usable rows, None: all; ``held`` says which rows are in the arrays, None: all are."""
    if usable is None:
        if held is None:
            return Batch(encoded.X, encoded.Y, encoded.weight, times, hashes, times[:0])
        usable = np.ones(len(times), dtype=bool)
    kept = usable if held is None else usable & held
    left_out = times[:0] if held is None else times[usable & ~kept]
    within = kept if held is None else usable[held]
    X, Y, weight = encoded.X, encoded.Y, encoded.weight
    if not within.all():
        X, Y, weight = X[within], Y[within], None if weight is None else weight[within]
    return Batch(X, Y, weight, times[kept], None if hashes is None else hashes[kept], left_out)


def _row_id(row: Row) -> bytes | None:
    return None if row.id is None else str(row.id).encode("utf-8", "surrogatepass")
