"""The sketch's envelope: header and body come back, other bytes are refused."""

from __future__ import annotations

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attributary.schemas.errors import Reason, RejectedError
from attributary.schemas.sketch import SketchHeader, decode_sketch, encode_sketch

HEADER = SketchHeader("churn", "rows", 3, 8192, 1_700_000_000_000, 0, 9000, 808)
INTEGERS = st.integers(-(2**63), 2**63 - 1)


def _reason(data: bytes) -> Reason:
    with pytest.raises(RejectedError) as caught:
        decode_sketch(data)
    return caught.value.reason


@given(
    st.builds(
        SketchHeader,
        model=st.text(st.characters(codec="utf-8")),
        topic=st.text(st.characters(codec="utf-8")),
        **dict.fromkeys(["partition", "block", "pane", "epoch", "upto", "rows"], INTEGERS),
    ),
    st.binary(max_size=200),
)
def test_header_and_body_round_trip(header: SketchHeader, body: bytes) -> None:
    assert decode_sketch(encode_sketch(header, body)) == (header, body)


def test_a_header_cut_anywhere_is_refused() -> None:
    data = encode_sketch(HEADER, b"")
    for cut in range(len(data)):
        assert _reason(data[:cut]) == Reason.NOT_DECODABLE


@given(st.binary(max_size=100))
def test_any_bytes_are_refused(data: bytes) -> None:
    assert _reason(data) == Reason.NOT_DECODABLE


@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_version_is_refused_by_number(version: int) -> None:
    data = bytearray(encode_sketch(HEADER, b"body"))
    data[4] = version
    with pytest.raises(RejectedError, match=f"got b'ATSK' {version}"):
        decode_sketch(bytes(data))


@pytest.mark.parametrize("head", [b"[" * 100_000, b'{"model":' * 20_000, b"{}", b"\xff\xfe", b""])
def test_a_hostile_header_is_refused(head: bytes) -> None:
    data = struct.pack("<4sBI", b"ATSK", 1, len(head)) + head
    assert _reason(data) == Reason.NOT_DECODABLE


def test_the_key_tells_model_partition_block_and_pane_apart() -> None:
    keys = {
        SketchHeader(model, "rows", partition, block, pane, 0, 0, 0).key
        for model in ("a", "a|1")
        for partition in (0, 1)
        for block in (0, 8192)
        for pane in (0, 10_000)
    }
    assert len(keys) == 16
    assert SketchHeader("churn", "rows", 3, 8192, 1_700_000_000_000, 1, 9999, 1).key == HEADER.key


def test_the_key_tells_fractions_and_twins_apart_and_is_as_before_without_them() -> None:
    assert HEADER.key == b"s|rows|3|8192|1700000000000|churn"
    changes = [
        {"final": final, "fraction": fraction, "twin": twin}
        for final in (False, True)
        for fraction in (1.0, 0.5, 0.25)
        for twin in (False, True)
    ]
    keys = {msgspec.structs.replace(HEADER, **change).key for change in changes}
    assert len(keys) == 12
    assert b"st0.25|rows|3|8192|1700000000000|churn" in keys


@pytest.mark.parametrize("wrong", [{"fraction": 0.0}, {"fraction": 1.5}, {"thinned": -1}])
def test_an_impossible_fraction_is_refused(wrong: dict[str, float]) -> None:
    assert _reason(encode_sketch(msgspec.structs.replace(HEADER, **wrong), b"")) == (
        Reason.NOT_DECODABLE
    )
