"""Which columns are categorical, and how: an integer code in one column, or a one-hot group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.intp]
Categorical = Sequence[int | Sequence[int]]


@dataclass(frozen=True)
class Levels:
    """A categorical feature: its columns and the values (L, k) that they take, a level each.

    ``frequency`` (L,) is the share of the background; ``current`` (n,) the level of every explained
    row, -1 for a code that the background does not have.
    """

    columns: Integers
    values: Floats
    frequency: Floats
    current: Integers
    one_hot: bool


def checked_categorical(categorical: Categorical, columns: int) -> list[tuple[Integers, bool]]:
    """Return (columns, one-hot or not) of every entry: a number is a code, a sequence a group."""
    found: list[tuple[Integers, bool]] = []
    taken: set[int] = set()
    for entry in categorical:
        one_hot = not isinstance(entry, (int, np.integer))
        try:
            index = np.atleast_1d(np.asarray(entry))
        except ValueError:
            index = np.empty(0)
        if index.ndim != 1 or index.size == 0 or index.dtype.kind not in "iu":
            raise ValueError(f"categorical has {entry!r}; expected a column or a list of columns")
        wrong = [int(j) for j in index if not 0 <= j < columns]
        if wrong:
            raise ValueError(
                f"categorical names column {wrong[0]}; X has columns 0 to {columns - 1}"
            )
        again = sorted(taken & {int(j) for j in index})
        if again or len(set(index.tolist())) < index.size:
            raise ValueError(f"categorical names column {again[0] if again else entry} twice")
        taken.update(int(j) for j in index)
        found.append((index.astype(np.intp), one_hot))
    return found


def levels(columns: Integers, one_hot: bool, X: Floats, background: Floats) -> Levels:
    """Return the levels of a categorical feature and where ``X`` (n, d) stands among them.

    A one-hot row may also be all 0, the level that an encoding dropped. Raises ValueError for a row
    with anything else than zeros and at most a single 1, and for a code that is missing.
    """
    mine, others = X[:, columns], background[:, columns]
    if not one_hot:
        for name, values in (("X", mine), ("background", others)):
            if not np.isfinite(values).all():
                row = int(np.argmin(np.isfinite(values[:, 0])))
                raise ValueError(
                    f"{name} row {row} has {values[row, 0]} in the categorical column {columns[0]}; "
                    "give the missing level a code of its own"
                )
        codes, counts = np.unique(others[:, 0], return_counts=True)
        place = np.searchsorted(codes, mine[:, 0]).clip(max=len(codes) - 1)
        current = np.where(codes[place] == mine[:, 0], place, -1)
        return Levels(columns, codes[:, None], counts / len(others), current, one_hot)
    for name, values in (("X", mine), ("background", others)):
        good = np.isin(values, (0.0, 1.0)).all(axis=1) & (values.sum(axis=1) <= 1.0)
        if not good.all():
            row = int(np.argmin(good))
            raise ValueError(
                f"{name} row {row} has {values[row].tolist()} in the one-hot columns "
                f"{columns.tolist()}; expected zeros and at most a single 1"
            )
    table = np.eye(len(columns))
    dropped = bool((mine.sum(axis=1) == 0.0).any() or (others.sum(axis=1) == 0.0).any())
    current = np.where(mine.any(axis=1), mine.argmax(axis=1), len(columns))
    frequency = np.append(others.mean(axis=0), 1.0 - others.any(axis=1).mean())
    if dropped:
        table = np.vstack([table, np.zeros(len(columns))])
    return Levels(columns, table, frequency[: len(table)], current.astype(np.intp), one_hot)
