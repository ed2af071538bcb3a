"""Tensors of the Open Inference Protocol (version 2): JSON, and raw bytes in little-endian order.

https://github.com/kserve/open-inference-protocol, with the binary tensor data extension.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from attributary.schemas.adapters.side import MAX_VALUES, Side, check_count
from attributary.schemas.errors import Reason, RejectedError

_RAW = {
    "BOOL": "?",
    "UINT8": "u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}
DATATYPES = {*_RAW, "BF16", "BYTES"}


class Tensor(NamedTuple):
    """A tensor; ``data`` is flat, in row-major order."""

    name: str
    shape: tuple[int, ...]
    data: list[Any]


def tensor(name: Any, datatype: Any, shape: Any, data: list[Any]) -> Tensor:
    """Return a checked tensor; RejectedError: the parts do not fit together."""
    if not isinstance(name, str) or not name:
        raise RejectedError(Reason.WRONG_TYPE, "a tensor has no name")
    if datatype not in DATATYPES:
        raise RejectedError(Reason.WRONG_TYPE, f"tensor {name!r:.60}: datatype {datatype!r:.40}")
    sizes = _shape(name, shape)
    if math.prod(sizes) != len(data):
        raise RejectedError(
            Reason.WRONG_TYPE,
            f"tensor {name!r:.60}: {len(data)} values for the shape {list(sizes)!s:.60}",
        )
    return Tensor(name, sizes, data)


def from_json(tensors: Any, tail: bytes, what: str) -> Side:
    """Return the rows of a list of tensors as JSON; ``tail`` holds what is sent in binary."""
    if not isinstance(tensors, list):
        raise RejectedError(Reason.WRONG_TYPE, f"{what}: expected a list of tensors")
    found, at = [], 0
    for given in tensors:
        if not isinstance(given, dict):
            raise RejectedError(Reason.WRONG_TYPE, f"{what}: a tensor is an object")
        name, datatype, shape = given.get("name"), given.get("datatype"), given.get("shape")
        parameters = given.get("parameters")
        size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        if size is None:
            data = _flat(given.get("data"), name)
        else:
            if not (isinstance(size, int) and 0 <= size <= len(tail) - at):
                raise RejectedError(
                    Reason.NOT_DECODABLE,
                    f"tensor {name!r:.60}: {size!r:.40} bytes are said to follow, "
                    f"{len(tail) - at} do",
                )
            data = raw_values(str(datatype), tail[at : at + size], str(name))
            at += size
        found.append(tensor(name, datatype, shape, data))
    return rows_of(found, what)


def raw_values(datatype: str, data: bytes, name: str) -> list[Any]:
    """Return the values of a tensor's bytes; RejectedError: they are cut, or of a type that has none."""
    if datatype == "BYTES":
        return _strings(data, name)
    try:
        if datatype == "BF16":
            wide = np.frombuffer(data, "<u2").astype("<u4") << 16
            return list(wide.view("<f4").tolist())
        return list(np.frombuffer(data, _RAW[datatype]).tolist())
    except (KeyError, ValueError) as error:
        raise RejectedError(
            Reason.NOT_DECODABLE, f"tensor {name!r:.60}: raw {datatype:.20}: {error}"
        ) from None


def rows_of(tensors: Sequence[Tensor], what: str) -> Side:
    """Return the rows of tensors (rows, ...): a tensor with one value a row is a column of its name,
    others have ``name[0]``, ``name[1]``, ..."""
    if not tensors:
        raise RejectedError(Reason.EMPTY, f"{what} holds no tensor")
    names: list[str] = []
    found: list[list[Any]] = []
    rows = tensors[0].shape[0] if tensors[0].shape else 1
    check_count(rows, what)
    for each in tensors:
        if (each.shape[0] if each.shape else 1) != rows:
            raise RejectedError(
                Reason.WRONG_TYPE,
                f"{what}: tensor {each.name!r:.60} has the shape {list(each.shape)!s:.60}, the first "
                f"one {rows} rows",
            )
        width = len(each.data) // rows
        if len(names) + width > MAX_VALUES:
            raise RejectedError(Reason.TOO_LARGE, f"{what}: more than {MAX_VALUES} values a row")
        if width == 0:
            continue
        names += _columns(each.name, width)
        cut = [each.data[at : at + width] for at in range(0, rows * width, width)]
        if not found:
            found = cut
            continue
        for row, more in zip(found, cut, strict=True):
            row += more
    if not names:
        raise RejectedError(Reason.EMPTY, f"{what}: the tensors hold no value")
    if len(set(names)) != len(names):
        raise RejectedError(Reason.WRONG_TYPE, f"{what}: two tensors have one name")
    named = [dict(zip(names, row, strict=True)) for row in found]
    return Side(named, positional=len(tensors) == 1)


@lru_cache(maxsize=1000)
def _columns(name: str, width: int) -> list[str]:
    return [name] if width == 1 else [f"{name}[{place}]" for place in range(width)]


def _shape(name: str, shape: Any) -> tuple[int, ...]:
    if not (
        isinstance(shape, (list, tuple))
        and len(shape) <= 32
        and all(type(size) is int and 0 <= size < 2**31 for size in shape)
    ):
        raise RejectedError(Reason.WRONG_TYPE, f"tensor {name!r:.60}: shape {shape!r:.60}")
    return tuple(shape)


def _flat(data: Any, name: Any) -> list[Any]:
    """Return nested lists as one, level by level: they may be flat or as deep as the shape."""
    if not isinstance(data, list):
        raise RejectedError(Reason.WRONG_TYPE, f"tensor {name!r:.60}: 'data' must be a list")
    found: list[Any] = data
    for _ in range(32):
        if list not in set(map(type, found)):
            return found
        found = [leaf for each in found for leaf in (each if isinstance(each, list) else [each])]
    raise RejectedError(Reason.WRONG_TYPE, f"tensor {name!r:.60} is nested too deeply")


def _strings(data: bytes, name: str) -> list[Any]:
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        end = at + 4 + size
        if end > len(data):
            raise RejectedError(Reason.NOT_DECODABLE, f"tensor {name!r:.60}: its bytes are cut")
        found.append(data[at + 4 : end].decode("utf-8", "replace"))
        at = end
    return found
