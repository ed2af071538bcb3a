"""How a worker and a model's process talk: short frames on a socket, arrays in shared memory.

A frame is a kind, three numbers and a text. Arrays lie at the start of one of two areas, one for each
direction, both made and grown by the worker and sealed so that the other side cannot shrink them
under its feet.
"""

from __future__ import annotations

import math
import mmap
import os
import socket
import struct
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from attributary.workers.ondemand.memory import nameless_file, seal_size

Floats = npt.NDArray[np.float64]

_HEADER = struct.Struct("<B7xQQQQ")
_TEXT_BYTES = 2**20
_AREA_BYTES = 2**20


class Kind(IntEnum):
    """What a frame says; the numbers that it carries in brackets."""

    LOAD = 1
    """The worker: open what the text describes."""
    CALL = 2
    """The worker: evaluate the array in its area [rows, columns]."""
    GRADIENT = 3
    """The worker: differentiate at the array in its area [rows, columns]."""
    FETCH = 4
    """The worker: its area for answers now has the size that was asked for [bytes]."""
    LOADED = 5
    """The model: it is open; the text says what it is."""
    ANSWER = 6
    """The model: the array in its area [rows, outputs or 0 for one without an axis, columns]."""
    ROOM = 7
    """The model: its answer needs an area of this size [bytes]."""
    FAILED = 8
    """The model: the text says why."""
    MEASURE = 9
    """The worker: evaluate the array in its area, and say what that took [rows, columns]."""
    MEASURED = 10
    """The model: the most memory used meanwhile, what is free, outputs of a row [bytes, bytes, outputs]; no
    outputs: it cannot tell."""
    MEMORY = 11
    """The worker: say what is in use of the device's memory."""
    USED = 12
    """The model: all that is in use there, by whomever [bytes]; 0: it cannot tell."""


class Frame(NamedTuple):
    """One frame."""

    kind: int
    numbers: tuple[int, int, int]
    text: bytes


class Ended(Exception):  # noqa: N818
    """The other side has closed its end, or says what no frame is."""


class FrameSocket:
    """One end of the socket."""

    def __init__(self, raw: socket.socket) -> None:
        self.raw = raw
        self._buffer = bytearray()

    def send(self, kind: Kind, *numbers: int, text: bytes = b"") -> None:
        """Send a frame. Ended: nobody is there."""
        a, b, c = (*numbers, 0, 0, 0)[:3]
        try:
            self.raw.sendall(_HEADER.pack(kind, a, b, c, len(text)) + text)
        except OSError as error:
            raise Ended(str(error)) from error

    def receive(self) -> Frame:
        """Return the next frame. TimeoutError: none came in the socket's timeout; call again."""
        kind, a, b, c, length = _HEADER.unpack_from(self._read(_HEADER.size))
        if length > _TEXT_BYTES:
            raise Ended(f"a frame with a text of {length} bytes")
        text = self._read(_HEADER.size + length)[_HEADER.size :]
        self._buffer.clear()
        return Frame(kind, (a, b, c), bytes(text))

    def _read(self, length: int) -> bytes:
        """Return the next ``length`` bytes, and keep them until the frame is whole."""
        while len(self._buffer) < length:
            try:
                more = self.raw.recv(length - len(self._buffer))
            except TimeoutError:
                raise
            except OSError as error:
                raise Ended(str(error)) from error
            if not more:
                raise Ended("the other side has closed its end")
            self._buffer += more
        return bytes(self._buffer)


class Area:
    """Memory that both sides see. Only the worker's side ``grow``s it."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._map: mmap.mmap | None = None
        if descriptor is not None:
            self.descriptor = descriptor
            return
        self.descriptor = nameless_file()
        seal_size(self.descriptor)
        self.grow(_AREA_BYTES)

    def grow(self, size: int) -> None:
        """Make it at least this large."""
        if os.fstat(self.descriptor).st_size < size:
            os.ftruncate(self.descriptor, -(-size // _AREA_BYTES) * _AREA_BYTES)

    def size(self) -> int:
        """Return how many bytes it has now."""
        return os.fstat(self.descriptor).st_size

    def array(self, *shape: int) -> Floats:
        """Return the float64 array at its start, not a copy. ValueError: it is not that large."""
        count = math.prod(shape)
        if self._map is None or len(self._map) < count * 8:
            # The old mapping goes with the last array that shows it.
            self._map = mmap.mmap(self.descriptor, self.size())
        return np.frombuffer(self._map, np.float64, count).reshape(shape)

    def close(self) -> None:
        """Give the memory back."""
        self._map = None
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
