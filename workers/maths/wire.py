"""Byte form shared by every accumulator: a magic, a version, and its arrays in order.

Layout (little endian): 4 bytes magic, uint8 version, uint16 number of arrays, then per array one
byte length and the dtype's name (numpy's ``str``), uint8 dimensions, uint32 per dimension, the raw values.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_HEAD = struct.Struct("<4sBH")
_DTYPES = frozenset({"<f8", "<f4", "<i8", "<i4", "<u8", "<u4", "|u1", "|b1"})


class IncompatibleStateError(ValueError):
    """Bytes that are not this accumulator's, come from a newer version, or are damaged."""


def pack(magic: bytes, version: int, arrays: Sequence[npt.NDArray[Any]]) -> bytes:
    """Return ``arrays`` as bytes; only fixed-width numeric and boolean dtypes are allowed."""
    parts = [_HEAD.pack(magic, version, len(arrays))]
    for array in arrays:
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        name = little.dtype.str.encode()
        if name.decode() not in _DTYPES:
            raise TypeError(f"cannot pack dtype {array.dtype}; use one of {sorted(_DTYPES)}")
        parts.append(struct.pack(f"<B{len(name)}sB", len(name), name, array.ndim))
        parts.append(struct.pack(f"<{array.ndim}I", *array.shape))
        parts.append(little.tobytes())
    return b"".join(parts)


def unpack(data: bytes | memoryview, magic: bytes, version: int) -> list[npt.NDArray[Any]]:
    """Return the arrays of ``data``, each a fresh writable copy.

    Raises IncompatibleStateError where the magic differs, the version is newer than ``version``,
    or the bytes are too few, too many, or name a dtype that ``pack`` never writes.
    """
    view = memoryview(data)
    if len(view) < _HEAD.size:
        raise IncompatibleStateError(f"{len(view)} bytes are too few for a header of {_HEAD.size}")
    found, written, count = _HEAD.unpack_from(view)
    if found != magic:
        raise IncompatibleStateError(f"expected the magic {magic!r}, got {found!r}")
    if written > version:
        raise IncompatibleStateError(
            f"{magic!r} was written by version {written}, this build reads up to {version}; upgrade"
        )
    offset = _HEAD.size
    arrays: list[npt.NDArray[Any]] = []
    try:
        for _ in range(count):
            (length,) = struct.unpack_from("<B", view, offset)
            name, ndim = struct.unpack_from(f"<{length}sB", view, offset + 1)
            if name.decode("ascii", "replace") not in _DTYPES:
                raise IncompatibleStateError(f"{magic!r} holds an unknown dtype {name!r}")
            offset += 2 + length
            shape = struct.unpack_from(f"<{ndim}I", view, offset)
            offset += 4 * ndim
            dtype = np.dtype(name.decode())
            size = dtype.itemsize
            for extent in shape:
                size *= extent
            if size > len(view) - offset:
                raise IncompatibleStateError(f"{magic!r} is truncated: {size} bytes expected")
            flat = np.frombuffer(view[offset : offset + size], dtype=dtype)
            arrays.append(flat.reshape(shape).astype(dtype.newbyteorder("="), copy=True))
            offset += size
    except IncompatibleStateError:
        raise
    # ValueError: a shape that numpy cannot make, such as one of 65 dimensions.
    except (struct.error, ValueError) as error:
        raise IncompatibleStateError(f"{magic!r} is damaged: {error}") from None
    if offset != len(view):
        raise IncompatibleStateError(f"{magic!r} has {len(view) - offset} bytes left over")
    return arrays
