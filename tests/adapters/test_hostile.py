"""Broken, huge and malicious messages: each is rows that ingest takes, or a refusal; never another error."""

from __future__ import annotations

import base64
import json
import random
import time
from typing import Any

import pytest
from foreign import adapter, sample

from attributary.schemas.adapters.convert import Converter
from attributary.schemas.adapters.formats import FORMATS, MAX_MESSAGE_BYTES, Adapter
from attributary.schemas.adapters.inference import Naming
from attributary.schemas.adapters.message import ForeignMessage
from attributary.schemas.adapters.pairing import Place
from attributary.schemas.adapters.recorded import read_recorded
from attributary.schemas.errors import Reason, RejectedError
from attributary.schemas.row import Row, decode_json_rows, encode_row

_PLACE = Place(("t", 0), 0)
_WORDS = (
    b"null",
    b"-1",
    b"1e999",
    b"NaN",
    b"9" * 400,
    b"[]",
    b"{}",
    b'""',
    b'"\\ud800"',
    b"true",
    b"[[[1,2],[3]]]",
    b'{"a":{"a":1}}',
)


def _read(name: str, message: ForeignMessage, naming: Naming | None = None) -> list[Row]:
    """Return the rows of one message alone; those that there are must be rows to ingest too."""
    own = adapter(name) if naming is None else Adapter(name, naming)
    converter = Converter(own)
    found = converter.add(message, _PLACE, 0.0, named=True)
    rows = [row for group in found.groups for row in group.rows]
    for row in rows:
        assert len(decode_json_rows(encode_row(row)).rows) == 1
    return rows


def _mutated(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    kind = rng.randrange(5)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    if kind == 2:
        return data[:at] + data[at + rng.randrange(1, 30) :]
    if kind == 3:  # another value in the place of a number
        starts = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
        first = rng.choice(starts) if starts else at
        last = first
        while last < len(data) and data[last] in b"0123456789.e-":
            last += 1
        return data[:first] + rng.choice(_WORDS) + data[last:]
    return data[:at] + data[:at] + data[at:]


@pytest.mark.parametrize("name", FORMATS)
def test_a_mutated_message_is_rows_or_a_refusal(name: str) -> None:
    rng = random.Random(name)
    messages = [read_recorded(line) for line in sample(name)]
    refused = 0
    for _ in range(400):
        message = rng.choice(messages)
        broken = ForeignMessage(
            _mutated(message.value, rng),
            message.key,
            message.headers,
            message.topic,
            message.timestamp,
        )
        try:
            _read(name, broken)
        except RejectedError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("value", [b"", b"  ", b"\x00\xff", b"1", b'"text"', b"[]", b"{}", b"nan"])
def test_what_is_none_of_a_format_is_refused(name: str, value: bytes) -> None:
    message = ForeignMessage(value, b"k", {"ce_id": b"1"}, "seldon.default.model.churn.inputs")
    if name == "kserve":
        message = ForeignMessage(value, headers={"ce_id": b"1", "ce_type": b"a.inference.request"})
    try:
        rows = _read(name, message)
    except RejectedError:
        return
    assert name == "mapping", "only a mapping can say that a message is not wanted"
    assert rows == []


@pytest.mark.parametrize("name", ["v2", "tfserving", "mlflow", "sagemaker", "mapping"])
def test_a_deeply_nested_message_is_refused(name: str) -> None:
    deep: Any = "[" * 100_000 + "]" * 100_000
    with pytest.raises(RejectedError):
        _read(name, ForeignMessage(f'{{"instances": {deep}}}'.encode(), b"k"))


def test_a_message_that_is_too_large_is_refused_unread() -> None:
    with pytest.raises(RejectedError) as found:
        _read("tfserving", ForeignMessage(b"[" * (MAX_MESSAGE_BYTES + 1), b"k"))
    assert found.value.reason is Reason.TOO_LARGE


def _v2(shape: Any, data: Any, **more: Any) -> ForeignMessage:
    tensor = {"name": "x", "shape": shape, "datatype": "FP64", "data": data, **more}
    answer = {"outputs": [{"name": "y", "shape": [1], "datatype": "FP64", "data": [1.0]}]}
    wrapped = {"request": {"inputs": [tensor]}, "response": answer}
    return ForeignMessage(json.dumps(wrapped).encode())


@pytest.mark.parametrize(
    ("shape", "data"),
    [
        ([2**31, 1], [1.0]),
        ([2**30, 2**30], [1.0]),
        ([1, 3], [1.0, 2.0]),
        ([-1, -1], [1.0]),
        ([1.0], [1.0]),
        ([True], [1.0]),
        ("1", [1.0]),
        ([0], []),
        ([1, 0], []),
        ([1, 20_000], [0.0] * 20_000),
        ([2], [1.0, 2.0]),
        (None, [1.0]),
        ([1], 1.0),
    ],
)
def test_a_tensor_whose_shape_does_not_fit_is_refused(shape: Any, data: Any) -> None:
    with pytest.raises(RejectedError):
        _read("v2", _v2(shape, data), Naming(model="m"))


def test_binary_tensors_that_reach_beyond_the_message_are_refused() -> None:
    head = json.dumps(
        {
            "id": "1",
            "inputs": [
                {
                    "name": "x",
                    "shape": [1],
                    "datatype": "FP64",
                    "parameters": {"binary_data_size": 8},
                }
            ],
        }
    ).encode()
    for length in (str(len(head)), str(len(head) * 99), "-1", "x", "9" * 5000):
        message = ForeignMessage(
            head + b"1234567", headers={"inference-header-content-length": length.encode()}
        )
        with pytest.raises(RejectedError):
            _read("v2", message, Naming(model="m"))


@pytest.mark.parametrize(
    "value",
    [
        b"\x2a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a tensor of 2^63 bytes
        b"\xff" * 30,
        b"\x2a\x05\x0a\x03abc",  # a tensor without a shape or contents
        b"\x2b",
        b"\x00\x00",
        b"\x2a\x07\x0a\x01x\x12\x02\xff\xfe",
    ],
)
def test_a_broken_protobuf_message_is_refused(value: bytes) -> None:
    with pytest.raises(RejectedError):
        _read("seldon", ForeignMessage(value, b"k", {}, "seldon.a.model.m.inputs"), Naming())


def test_objects_with_keys_of_their_own_cost_no_more_than_their_bytes() -> None:
    instances = [{f"k{i}": 1} for i in range(50_000)]
    body = {"instances": instances, "predictions": [0.5] * len(instances)}
    started = time.monotonic()
    rows = _read("tfserving", ForeignMessage(json.dumps(body).encode()), Naming(model="m"))
    assert len(rows) == 50_000
    assert time.monotonic() - started < 10


def test_nan_and_null_features_are_missing_and_nan_outputs_are_none() -> None:
    body = b'{"instances": [{"a": NaN, "b": null, "c": true}], "predictions": [[NaN, 1]]}'
    (row,) = _read("tfserving", ForeignMessage(body), Naming(model="m"))
    assert row.features["a"] != row.features["a"]
    assert (row.features["b"], row.features["c"], row.outputs) == (None, True, [None, 1.0])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"instances": [[1, 2]], "predictions": ["yes"]}, "no output is a number"),
        ({"instances": [[1, 2], [3, 4]], "predictions": [1]}, "2 rows were asked for and 1 answer"),
        ({"instances": [[1, 2], [3]], "predictions": [1, 2]}, "differ in length"),
        ({"instances": [[1, 2], {"a": 1}], "predictions": [1, 2]}, "mixed"),
        ({"instances": [{"a" * 600: 1}], "predictions": [1]}, "1 to 500 characters"),
        ({"instances": [{"a": "x" * 600}], "predictions": [1]}, "at most 500 characters"),
        ({"instances": [[10**400]], "predictions": [1]}, "beyond float64"),
        ({"instances": [[1]], "predictions": [10**400]}, "an output is a number"),
        ({"instances": [["\ud800"]], "predictions": [1]}, "surrogate"),
    ],
)
def test_a_refusal_says_what_is_wrong(body: Any, said: str) -> None:
    with pytest.raises(RejectedError, match=said):
        _read("tfserving", ForeignMessage(json.dumps(body).encode()), Naming(model="m"))


