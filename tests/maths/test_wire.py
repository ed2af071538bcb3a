"""The byte form: what goes in comes out, and what is not ours is refused."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from attributary.workers.maths.wire import IncompatibleStateError, pack, unpack

DTYPES = ["<f8", "<f4", "<i8", "<i4", "<u8", "<u4", "|u1", "|b1"]

arrays = st.lists(
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: nps.arrays(np.dtype(dtype), nps.array_shapes(min_dims=0, min_side=0))
    ),
    max_size=4,
)


@given(arrays)
def test_round_trip(given_arrays: list[npt.NDArray[Any]]) -> None:
    back = unpack(pack(b"TEST", 3, given_arrays), b"TEST", 3)
    assert len(back) == len(given_arrays)
    for mine, theirs in zip(given_arrays, back, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        assert mine.tobytes() == theirs.tobytes()
        assert theirs.flags.writeable
        assert theirs.flags.owndata


def test_layout_is_little_endian_and_as_documented() -> None:
    data = pack(b"TEST", 7, [np.array([[1, 2]], dtype=">i4")])
    expected = (
        b"TEST" + struct.pack("<BH", 7, 1) + b"\x03<i4" + struct.pack("<B2I2i", 2, 1, 2, 1, 2)
    )
    assert data == expected


def test_views_are_packed_in_their_logical_order() -> None:
    grid = np.arange(12.0).reshape(3, 4)
    for view in (grid.T, grid[:, ::2], grid[::-1]):
        np.testing.assert_array_equal(unpack(pack(b"TEST", 1, [view]), b"TEST", 1)[0], view)


def test_bytes_do_not_alias_what_is_unpacked() -> None:
    data = bytearray(pack(b"TEST", 1, [np.arange(3.0)]))
    (values,) = unpack(memoryview(data), b"TEST", 1)
    data[-8:] = bytes(8)
    assert values.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    "values", [np.array(["a"]), np.array([1j]), np.array([object()]), np.zeros(2, dtype=np.float16)]
)
def test_other_dtypes_are_not_packed(values: npt.NDArray[Any]) -> None:
    with pytest.raises(TypeError, match="cannot pack dtype"):
        pack(b"TEST", 1, [values])


def test_foreign_and_newer_bytes_are_refused_and_older_ones_read() -> None:
    data = pack(b"TEST", 2, [np.arange(3.0)])
    assert unpack(data, b"TEST", 5)[0].tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(IncompatibleStateError, match="expected the magic b'ELSE', got b'TEST'"):
        unpack(data, b"ELSE", 2)
    with pytest.raises(IncompatibleStateError, match=r"version 2.*up to 1.*upgrade"):
        unpack(data, b"TEST", 1)


def test_every_truncation_and_any_addition_is_refused() -> None:
    data = pack(b"TEST", 1, [np.arange(3.0), np.zeros((2, 2), dtype=bool)])
    for size in range(len(data)):
        with pytest.raises(IncompatibleStateError):
            unpack(data[:size], b"TEST", 1)
    with pytest.raises(IncompatibleStateError, match="1 bytes left over"):
        unpack(data + b"\0", b"TEST", 1)


def test_a_shape_of_many_terabytes_is_refused_before_anything_is_allocated() -> None:
    head = b"TEST" + struct.pack("<BH", 1, 1) + b"\x03<f8"
    for shape in ([2**32 - 1] * 2, [2**32 - 1] * 200):
        with pytest.raises(IncompatibleStateError, match="truncated"):
            unpack(head + struct.pack(f"<B{len(shape)}I", len(shape), *shape), b"TEST", 1)


@settings(derandomize=True)
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(tail: bytes) -> None:
    with contextlib.suppress(IncompatibleStateError):
        unpack(b"TEST" + struct.pack("<BH", 1, 1) + tail, b"TEST", 1)


@pytest.mark.parametrize("shape", [[1] * 64 + [0], [2**32 - 1] * 8 + [0]])
def test_shapes_beyond_numpy_that_hold_nothing_are_refused(shape: list[int]) -> None:
    # Sixty-five dimensions are too many, and so is a shape whose extents overflow a size.
    tail = b"\x03<f8" + struct.pack(f"<B{len(shape)}I", len(shape), *shape)
    with pytest.raises(IncompatibleStateError):
        unpack(b"TEST" + struct.pack("<BH", 1, 1) + tail, b"TEST", 1)
