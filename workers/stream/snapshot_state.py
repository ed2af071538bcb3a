"""What a snapshot of merge holds: its state as plain values, and the bytes of its sums.

Sums are float64 as ``WindowState.to_bytes`` writes them, so that what is loaded goes on to the last bit.
Times are milliseconds.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec

from attributary.schemas.sketch import SketchHeader
from attributary.workers.maths.wire import IncompatibleStateError

Source = tuple[str, int]
Side = Literal["all", "full", "light"]
"""All rows of a view; those of its calibration blocks, in full and light."""
T = TypeVar("T")


class Piece(msgspec.Struct, frozen=True):
    """A sketch that is to be found in the log: what it says, a checksum of its body, its offset."""

    header: SketchHeader
    mark: int
    offset: int
    clock: int


class ShareState(msgspec.Struct, frozen=True):
    """The closed blocks of one source in one view: a window's bytes."""

    source: Source
    as_of: int | None
    window: bytes


Rows = list[tuple[float, int, int]]
"""(fraction, rows, rows that the sketches leave out) of each fraction."""


class SideState(msgspec.Struct, frozen=True):
    """The closed blocks of one side of a view."""

    rows: Rows
    shares: list[ShareState]


class ViewState(msgspec.Struct, frozen=True):
    """One view. ``span`` None: an endless one, whose shares are parts of their own. ``whole``: the
    window's closed blocks are all in ``sides``; else they are folded from the log again. ``most`` is not in
    older snapshots."""

    spec: int
    span: tuple[int, int] | None
    published: list[int] | None
    whole: bool
    sides: dict[Side, SideState]
    most: int = 0


class OpenState(msgspec.Struct, frozen=True):
    """A sketch of an open block; ``body`` None: it is read from the log again."""

    piece: Piece
    on_time: int
    body: bytes | None


class ModelState(msgspec.Struct, frozen=True):
    """One model without its endless views' shares. ``card``: its windows, as a model card."""

    card: bytes
    epoch: int
    late_rows: int
    watermark: int | None
    oldest: int | None
    views: list[ViewState]
    open: list[OpenState]
    outdated: list[SketchHeader]
    pieces: list[Piece]
    """closed blocks' sketches in open windows, per source in the order that they were folded in"""


class ModelShares(msgspec.Struct, frozen=True):
    """One source's closed blocks in the endless views of one model, by side and the view's index."""

    model: str
    source: Source
    shares: dict[Side, dict[int, ShareState]]


class RememberedState(msgspec.Struct, frozen=True):
    """A window that later ones are compared with; ``window`` is JSON, ``score`` float64 (c, d), and so is
    ``stderr``, which is empty in older snapshots."""

    window: bytes
    rows: Rows
    x_digests: bytes
    y_digests: bytes
    score: bytes
    stderr: bytes = b""


class DriftState(msgspec.Struct, frozen=True):
    """A model's reference windows, by the index of their kind."""

    baselines: dict[int, RememberedState]
    latest: dict[int, list[RememberedState]]


class LedgerState(msgspec.Struct, frozen=True):
    """The books of one source partition; ``open`` holds manifests as JSON."""

    source: Source
    first: int | None
    upto: int
    end_offset: int
    acknowledged: int
    event_time: dict[str, int]
    moved_at: dict[str, int]
    expected: list[str]
    closed: dict[str, tuple[int, dict[str, int]]]
    open: list[bytes]
    held: dict[int, int]
    spans: list[tuple[int, int]]


class PartitionState(msgspec.Struct, frozen=True):
    """What all models of a partition share, and which there are."""

    clock: int
    partitions: dict[str, int]
    began: dict[str, int]
    superseded: dict[str, int]
    ledgers: list[LedgerState]
    models: list[str]
    refused: list[str]
    unknown: list[Piece]


def encode_state(state: msgspec.Struct) -> bytes:
    """Return a state as bytes (MessagePack)."""
    return msgspec.msgpack.encode(state)


def decode_state(kind: type[T], data: bytes) -> T:
    """Return the state that ``encode_state`` wrote; IncompatibleStateError otherwise."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise IncompatibleStateError(f"these are not a {kind.__name__}: {error}") from None


def part_name(kind: str, *names: Any) -> str:
    """Return the name of one part of a snapshot."""
    return "|".join([kind, *map(str, names)])