def test_of_a_batch_only_the_bad_rows_are_lost() -> None:
    body = {"instances": [{"a": 1}, {"a": "x" * 600}, {"a": 3}], "predictions": [1, 2, 3]}
    converter = Converter(Adapter("tfserving", Naming(model="m")))
    found = converter.add(ForeignMessage(json.dumps(body).encode()), _PLACE, 0.0, named=True)
    assert [row.features["a"] for row in found.groups[0].rows] == [1, 3]
    assert [row.id for row in found.groups[0].rows] == ["t/0/0/0", "t/0/0/2"]
    assert [(error.index, error.reason) for error in found.errors] == [(1, Reason.WRONG_TYPE)]


def test_a_recorded_line_whose_base64_is_broken_is_refused() -> None:
    with pytest.raises(RejectedError, match="base64"):
        read_recorded(b'{"topic": "t", "payload_base64": "%%%"}')
    with pytest.raises(RejectedError, match="base64"):
        _read(
            "sagemaker",
            ForeignMessage(
                json.dumps(
                    {
                        "captureData": {
                            "endpointInput": {
                                "data": base64.b64encode(b"\xff\xfe").decode(),
                                "encoding": "BASE64",
                            },
                            "endpointOutput": {"data": "1", "encoding": "CSV"},
                        }
                    }
                ).encode()
            ),
        )


def test_a_tensor_without_values_beside_others_is_left_out() -> None:
    none = {"name": "none", "shape": [2, 0], "datatype": "FP64", "data": []}
    some = {"name": "a", "shape": [2], "datatype": "FP64", "data": [1.0, 2.0]}
    more = {"name": "b", "shape": [2, 2], "datatype": "FP64", "data": [[3.0, 4.0], [5.0, 6.0]]}
    answer = {"outputs": [{"name": "y", "shape": [2], "datatype": "FP64", "data": [0.5, 1.5]}]}
    for inputs in ([none, some, more], [some, none, more], [some, more, none]):
        wrapped = {"request": {"inputs": inputs}, "response": answer}
        rows = _read("v2", ForeignMessage(json.dumps(wrapped).encode()), Naming(model="m"))
        assert [row.features for row in rows] == [
            {"a": 1.0, "b[0]": 3.0, "b[1]": 4.0},
            {"a": 2.0, "b[0]": 5.0, "b[1]": 6.0},
        ]
        assert [row.outputs for row in rows] == [{"y": 0.5}, {"y": 1.5}]
