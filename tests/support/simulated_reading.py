"""Rows that a schedule has read once need not be read again: whoever reads them gets the same.

A record's rows are a function of its bytes, and their arrays one of the rows, the columns and the panes that
a block has already. Owners that come and go read the same records again and again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from attributary.schemas.row import Shapes
from attributary.workers.stream import block
from attributary.workers.stream.decode import Decoded, Record, Staged
from attributary.workers.stream.encode import Batch, Refusal, TimeRule
from attributary.workers.stream.layout import Layout
from attributary.workers.stream.options import IngestOptions

_decode, _encode = block.decode, block.encode
_Key = tuple[tuple[int, ...], int, str | None, float, frozenset[int]]


@contextmanager
def remembered() -> Iterator[None]:
    """Remember what is read within; sketches must not change the arrays that they are given."""
    decoded: dict[int, Decoded] = {}
    encoded: dict[_Key, list[Batch | Refusal]] = {}
    # What the numbers above stand for must not go before they do.
    alive: list[object] = []

    def decode(record: Record, options: IngestOptions, shapes: Shapes | None = None) -> Decoded:
        found = decoded.get(id(record))
        if found is None:
            found = decoded[id(record)] = _decode(record, options, shapes)
            alive.append(record)
        return found

    def encode(
        staged: Sequence[Staged],
        layout: Layout,
        rule: TimeRule,
        place: str | None,
        fraction: float = 1.0,
    ) -> list[Batch | Refusal]:
        if not staged:
            return []
        key = tuple(map(id, staged)), id(layout), place, fraction, frozenset(rule._panes)
        found = encoded.get(key)
        if found is None:
            found = encoded[key] = list(_encode(staged, layout, rule, place, fraction))
            alive.append(layout)
            alive.append(staged)
        return found

    block.decode, block.encode = decode, encode
    try:
        yield
    finally:
        block.decode, block.encode = _decode, _encode
