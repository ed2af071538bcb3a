"""Byte form of a window: its digests, and the cells and block sums of every epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from attributary.workers.maths.block_overlap import BlockOverlap
from attributary.workers.maths.comovement import CoMovement
from attributary.workers.maths.sample import RowSample
from attributary.workers.maths.tdigest import TDigests
from attributary.workers.maths.wire import IncompatibleStateError, pack, unpack

if TYPE_CHECKING:
    from attributary.workers.maths.window import WindowState

Floats = npt.NDArray[np.float64]

MAGIC = b"WIND"
VERSION = 1


class WindowParts(NamedTuple):
    """What the bytes of a window hold."""

    columns: int
    outputs: int
    compression: int
    sample_size: int
    rows: float
    weight: float
    seen: Floats
    digests: tuple[TDigests, TDigests]
    epochs: dict[int, CoMovement]
    overlaps: dict[int, BlockOverlap]
    sample: RowSample | None


def encode(window: WindowState, dtype: np.dtype[Any]) -> bytes:
    """Return the bytes of ``window`` with its cells in ``dtype``, float32 or float64."""
    epochs = sorted(window.epochs)
    head = [window.columns, window.outputs, window.compression, window.sample_size, *epochs]
    parts = [window.x_digests.to_bytes(), window.y_digests.to_bytes()]
    parts.append(b"" if window.sample is None else window.sample.to_bytes())
    for epoch in epochs:
        parts += [window.epochs[epoch].to_bytes(dtype), window.overlaps[epoch].to_bytes()]
    arrays = [np.frombuffer(part, dtype=np.uint8) for part in parts]
    totals = np.array([window.rows, window.weight])
    return pack(MAGIC, VERSION, [np.array(head, dtype=np.int64), totals, window.seen, *arrays])


def decode(data: bytes | memoryview) -> WindowParts:
    """Return the parts of ``data``; IncompatibleStateError where they are not a window's."""
    try:
        head, totals, seen, *arrays = unpack(data, MAGIC, VERSION)
        columns, outputs, compression, sample_size, *epochs = (int(value) for value in head)
        x_digests, y_digests, sample, *cells = (array.tobytes() for array in arrays)
        if len(cells) != 2 * len(epochs):
            raise ValueError(f"{len(epochs)} epochs and {len(cells)} parts")
        states = {
            epoch: CoMovement.from_bytes(part)
            for epoch, part in zip(epochs, cells[::2], strict=True)
        }
        overlaps = {
            epoch: BlockOverlap.from_bytes(part, states[epoch])
            for epoch, part in zip(epochs, cells[1::2], strict=True)
        }
        rows, weight = (float(value) for value in totals)
        digests = TDigests.from_bytes(x_digests), TDigests.from_bytes(y_digests)
        shapes = {(state.columns, state.outputs) for state in states.values()}
        shapes.add((digests[0].columns, digests[1].columns))
        if shapes != {(columns, outputs)}:
            raise ValueError(f"parts of the shapes {sorted(shapes)} for {(columns, outputs)}")
        return WindowParts(
            columns,
            outputs,
            compression,
            sample_size,
            rows,
            weight,
            seen.reshape(3, columns + outputs),
            digests,
            states,
            overlaps,
            RowSample.from_bytes(sample) if sample_size else None,
        )
    except IncompatibleStateError:
        raise
    except (ValueError, OverflowError) as error:
        raise IncompatibleStateError(f"these are not a window's bytes: {error}") from None
