"""The pane sketch on the wire: a small JSON header that says what it counts, and the accumulators.

Layout: 4 bytes magic ``ATSK``, uint8 version, uint32 length of the header, the header, the body (the
accumulators' own versioned bytes). A sketch is cumulative: of two with one key, the one that
counts up to the higher offset replaces the other.
"""

from __future__ import annotations

import struct
from typing import Annotated

import msgspec

from attributary.schemas.errors import Reason, RejectedError

_HEAD = struct.Struct("<4sBI")
_MAGIC = b"ATSK"
_VERSION = 1


class SketchHeader(msgspec.Struct, frozen=True):
    """What a sketch counts. Times are milliseconds since the epoch; ``upto`` is exclusive.

    ``final``: the block has ended, and no later sketch will count more. ``fraction``: of the rows, this
    share by the hash of their ids is in the accumulators, ``thinned`` of ``rows`` are not. ``twin``: a light
    sketch of rows that are sketched in full besides, to compare the two.
    """

    model: str
    topic: str
    partition: int
    block: int
    pane: int
    epoch: int
    upto: int
    rows: int
    final: bool = False
    fraction: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    thinned: Annotated[int, msgspec.Meta(ge=0)] = 0
    twin: bool = False

    @property
    def key(self) -> bytes:
        """Kafka key: one record per (model, source partition, block, pane, fraction) survives compaction.

        Compaction keeps the last record, which may be an old owner's that counts less than one before
        it. So the final sketch, the same whoever computes it, has a key of its own.
        """
        kind = ("f" if self.final else "s") + ("t" if self.twin else "")
        if self.fraction < 1:
            kind += f"{self.fraction:g}"
        place = f"{self.topic}|{self.partition}|{self.block}|{self.pane}"
        return f"{kind}|{place}|{self.model}".encode()


_header_decoder = msgspec.json.Decoder(SketchHeader)


def encode_sketch(header: SketchHeader, body: bytes) -> bytes:
    """Return header and body as one value."""
    head = msgspec.json.encode(header)
    return b"".join((_HEAD.pack(_MAGIC, _VERSION, len(head)), head, body))


def decode_sketch(data: bytes) -> tuple[SketchHeader, bytes]:
    """Return header and body; RejectedError where the bytes are not a sketch of this version."""
    try:
        magic, version, length = _HEAD.unpack_from(data)
        if magic != _MAGIC or version != _VERSION:
            raise RejectedError(
                Reason.NOT_DECODABLE,
                f"expected a sketch ({_MAGIC!r}, version {_VERSION}), got {magic!r} {version}",
            )
        start = _HEAD.size
        return _header_decoder.decode(data[start : start + length]), data[start + length :]
    except (struct.error, msgspec.MsgspecError) as error:
        raise RejectedError(Reason.NOT_DECODABLE, f"not a sketch: {error}") from None
