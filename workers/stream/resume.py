"""What a merge that was loaded from a snapshot still takes from the log: open windows and blocks.

A snapshot says for every sketch that they rest on where it lies and what its body's checksum is. They are
read again, closed blocks' ones folded in the order of the first time, so that the state becomes the one
that was, to the last bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol
from zlib import crc32

from attributary.schemas.sketch import SketchHeader
from attributary.workers.maths.window import WindowState
from attributary.workers.stream.held import Held, SourceKey, UnreadableSketchError
from attributary.workers.stream.snapshot_state import OpenState, Piece

_Place = tuple[str, str, int, int, int, float, bool]


class Target(Protocol):
    """A model's merge."""

    def held(
        self,
        header: SketchHeader,
        body: bytes,
        read: Callable[[bytes], WindowState],
        offset: int = 0,
        clock: int = 0,
    ) -> Held:
        """Return a sketch as it is held."""

    def fold_again(self, source: SourceKey, held: Held, part: WindowState) -> None:
        """Merge a sketch of a closed block into the open windows that are folded from the log."""

    def open_again(self, held: Held) -> None:
        """Hold a sketch of an open block."""


@dataclass
class _Awaited:
    """A sketch to be found. Where compaction has taken it, one that counts further replaces it."""

    piece: Piece
    target: Target | None
    on_time: int | None = None
    body: bytes | None = None
    offset: int = 0
    instead: tuple[SketchHeader, bytes, int, int] | None = None

    def offer(self, header: SketchHeader, body: bytes, mark: int, offset: int, clock: int) -> bool:
        """Take the sketch if it is the one; keep it in mind where it could replace it."""
        wanted = self.piece.header
        if self.body is not None:
            return False
        if header == wanted and mark == self.piece.mark:
            self.body, self.offset, self.instead = body, offset, None
            return True
        if self.target is None:
            return False
        version = header.upto, header.final
        if version >= (wanted.upto, wanted.final) and header.rows >= wanted.rows:
            known = self.instead
            if known is None or version < (known[0].upto, known[0].final):
                self.instead = header, body, offset, clock
        return False

    def found(self) -> tuple[SketchHeader, bytes, int, int] | None:
        """Return header, body, offset and clock of what was found."""
        if self.body is not None:
            return self.piece.header, self.body, self.offset, self.piece.clock
        return self.instead


class Resume:
    """Sketches to be found before the log is read on from ``position``; ``start`` is where to look from."""

    def __init__(
        self,
        position: int,
        read_of: Callable[[SketchHeader], Callable[[bytes], WindowState]],
        wait: Callable[[SketchHeader, bytes, int, int], None],
    ) -> None:
        self.position = position
        self.start = position
        self._read_of = read_of
        self._wait = wait
        self._missing = 0
        self._by_place: dict[_Place, list[_Awaited]] = {}
        self._closed: dict[tuple[str, SourceKey], deque[_Awaited]] = {}
        self._others: list[_Awaited] = []

    def expect(self, target: Target, opened: Iterable[OpenState], pieces: Iterable[Piece]) -> None:
        """Look for the sketches of one model."""
        for piece in pieces:
            header = piece.header
            source = header.topic, header.partition
            entry = _Awaited(piece, target)
            self._closed.setdefault((header.model, source), deque()).append(entry)
            self._look_for(entry)
        for state in opened:
            if state.body is None:
                entry = _Awaited(state.piece, target, state.on_time)
                self._others.append(entry)
                self._look_for(entry)

    def expect_unknown(self, piece: Piece) -> None:
        """Look for a sketch whose grid was not known."""
        entry = _Awaited(piece, None)
        self._others.append(entry)
        self._look_for(entry)

    @property
    def complete(self) -> bool:
        """Whether everything is found."""
        return not self._missing

    def take(self, header: SketchHeader, body: bytes, offset: int, clock: int) -> None:
        """Take a sketch of the log."""
        entries = self._by_place.get(_place(header))
        if entries is None:
            return
        mark = crc32(body)
        for entry in entries:
            if entry.offer(header, body, mark, offset, clock):
                self._missing -= 1
        self._fold(header, last=False)

    def finish(self) -> int:
        """Put everything where it belongs; return the rows of sketches that are in the log no more."""
        lost = 0
        for queue in list(self._closed.values()):
            if queue:
                lost += self._fold(queue[0].piece.header, last=True)
        for entry in self._others:
            found = entry.found()
            if found is None:
                lost += _rows(entry.piece.header)
            elif entry.target is None:
                self._wait(*found)
            else:
                held = self._held(entry.target, found)
                held.on_time = entry.on_time or 0
                entry.target.open_again(held)
        self._by_place.clear()
        return lost

    def _look_for(self, entry: _Awaited) -> None:
        self._by_place.setdefault(_place(entry.piece.header), []).append(entry)
        self.start = min(self.start, entry.piece.offset)
        self._missing += 1

    def _fold(self, header: SketchHeader, *, last: bool) -> int:
        """Fold what is next in its source's order, as far as it is there; return the rows left out."""
        source = header.topic, header.partition
        queue = self._closed.get((header.model, source), deque())
        lost = 0
        while queue and (last or queue[0].body is not None):
            entry = queue.popleft()
            found = entry.found()
            if found is None or entry.target is None:
                lost += _rows(entry.piece.header)
                continue
            held = self._held(entry.target, found)
            try:
                entry.target.fold_again(source, held, held.part())
            except UnreadableSketchError:
                lost += _rows(held.header)
            entry.body = b""  # done with it
        return lost

    def _held(self, target: Target, found: tuple[SketchHeader, bytes, int, int]) -> Held:
        header, body, offset, clock = found
        return target.held(header, body, self._read_of(header), offset, clock)


def _rows(header: SketchHeader) -> int:
    """Return the rows that no other sketch counts."""
    return 0 if header.twin else header.rows


def _place(header: SketchHeader) -> _Place:
    return (
        *(header.model, header.topic, header.partition, header.block, header.pane),
        *(header.fraction, header.twin),
    )
