"""Byte form of a co-movement grid: occupied cells only, and nothing that can be derived.

Most cells of a pane are empty: a 0/1 column has two cell columns of sixteen, and 200 rows cannot
fill 256 cells. So occupancy is a bitmap; counts up to 254 take one byte; sums that are zero (about
the reference) or, for Σ xy, that follow from the others (a cell of one row, or of one value) take
one bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from attributary.workers.maths.wire import IncompatibleStateError, pack, unpack

if TYPE_CHECKING:
    from attributary.workers.maths.comovement import CoMovement

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]

MAGIC = b"CMOV"
VERSION = 1
_ESCAPE = 255
#: Relative difference below which a float32 Σ xy counts as derived: four units in the last place.
_DERIVED = 4 * 2.0**-23
#: Above this, sums leave float32's range once added; the whole state is then written as float64.
_FLOAT32_LIMIT = 1e37


def encode(state: CoMovement, dtype: np.dtype[Any]) -> bytes:
    """Return the bytes of ``state`` with its sums in ``dtype``, float32 or float64."""
    if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise TypeError(f"sums travel as float32 or float64, not {dtype}")
    sums = (state.cells, state.moments, state.squares)
    if any(np.abs(part).max(initial=0.0) > _FLOAT32_LIMIT for part in sums):
        dtype = np.dtype(np.float64)
    counted = state.unit_weights
    mass_derived = counted and np.array_equal(state.x_mass, state.cells[0, 0].sum(axis=-1))
    head = np.array(
        [state.columns, state.outputs, state.size, counted, mass_derived], dtype=np.uint32
    )
    arrays: list[Array] = [head]
    for edges in (state.x_edges, state.y_edges):
        arrays += _sparse_rows(edges)
    arrays += [state.x_reference, state.y_reference]
    arrays += _cells(state.cells.reshape(4, -1), counted, dtype)
    arrays.append(state.moments.astype(dtype))
    arrays += _nonzero(state.squares[2:] if counted else state.squares, dtype)
    arrays += [] if mass_derived else _nonzero(state.x_mass, dtype)
    arrays += _nonzero(state.y_mass, dtype)
    arrays += [state.x_range, state.y_range]
    return pack(MAGIC, VERSION, arrays)


def decode(
    data: bytes | memoryview,
) -> tuple[tuple[Floats, Floats, Floats, Floats], Callable[[CoMovement], None]]:
    """Return the arguments that build the grid of ``data``, and what fills in its sums."""
    arrays = iter(unpack(data, MAGIC, VERSION))
    try:
        d, c, K, counted, mass_derived = (int(value) for value in next(arrays))
        if d * c * K * K > 8 * len(data) or K < 2:
            raise IncompatibleStateError(
                f"{len(data)} bytes cannot hold the cells of {d} features, {c} outputs, {K} cells"
            )
        x_edges = _read_rows(arrays, (d, K - 1))
        y_edges = _read_rows(arrays, (c, K - 1))
        references = next(arrays), next(arrays)
        cells = _read_cells(arrays, c * d * K * K, bool(counted)).reshape(4, c, d, K, K)
        moments = next(arrays).astype(np.float64).reshape(2, 3, 3, c, d)
        squares = np.zeros((3, c, d, K))
        squares[2 if counted else 0 :] = _read_nonzero(arrays, (1 if counted else 3, c, d, K))
        x_mass = cells[0, 0].sum(axis=-1) if mass_derived else _read_nonzero(arrays, (d, K))
        y_mass = _read_nonzero(arrays, (c, K))
        ranges = next(arrays).reshape(2, d), next(arrays).reshape(2, c)
    except (StopIteration, ValueError, IndexError, TypeError, OverflowError) as error:
        if isinstance(error, IncompatibleStateError):
            raise
        raise IncompatibleStateError(f"co-movement bytes are damaged: {error}") from None

    def fill(state: CoMovement) -> None:
        state.cells, state.moments, state.squares = cells, moments, squares
        state.x_mass, state.y_mass = x_mass, y_mass
        state.x_range, state.y_range = ranges
        state.unit_weights = bool(counted)

    return (x_edges, y_edges, *references), fill


def _cells(cells: Floats, counted: bool, dtype: np.dtype[Any]) -> list[Array]:
    n = cells[0]
    occupied = n != 0.0
    held = cells[:, occupied]
    arrays: list[Array] = [np.packbits(occupied)]
    n, sx, sy, sxy = held.astype(dtype)
    if counted:
        small = held[0] < _ESCAPE
        arrays.append(np.where(small, held[0], _ESCAPE).astype(np.uint8))
        arrays.append(held[0][~small].astype(np.uint64))
        n = held[0].astype(dtype)
    else:
        arrays.append(n)
    arrays += _nonzero(sx, dtype)
    arrays += _nonzero(sy, dtype)
    follows = _derived(n, sx, sy)
    near = _DERIVED if dtype == np.float32 else 0.0
    stated = ~(np.abs(sxy - follows) <= near * np.abs(follows))
    return [*arrays, np.packbits(stated), sxy[stated]]


def _read_cells(arrays: Iterator[Array], size: int, counted: bool) -> Floats:
    occupied = _bits(next(arrays), size)
    held = int(occupied.sum())
    if counted:
        exact = next(arrays).astype(np.float64)
        exact[exact == _ESCAPE] = next(arrays)
    else:
        exact = next(arrays)
    sx, sy = (_read_nonzero(arrays, (held,), keep=True) for _ in range(2))
    stated = _bits(next(arrays), held)
    sxy = _derived(exact.astype(sx.dtype), sx, sy)
    sxy[stated] = next(arrays)
    cells = np.zeros((4, size))
    cells[:, occupied] = np.stack([exact, sx, sy, sxy])
    return cells


def _derived(n: Array, sx: Array, sy: Array) -> Array:
    """Return Σ xy of a cell whose x or y is a single value, in the precision given."""
    with np.errstate(over="ignore"):
        product: Array = (sx / n) * sy
    return product


def _nonzero(values: Array, dtype: np.dtype[Any]) -> list[Array]:
    """Return a bitmap of the values that are not zero, and these in ``dtype``."""
    flat = values.astype(dtype).ravel()
    kept = flat != 0.0
    return [np.packbits(kept), flat[kept]]


def _read_nonzero(arrays: Iterator[Array], shape: tuple[int, ...], keep: bool = False) -> Array:
    """Undo ``_nonzero``; ``keep`` leaves the dtype, which the derivation of Σ xy needs."""
    kept = _bits(next(arrays), int(np.prod(shape)))
    stated = next(arrays)
    values = np.zeros(shape, dtype=stated.dtype if keep else np.float64)
    values.reshape(-1)[kept] = stated
    return values


def _sparse_rows(edges: Floats) -> list[Array]:
    """Return the edges of a 0/1 column as its few distinct values."""
    fresh = np.ones(edges.shape, dtype=bool)
    fresh[:, 1:] = edges[:, 1:] != edges[:, :-1]
    return [np.packbits(fresh), edges[fresh]]


def _read_rows(arrays: Iterator[Array], shape: tuple[int, int]) -> Floats:
    fresh = _bits(next(arrays), shape[0] * shape[1])
    distinct = next(arrays)
    if shape[0] and not fresh.reshape(shape)[:, 0].all():
        raise IncompatibleStateError("co-movement bytes are damaged: a column without edges")
    rows: Floats = distinct[np.cumsum(fresh) - 1].reshape(shape)
    return rows


def _bits(packed: Array, size: int) -> npt.NDArray[np.bool_]:
    if packed.dtype != np.uint8 or packed.size != -(-size // 8):
        raise IncompatibleStateError(f"a bitmap of {size} bits, got {packed.size} bytes")
    return np.unpackbits(packed, count=size).astype(bool)
