"""One side of an inference: what a model saw, or what it said, as rows of named values.

Nested values become features of their own: an object's members ``name.member``, a list's elements
``name[0]``. Values without names, such as those of a matrix, are called by their position.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from attributary.schemas.errors import Reason, RejectedError

MAX_ROWS = 100_000
MAX_VALUES = 10_000  # of one row
_DEEPEST = 32
_NESTED = frozenset({dict, list})  # what JSON gives is of these types exactly


@dataclass(frozen=True)
class Side:
    """Rows by name. ``positional``: the values have an order, so other names may be given to them;
    ``unnamed``: their names are only positions."""

    rows: list[dict[str, Any]]
    positional: bool = False
    unnamed: bool = False


def from_rows(rows: Any, what: str) -> Side:
    """Return rows that are objects (named), lists or single values (by position); RejectedError otherwise."""
    if not isinstance(rows, list):
        raise RejectedError(
            Reason.WRONG_TYPE, f"{what}: expected a list of rows, got {_kind(rows)}"
        )
    check_count(len(rows), what)
    if isinstance(rows[0], dict):
        if not all(isinstance(row, dict) for row in rows):
            raise RejectedError(Reason.WRONG_TYPE, f"{what}: objects and other rows are mixed")
        return Side([_record(row, what) for row in rows])
    if any(isinstance(row, dict) for row in rows):
        raise RejectedError(Reason.WRONG_TYPE, f"{what}: objects and other rows are mixed")
    return from_matrix([_leaves(row, what) for row in rows], what)


def from_matrix(rows: Sequence[Sequence[Any]], what: str) -> Side:
    """Return rows of values that have no names, all of one width: ``f0``, ``f1``, ..."""
    check_count(len(rows), what)
    width = len(rows[0])
    if any(len(row) != width for row in rows):
        raise RejectedError(Reason.WRONG_TYPE, f"{what}: the rows differ in length")
    if not 0 < width <= MAX_VALUES:
        raise RejectedError(
            Reason.TOO_LARGE if width else Reason.EMPTY,
            f"{what}: {width} values a row; 1 to {MAX_VALUES} are read",
        )
    names = [f"f{place}" for place in range(width)]
    return Side([dict(zip(names, row, strict=True)) for row in rows], positional=True, unnamed=True)


def from_columns(columns: Any, what: str) -> Side:
    """Return rows from an object of lists, one element a row, or from a bare list of rows."""
    if not isinstance(columns, dict):
        return from_rows(columns, what)
    if not columns:
        raise RejectedError(Reason.EMPTY, f"{what} holds no column")
    lengths = {len(column) if isinstance(column, list) else -1 for column in columns.values()}
    if len(lengths) != 1 or -1 in lengths:
        raise RejectedError(
            Reason.WRONG_TYPE, f"{what}: every column must be a list with one element a row"
        )
    check_count(lengths.pop(), what)
    rows = zip(*columns.values(), strict=True)
    return Side([_record(dict(zip(columns, row, strict=True)), what) for row in rows])


def from_split(names: Any, rows: Any, what: str) -> Side:
    """Return rows of lists under a list of names."""
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise RejectedError(Reason.WRONG_TYPE, f"{what}: the columns must be a list of names")
    if len(set(names)) != len(names):
        raise RejectedError(Reason.WRONG_TYPE, f"{what}: a column is named twice")
    if not isinstance(rows, list):
        raise RejectedError(
            Reason.WRONG_TYPE, f"{what}: expected a list of rows, got {_kind(rows)}"
        )
    check_count(len(rows), what)
    if not all(isinstance(row, list) and len(row) == len(names) for row in rows):
        raise RejectedError(Reason.WRONG_TYPE, f"{what}: a row is no list of {len(names)} values")
    found = [_record(dict(zip(names, row, strict=True)), what) for row in rows]
    return Side(found, positional=True)


def check_count(rows: int, what: str) -> None:
    """Raise RejectedError where there are no rows, or more than one message may hold."""
    if rows == 0:
        raise RejectedError(Reason.EMPTY, f"{what} holds no row")
    if rows > MAX_ROWS:
        raise RejectedError(
            Reason.TOO_LARGE, f"{what} holds {rows} rows; at most {MAX_ROWS} are read", rows=rows
        )


def choose(side: Side, names: Sequence[str], option: str) -> Side:
    """Return the named values alone; values that go by position get the names.

    A name takes ``name[0]``, ``name.member`` and the like too. RejectedError: nothing goes by these names.
    """
    if not names:
        return side
    there = list(side.rows[0])
    if side.positional and not any(_goes_by(found, set(names)) for found in there):
        if len(names) != len(there):
            raise RejectedError(
                Reason.WRONG_TYPE, f"{option} has {len(names)} names for {len(there)} values a row"
            )
        return Side([dict(zip(names, row.values(), strict=True)) for row in side.rows])
    plans: dict[tuple[str, ...], list[str]] = {}
    rows = []
    for row in side.rows:
        plan = plans.get(named := tuple(row))
        if plan is None:
            plan = plans[named] = _plan(named, names)
        rows.append({name: row[name] for name in plan})
    if not any(rows):
        raise RejectedError(
            Reason.WRONG_TYPE,
            f"{option}: no value is named {', '.join(map(repr, names[:5]))}; there are "
            f"{', '.join(map(repr, there[:12]))!s:.300}",
        )
    return Side(rows)


def _plan(there: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return which of the names ``there`` are wanted, in the order in which they are wanted."""
    wanted = {name: place for place, name in enumerate(names)}
    found = [(wanted[base], name) for name in there if (base := _goes_by(name, wanted)) is not None]
    return [name for _, name in sorted(found, key=lambda pair: pair[0])]


def _goes_by(name: str, wanted: Container[str]) -> str | None:
    if name in wanted:
        return name
    for at, letter in enumerate(name):
        if letter in "[." and name[:at] in wanted:
            return name[:at]
    return None


def _record(row: dict[str, Any], what: str) -> dict[str, Any]:
    if _NESTED.isdisjoint(map(type, row.values())):
        flat = row
    else:
        flat = {}
        for name, value in row.items():
            for found, leaf in flatten(name, value, what):
                flat[found] = leaf
                if len(flat) > MAX_VALUES:
                    break
    if len(flat) > MAX_VALUES:
        raise RejectedError(Reason.TOO_LARGE, f"{what}: more than {MAX_VALUES} values in a row")
    return flat


def flatten(name: str, value: Any, what: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the values inside ``value`` under names that say where they lie.

    A list of one value is that value: models answer ``[0.7]`` for 0.7.
    """
    if depth > _DEEPEST:
        raise RejectedError(Reason.WRONG_TYPE, f"{what}: {name!r:.60} is nested too deeply")
    if isinstance(value, dict):
        for member, inner in value.items():
            yield from flatten(f"{name}.{member}", inner, what, depth + 1)
    elif isinstance(value, list) and len(value) == 1:
        yield from flatten(name, value[0], what, depth + 1)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from flatten(f"{name}[{place}]", inner, what, depth + 1)
    else:
        yield name, value


def _leaves(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        return [value]
    if _NESTED.isdisjoint(map(type, value)):
        return value
    return [leaf for _, leaf in flatten("", value, what)]


def _kind(value: Any) -> str:
    return type(value).__name__
