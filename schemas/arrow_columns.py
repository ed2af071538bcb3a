"""Columns of Arrow data as numbers and categories: one by one, or as one matrix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from attributary.schemas.errors import Reason, RejectedError

Numbers = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_PLAIN = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
)
# Layouts that ask for a matrix of one shape: those of a model's epochs.
_MOST_PLANS = 8


class _Plan(NamedTuple):
    """How a matrix is made of a batch's columns: runs of one type at once, the others singly."""

    whole: npt.NDArray[np.intp] | slice | None
    """the columns to take where all of the batch is one type"""
    runs: list[tuple[list[int], list[int]]]
    """columns of one type in the batch, and where they go"""
    singles: list[tuple[str, int]]
    missing: list[int]


class ColumnShape:
    """Names and types of a batch's columns; kept from batch to batch of one schema."""

    def __init__(self, schema: Any, names: Sequence[str]) -> None:
        self.places = {name: schema.get_field_index(name) for name in names}
        self._types = schema.types
        self._plans: dict[tuple[str, ...], _Plan] = {}

    @property
    def texts(self) -> list[int]:
        """Places of the columns that may hold text."""
        return [place for place in self.places.values() if _holds_text(self._types[place])]

    def plan(self, names: tuple[str, ...]) -> _Plan:
        """Return how the matrix of these columns is made."""
        found = self._plans.get(names)
        if found is None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            found = self._plans[names] = self._planned(names)
        return found

    def _planned(self, names: tuple[str, ...]) -> _Plan:
        places = [self.places.get(name) for name in names]
        missing = [at for at, place in enumerate(places) if place is None]
        known = [(at, place) for at, place in enumerate(places) if place is not None]
        if known and not missing and len(set(self._types)) == 1 and _at_once(self._types[0]):
            first = known[0][1]
            if [place for _, place in known] == list(range(first, first + len(known))):
                return _Plan(slice(first, first + len(known)), [], [], [])
            return _Plan(np.array([place for _, place in known]), [], [], [])
        runs: dict[Any, tuple[list[int], list[int]]] = {}
        singles = []
        for at, place in known:
            if _at_once(self._types[place]):
                taken, where = runs.setdefault(self._types[place], ([], []))
                taken.append(place)
                where.append(at)
            else:
                singles.append((names[at], at))
        return _Plan(None, list(runs.values()), singles, missing)


class Columns(Mapping[str, Any]):
    """The columns of a record batch, by name."""

    def __init__(self, batch: Any, shape: ColumnShape) -> None:
        self._batch = batch
        self._shape = shape
        self._whole: Numbers | None = None

    def __getitem__(self, name: str) -> Any:
        return self._batch.column(self._shape.places[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._shape.places)

    def __len__(self) -> int:
        return len(self._shape.places)

    def matrix(self, names: tuple[str, ...]) -> Numbers:
        """Return (rows, len(names)) float64, column after column in memory.

        NaN where a value is null and where the batch lacks the column; RejectedError where a column is
        not numeric. To read: it may be Arrow's own memory.
        """
        plan = self._shape.plan(names)
        if plan.whole is not None:
            if self._whole is None:
                self._whole = _tensor(self._batch)
            chosen: Numbers = self._whole[plan.whole].T
            return chosen
        found = np.empty((len(names), self._batch.num_rows))
        found[plan.missing] = np.nan
        for places, where in plan.runs:
            found[where] = _tensor(self._batch.select(places))
        for name, at in plan.singles:
            found[at] = numbers(self[name], name)
        matrix: Numbers = found.T
        return matrix

    def part(self, shape: ColumnShape) -> Columns:
        """Return some of the columns, of a shape of the same schema."""
        found = Columns(self._batch, shape)
        found._whole = self._whole
        return found

    def only(self, chosen: Mask) -> Columns:
        """Return the columns of the rows that a mask (rows,) chooses."""
        return Columns(self._batch.filter(pa.array(chosen)), self._shape)


def _tensor(batch: Any) -> Numbers:
    """Return (columns, rows) float64 of a batch of one numeric type, null as NaN."""
    columns = batch.to_tensor(null_to_nan=True, row_major=False).to_numpy()
    return np.asarray(columns.T, dtype=np.float64)


def _at_once(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind))


def _holds_text(kind: Any) -> bool:
    return bool(
        pa.types.is_dictionary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
    )


def longest(column: Any) -> int:
    """Return the characters of the longest text in an array, 0 where it holds no text."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return 0
    return pc.max(pc.utf8_length(column)).as_py() or 0


def numbers(column: Any, name: str) -> Numbers:
    """Return an Arrow column as float64, null as NaN; RejectedError where it is not numeric."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise RejectedError(Reason.WRONG_TYPE, f"column {name!r} must be numeric, got {kind}")
    found = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(found, dtype=np.float64)


def texts(column: Any, name: str) -> list[str | None]:
    """Return an Arrow column of categories as strings; numbers and booleans as JSON writes them."""
    return [category(value) for value in plain(column, name)]


def plain(column: Any, name: str) -> list[str | float | bool | None]:
    """Return a column of texts, numbers or booleans; RejectedError for anything else.

    Dates and the like are not read: Python cannot hold all of Arrow's, nor all of its time zones.
    """
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not any(holds(kind) for holds in _PLAIN):
        raise RejectedError(
            Reason.WRONG_TYPE, f"column {name!r} must hold text or numbers, got {column.type}"
        )
    found: list[str | float | bool | None] = column.to_pylist()
    return found


def category(value: object) -> str | None:
    """Return a category's name, the same for every row format: 3.0 and 3 are one category.

    None for null and NaN, which mean that the value is missing.
    """
    if value is None or value != value:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
