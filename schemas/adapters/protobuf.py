"""ModelInferRequest and ModelInferResponse (Open Inference Protocol, gRPC) from their bytes.

A reader of the wire format and of these two messages alone: no generated code, no dependency.
https://github.com/kserve/open-inference-protocol, specification/protocol/open_inference_grpc.proto
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from attributary.schemas.adapters.side import Side
from attributary.schemas.adapters.tensors import raw_values, rows_of, tensor
from attributary.schemas.errors import Reason, RejectedError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_TENSORS = 10_000
# Of InferTensorContents: the field of each datatype's values.
_BOOL, _INT32, _INT64, _UINT32, _UINT64, _FLOAT, _DOUBLE, _STRINGS = range(1, 9)


class InferMessage(NamedTuple):
    """What a message says; ``side`` None: it has no tensors."""

    model: str | None
    id: str | None
    side: Side | None


def read_infer(data: bytes, *, response: bool) -> InferMessage:
    """Return a ModelInferRequest, or a ModelInferResponse; RejectedError: the bytes are none."""
    tensors: list[bytes] = []
    raw: list[bytes] = []
    model = name = None
    for number, value in _fields(data):
        if number == 1:
            model = _text(value)
        elif number == 3:
            name = _text(value)
        elif number == 5:
            tensors.append(_bytes(value))
        elif number == (6 if response else 7):
            raw.append(_bytes(value))
        if len(tensors) > _MOST_TENSORS:
            raise RejectedError(Reason.TOO_LARGE, f"more than {_MOST_TENSORS} tensors")
    if raw and len(raw) != len(tensors):
        raise RejectedError(
            Reason.NOT_DECODABLE, f"{len(raw)} raw contents for {len(tensors)} tensors"
        )
    found = [_tensor(each, raw[i] if raw else None) for i, each in enumerate(tensors)]
    what = "outputs" if response else "inputs"
    return InferMessage(model or None, name or None, rows_of(found, what) if found else None)


def _tensor(data: bytes, raw: bytes | None) -> Any:
    name = datatype = ""
    shape: list[int] = []
    contents: list[Any] = []
    for number, value in _fields(data):
        if number == 1:
            name = _text(value)
        elif number == 2:
            datatype = _text(value)
        elif number == 3:
            shape += _integers(value)
        elif number == 5:
            contents = _contents(_bytes(value))
    values = contents if raw is None else raw_values(datatype, raw, name)
    return tensor(name, datatype, shape, values)


def _contents(data: bytes) -> list[Any]:
    found: list[Any] = []
    for number, value in _fields(data):
        if number == _BOOL:
            found += [bool(each) for each in _integers(value)]
        elif number in (_INT32, _INT64):
            found += _integers(value)
        elif number in (_UINT32, _UINT64):
            found += [each % 2**64 for each in _integers(value)]
        elif number in (_FLOAT, _DOUBLE):
            found += _floats(value, "<f4" if number == _FLOAT else "<f8")
        elif number == _STRINGS:
            found.append(_bytes(value).decode("utf-8", "replace"))
    return found


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (number, value) of a message: an integer for a varint, bytes for anything else."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise _broken("a field has the number 0")
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise _broken(f"wire type {wire}")
        if size > end - at:
            raise _broken("a field reaches beyond the end")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise _broken("a number is cut, or too long")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _integers(value: int | bytes) -> list[int]:
    """Return signed integers, packed or one by one."""
    if isinstance(value, int):
        return [_signed(value)]
    found, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        found.append(_signed(number))
    return found


def _signed(value: int) -> int:
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


def _floats(value: int | bytes, kind: str) -> list[float]:
    try:
        return list(np.frombuffer(_bytes(value), kind).tolist())
    except (ValueError, struct.error):
        raise _broken("packed numbers are cut") from None


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise _broken("a number where text or a message belongs")
    return value


def _text(value: int | bytes) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError:
        raise _broken("text is not UTF-8") from None


def _broken(what: str) -> RejectedError:
    return RejectedError(Reason.NOT_DECODABLE, f"not a protobuf message of the V2 protocol: {what}")
