"""Tensors of every type, raw and in protobuf, against struct and the protobuf library."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from attributary.schemas.adapters.protobuf import read_infer
from attributary.schemas.adapters.tensors import from_json, raw_values
from attributary.schemas.errors import RejectedError

_INTEGERS = {
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
}
_Field = descriptor_pb2.FieldDescriptorProto
_CONTENTS = (
    ("bool_contents", _Field.TYPE_BOOL),
    ("int_contents", _Field.TYPE_INT32),
    ("int64_contents", _Field.TYPE_INT64),
    ("uint_contents", _Field.TYPE_UINT32),
    ("uint64_contents", _Field.TYPE_UINT64),
    ("fp32_contents", _Field.TYPE_FLOAT),
    ("fp64_contents", _Field.TYPE_DOUBLE),
    ("bytes_contents", _Field.TYPE_BYTES),
)
_BY_TYPE = {
    "BOOL": ("bool_contents", [True, False, True]),
    "INT8": ("int_contents", [-128, 127, 0]),
    "INT32": ("int_contents", [-(2**31), 2**31 - 1, -1]),
    "INT64": ("int64_contents", [-(2**63), 2**63 - 1, -1]),
    "UINT32": ("uint_contents", [0, 2**32 - 1, 7]),
    "UINT64": ("uint64_contents", [0, 2**64 - 1, 7]),
    "FP32": ("fp32_contents", [1.5, -0.25, 3e38]),
    "FP64": ("fp64_contents", [0.1, -1e300, 5e-324]),
    "BYTES": ("bytes_contents", [b"red", "grün".encode(), b""]),
}


def _message(name: str) -> Any:
    """Return the class of a message of the protocol, built from its published field numbers."""
    file = descriptor_pb2.FileDescriptorProto(name="infer.proto", package="i", syntax="proto3")
    contents = file.message_type.add(name="Contents")
    for number, (field, kind) in enumerate(_CONTENTS, 1):
        contents.field.add(name=field, number=number, type=kind, label=3)
    tensor = file.message_type.add(name="Tensor")
    tensor.field.add(name="name", number=1, type=_Field.TYPE_STRING, label=1)
    tensor.field.add(name="datatype", number=2, type=_Field.TYPE_STRING, label=1)
    tensor.field.add(name="shape", number=3, type=_Field.TYPE_INT64, label=3)
    tensor.field.add(
        name="contents", number=5, type=_Field.TYPE_MESSAGE, type_name=".i.Contents", label=1
    )
    for kind, raw in (("Request", 7), ("Response", 6)):
        message = file.message_type.add(name=kind)
        for field, number in (("model_name", 1), ("model_version", 2), ("id", 3)):
            message.field.add(name=field, number=number, type=_Field.TYPE_STRING, label=1)
        message.field.add(
            name="tensors", number=5, type=_Field.TYPE_MESSAGE, type_name=".i.Tensor", label=3
        )
        message.field.add(name="raw", number=raw, type=_Field.TYPE_BYTES, label=3)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"i.{name}"))


def _single(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


@pytest.mark.parametrize("datatype", _INTEGERS)
def test_raw_integers_are_those_that_were_packed(datatype: str) -> None:
    code = _INTEGERS[datatype]
    bits = 8 * struct.calcsize(f"<{code}")
    values = [0, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)) if code.islower() else 2**bits - 1]
    assert raw_values(datatype, struct.pack(f"<3{code}", *values), "x") == values


def test_raw_numbers_of_other_types_are_those_that_were_packed() -> None:
    assert raw_values("BOOL", b"\x01\x00", "x") == [True, False]
    assert raw_values("FP16", struct.pack("<2e", 1.5, -0.25), "x") == [1.5, -0.25]
    assert raw_values("FP32", struct.pack("<2f", 1.5, -0.1), "x") == [1.5, _single(-0.1)]
    assert raw_values("FP64", struct.pack("<d", 0.1), "x") == [0.1]
    # bfloat16 is the upper half of a float32.
    assert raw_values("BF16", struct.pack("<f", -2.5)[2:], "x") == [-2.5]
    texts = b"".join(struct.pack("<I", len(t)) + t for t in (b"red", b"", "ä".encode()))
    assert raw_values("BYTES", texts, "x") == ["red", "", "ä"]


@pytest.mark.parametrize(("datatype", "size"), [("FP64", 7), ("INT16", 3), ("BYTES", 3), ("X", 8)])
def test_raw_bytes_that_are_cut_or_of_no_type_are_refused(datatype: str, size: int) -> None:
    with pytest.raises(RejectedError):
        raw_values(datatype, b"\x01" * size, "x")


@pytest.mark.parametrize("response", [False, True])
@pytest.mark.parametrize("datatype", _BY_TYPE)
def test_protobuf_contents_are_what_the_library_wrote(datatype: str, *, response: bool) -> None:
    field, values = _BY_TYPE[datatype]
    message = _message("Response" if response else "Request")(model_name="m", id="7")
    message.tensors.add(name="x", datatype=datatype, shape=[3, 1], contents={field: list(values)})
    found = read_infer(message.SerializeToString(), response=response)
    assert (found.model, found.id) == ("m", "7")
    assert found.side is not None
    expected = [v.decode() if isinstance(v, bytes) else v for v in values]
    if datatype == "FP32":
        expected = [_single(v) for v in values]
    assert [row["x"] for row in found.side.rows] == expected


@pytest.mark.parametrize("response", [False, True])
def test_raw_contents_go_to_their_tensors_in_order(*, response: bool) -> None:
    message = _message("Response" if response else "Request")()
    message.tensors.add(name="a", datatype="INT32", shape=[2, 1])
    message.tensors.add(name="b", datatype="FP64", shape=[2, 2])
    message.raw.extend([struct.pack("<2i", 1, 2), struct.pack("<4d", 3, 4, 5, 6)])
    side = read_infer(message.SerializeToString(), response=response).side
    assert side is not None
    assert side.rows == [{"a": 1, "b[0]": 3, "b[1]": 4}, {"a": 2, "b[0]": 5, "b[1]": 6}]


def test_nested_and_flat_data_are_the_same_rows() -> None:
    rng = random.Random(1)
    values = [rng.random() for _ in range(24)]
    flat = {"name": "x", "datatype": "FP64", "shape": [4, 3, 2], "data": values}
    nested = {
        **flat,
        "data": [[values[i + j : i + j + 2] for j in (0, 2, 4)] for i in range(0, 24, 6)],
    }
    first, second = (from_json(json.loads(json.dumps([t])), b"", "x") for t in (flat, nested))
    assert first == second
    assert first.rows[1] == {f"x[{place}]": values[6 + place] for place in range(6)}
