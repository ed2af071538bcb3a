"""Whether the record batches of an Arrow IPC stream are compressed, told before anything is unpacked.

A compressed buffer of a few kilobytes can unpack to gigabytes, and pyarrow unpacks before it says how many
rows there are. Kafka's own compression does the same for the wire, with a bound.
"""

from __future__ import annotations

import struct

import pyarrow as pa

# Positions of fields in Arrow's flatbuffers schema (format/Message.fbs).
_MESSAGE_HEADER = 2
_BATCH_COMPRESSION = 3
_DICTIONARY_BATCH = 1


def compressed(data: bytes) -> bool:
    """Return whether a batch of the stream is compressed; ``struct.error`` or an Arrow error where
    the bytes are no stream."""
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(data)):
        if message.type not in ("record batch", "dictionary"):
            continue
        frame = message.metadata.to_pybytes()
        (root,) = struct.unpack_from("<I", frame)
        batch = _table(frame, root, _MESSAGE_HEADER)
        if message.type == "dictionary" and batch is not None:
            batch = _table(frame, batch, _DICTIONARY_BATCH)
        if batch is not None and _table(frame, batch, _BATCH_COMPRESSION) is not None:
            return True
    return False


def _table(frame: bytes, table: int, field: int) -> int | None:
    """Return where the table that ``field`` of a flatbuffers table refers to lies; None: absent."""
    (back,) = struct.unpack_from("<i", frame, table)
    vtable = table - back
    if vtable < 0:
        raise struct.error("a flatbuffers table lies outside its message")
    (size,) = struct.unpack_from("<H", frame, vtable)
    entry = 4 + 2 * field
    if entry + 2 > size:
        return None
    (offset,) = struct.unpack_from("<H", frame, vtable + entry)
    if offset == 0:
        return None
    place = table + offset
    return int(place + struct.unpack_from("<I", frame, place)[0])
