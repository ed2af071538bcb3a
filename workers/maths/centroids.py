"""Centroids of many columns at once: the compression step of a merging t-digest, without a loop.

A centroid is a mean and a weight. It is an *atom* while every value in it is equal; an atom keeps
its value exactly and takes no part in interpolation, which is what makes repeated values exact.

Source: T. Dunning and O. Ertl, "Computing extremely accurate quantiles using t-digests" (2019),
scale function k1. Differs from the paper: the scale function spans ``compression`` units instead
of half of them and a value goes to the unit that holds its middle rank (no sequential scan), so a
centroid of several values always covers less than two units, and at most ``compression`` exist.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

_HUGE = 2.0**900  # values below this cannot overflow when weights times values are summed


class Centroids(NamedTuple):
    """One row per column, ascending means; unused places hold mean inf and weight 0."""

    mean: FloatArray
    weight: FloatArray
    atom: BoolArray

    @classmethod
    def empty(cls, columns: int, width: int) -> Centroids:
        shape = (columns, width)
        return cls(np.full(shape, np.inf), np.zeros(shape), np.zeros(shape, dtype=np.bool_))

    def used(self) -> IntArray:
        """Return (columns,) the number of centroids in use."""
        used: IntArray = np.count_nonzero(self.weight, axis=1).astype(np.int64)
        return used

    def put(self, columns: BoolArray, other: Centroids) -> None:
        """Overwrite the columns chosen with those of ``other``."""
        for mine, theirs in zip(self, other, strict=True):
            mine[columns] = theirs

    def take(self, columns: IntArray) -> Centroids:
        """Return a copy that holds only these columns."""
        return Centroids(self.mean[columns], self.weight[columns], self.atom[columns])


def capacity(compression: int) -> int:
    """Return the places per column: the units of the scale, and a quarter more.

    Up to this many distinct values a column is kept exactly; beyond it the extra quarter leaves
    room for heavy atoms that are kept apart from their neighbours.
    """
    return compression + compression // 4


def scale_units(quantile: FloatArray, compression: int) -> FloatArray:
    """Return k1(q) from 0 to ``compression``: units are narrow at both tails, widest at q = 0.5."""
    units: FloatArray = np.arcsin(np.sqrt(quantile)) * (compression * 2.0 / np.pi)
    return units


def rank_edges(rows: int, compression: int) -> IntArray:
    """Return the first rank of every centroid when ``rows`` distinct values are compressed."""
    unit = _unit((np.arange(rows) + 0.5) / rows, compression)
    return np.flatnonzero(np.r_[True, unit[1:] != unit[:-1]]).astype(np.int64)


def merge_centroids(left: Centroids, right: Centroids, compression: int) -> Centroids:
    """Return the centroids of both together; bit for bit the same in either order.

    Columns without equal values and of a common size, the most, are compressed all at once.
    """
    # Places that no column uses are left out: they are a fifth of the work.
    n, m = left.used().max(initial=1), right.used().max(initial=1)
    mean, weight, atom = (
        np.concatenate([mine[:, :n], theirs[:, :m]], axis=1)
        for mine, theirs in zip(left, right, strict=True)
    )
    order = np.argsort(mean, axis=1)
    order += np.arange(0, mean.size, n + m)[:, None]
    mean, weight, atom = mean.take(order), weight.take(order), atom.take(order)
    used = weight > 0.0
    count = np.count_nonzero(used, axis=1)
    highest = mean[np.arange(count.size), np.maximum(count - 1, 0)]
    regular = (count > 0) & (np.maximum(-mean[:, 0], highest) < _HUGE)
    regular &= ~((mean[:, 1:] == mean[:, :-1]) & used[:, 1:]).any(axis=1)
    if regular.all():
        return _compress_regular(mean, weight, atom, used, count, compression)
    result = Centroids.empty(count.size, capacity(compression))
    if regular.any():
        found = _compress_regular(
            mean[regular],
            weight[regular],
            atom[regular],
            used[regular],
            count[regular],
            compression,
        )
        result.put(regular, found)
    rest = ~regular
    result.put(rest, compress(mean[rest], weight[rest], atom[rest], compression))
    return result


def compress(
    values: FloatArray, weights: FloatArray, atoms: BoolArray | None, compression: int
) -> Centroids:
    """Return the centroids of weighted values.

    values (columns, m), m ≥ 1, ascending in each row, and their weights (columns, m) ≥ 0; entries
    of weight 0 do not exist, and whatever is not finite must have weight 0. atoms
    (columns, m) says which entries are atoms, None that all are. Equal values coalesce first; a
    row with no more distinct values than ``capacity(compression)`` is kept as it is.
    """
    columns, m = values.shape
    flat = values.ravel()
    cumulative = np.cumsum(weights, axis=1)
    total = cumulative[:, -1]

    fresh = np.ones(values.shape, dtype=np.bool_)
    np.not_equal(values[:, 1:], values[:, :-1], out=fresh[:, 1:])
    start = np.flatnonzero(fresh)
    stop = np.append(start[1:], flat.size)
    weight = np.add.reduceat(weights.ravel(), start)
    real = np.flatnonzero(weight)
    if real.size == 0:
        return Centroids.empty(columns, capacity(compression))
    if atoms is None:
        atom = np.ones(real.size, dtype=np.bool_)
    else:
        atom = np.logical_and.reduceat(atoms.ravel(), start)[real]
    start, stop, weight = start[real], stop[real], weight[real]
    row = start // m
    value = flat[start]
    right = cumulative.ravel()[stop - 1]

    new_row = np.r_[True, row[1:] != row[:-1]]
    opens = np.ones(start.size, dtype=np.bool_)
    crowded = np.bincount(row, minlength=columns) > capacity(compression)
    dense = crowded[row]
    if dense.any():
        packed = _open_units(
            right[dense], weight[dense], atom[dense], row[dense], new_row[dense], total, compression
        )
        opens[dense] = packed
    first = np.flatnonzero(opens)
    last = np.append(first[1:], start.size) - 1
    mean, mass, single = _means(value, weight, first, last)
    place = _places(row[first], columns)
    result = Centroids.empty(columns, capacity(compression))
    result.mean[row[first], place] = mean
    result.weight[row[first], place] = mass
    result.atom[row[first], place] = atom[first] & single
    return result


def _compress_regular(
    values: FloatArray,
    weights: FloatArray,
    atoms: BoolArray,
    used: BoolArray,
    count: IntArray,
    compression: int,
) -> Centroids:
    """Return what ``compress`` does, up to rounding, for rows of distinct values that cannot overflow
    when they are summed.

    ``used`` (columns, m) are the entries that exist, the first ``count`` (columns,) >= 1 of each row.
    """
    columns, m = values.shape
    places = capacity(compression)
    middle = np.cumsum(weights, axis=1)
    total = middle[:, -1:].copy()
    middle -= weights / 2.0
    middle /= total
    np.clip(middle, 0.0, 1.0, out=middle)
    unit = _unit(middle, compression)
    opens = used.copy()
    np.not_equal(unit[:, 1:], unit[:, :-1], out=opens[:, 1:])
    opens &= used
    heavy = _heavy(atoms, weights, middle, total, compression) & used
    apart = opens | heavy
    apart[:, 1:] |= heavy[:, :-1] & used[:, 1:]
    fits = np.count_nonzero(apart, axis=1) <= places
    opens[fits] = apart[fits]
    few = count <= places
    opens[few] = used[few]
    # The place of each entry's centroid, those that do not exist behind all others.
    into = np.cumsum(opens, axis=1)
    into += np.arange(-1, columns * places - 1, places)[:, None]
    into[~used] = columns * places
    flat, size = into.ravel(), columns * places + 1
    mass = np.bincount(flat, weights.ravel(), minlength=size)[:-1]
    amount = weights * np.where(used, values, 0.0)
    sums = np.bincount(flat, amount.ravel(), minlength=size)[:-1]
    first = np.flatnonzero(opens)
    row = first // m
    last = np.append(first[1:], 0) - 1
    ends = np.append(row[1:] != row[:-1], True)
    last[ends] = row[ends] * m + count[row[ends]] - 1
    where, value = flat[first], values.ravel()
    result = Centroids.empty(columns, places)
    # Rounding must not carry a mean past the values it stands for.
    result.mean.ravel()[where] = np.clip(sums[where] / mass[where], value[first], value[last])
    result.weight.ravel()[:] = mass
    result.atom.ravel()[where] = atoms.ravel()[first] & (first == last)
    return result


def compress_ranks(values: FloatArray, edges: IntArray, compression: int) -> Centroids:
    """Return the centroids of distinct finite values of weight 1 (columns, m), ascending in rows.

    The fast path: the centroids begin at the same ranks ``edges`` in every row.
    """
    columns, m = values.shape
    size = np.diff(np.append(edges, m)).astype(np.float64)
    result = Centroids.empty(columns, capacity(compression))
    mean = result.mean[:, : edges.size]
    np.divide(np.add.reduceat(values, edges, axis=1), size, out=mean)
    # Rounding must not carry a mean past the values it stands for.
    np.clip(mean, values[:, edges], values[:, np.append(edges[1:], m) - 1], out=mean)
    result.weight[:, : edges.size] = size
    result.atom[:, : edges.size] = size == 1
    return result


def _open_units(
    right: FloatArray,
    weight: FloatArray,
    atom: BoolArray,
    row: IntArray,
    new_row: BoolArray,
    total: FloatArray,
    compression: int,
) -> BoolArray:
    """Return where a centroid begins, for entries of rows that must be compressed."""
    mass = total[row]
    middle = np.clip((right - weight / 2) / mass, 0.0, 1.0)
    unit = _unit(middle, compression)
    opens: BoolArray = new_row | np.r_[True, unit[1:] != unit[:-1]]
    heavy = _heavy(atom, weight, middle, mass, compression)
    if heavy.any():
        apart = opens | heavy | np.r_[False, heavy[:-1]]
        fits = np.bincount(row, weights=apart, minlength=total.size) <= capacity(compression)
        opens[fits[row]] = apart[fits[row]]
    return opens


def _heavy(
    atom: BoolArray, weight: FloatArray, middle: FloatArray, total: FloatArray, compression: int
) -> BoolArray:
    """Return the atoms that stay alone: mixed with its neighbours one would no longer be exact.

    The unit at q is pi sqrt(q (1 - q)) / compression wide, and they are as wide as that.
    """
    wide = np.pi / compression * np.sqrt(middle * (1 - middle))
    heavy: BoolArray = atom & (weight >= wide * total)
    return heavy


def _unit(middle: FloatArray, compression: int) -> FloatArray:
    return np.minimum(np.floor(scale_units(middle, compression)), compression - 1)


def _means(
    value: FloatArray, weight: FloatArray, first: IntArray, last: IntArray
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return mean, weight, and whether it has one entry, of the runs first..last."""
    mass = np.add.reduceat(weight, first)
    share = weight / np.repeat(mass, last - first + 1)
    # Shares sum to 1, so that no sum of ±1e308 overflows but by rounding, which the clip undoes.
    with np.errstate(over="ignore"):
        mean = np.add.reduceat(share * value, first)
    return np.clip(mean, value[first], value[last]), mass, first == last


def _places(row: IntArray, columns: int) -> IntArray:
    """Return 0, 1, 2, … within each run of equal ``row`` (ascending)."""
    before = np.cumsum(np.bincount(row, minlength=columns)) - np.bincount(row, minlength=columns)
    places: IntArray = np.arange(row.size) - before[row]
    return places
