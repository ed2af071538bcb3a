"""Snapshots in their topic: parts cut into records, and an index record that makes them hold.

A part (the sums of a model's source, say) is written to one of two slots, in turn, in records of its own;
the index names slot, size and checksum of every part. It is sent once all of them are acknowledged, and
nothing that an acknowledged index names is overwritten by its owner: a crash at any moment leaves one
snapshot whole. Every owner of a partition has keys of its own, so that an old one that goes on takes
nothing from the next.

Keys: ``i|partition|owner`` and ``c|partition|owner|slot|chunk|part``. The index is the magic ``ATSN``, uint8
version, and MessagePack.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple
from zlib import crc32

import msgspec

from attributary.workers.maths.wire import IncompatibleStateError
from attributary.workers.stream.snapshot_state import decode_state, encode_state

#: Well below what a broker takes in one record.
CHUNK_BYTES = 4 * 2**20
_HEAD = struct.Struct("<4sB")
_MAGIC = b"ATSN"
_VERSION = 1
_DIRECTORY = "directory"


class SnapshotRecord(NamedTuple):
    """A record of the snapshots topic; ``value`` None takes back what has the key."""

    key: bytes
    value: bytes | None


class Entry(msgspec.Struct, frozen=True):
    """Where a part is: its slot, and what its chunks must add up to."""

    slot: int
    chunks: int
    size: int
    mark: int


class Index(msgspec.Struct, frozen=True):
    """One snapshot: all records of the sketches partition before ``position`` are in it, but for those
    that it points to, none of which lies before ``start``. ``directory`` is the list of its parts."""

    partition: int
    owner: str
    position: int
    start: int
    directory: Entry


class _Directory(msgspec.Struct, frozen=True):
    parts: dict[str, Entry]


class _Written(NamedTuple):
    entry: Entry
    version: tuple[int, ...]
    needs: int | None


class SnapshotWriter:
    """What one owner writes for one partition of the sketches topic: ``put`` every part, then ``index``."""

    def __init__(self, partition: int, owner: str) -> None:
        self._partition = partition
        self._owner = owner
        self._held: dict[str, _Written] = {}
        self._staged: dict[str, _Written] = {}
        self._old_directory: Entry | None = None
        self._directory: Entry | None = None

    @property
    def versions(self) -> dict[str, tuple[int, ...]]:
        """The versions of the parts that the acknowledged snapshot holds."""
        return {name: written.version for name, written in self._held.items()}

    def begin(self) -> None:
        """Start a snapshot; one that was not finished is forgotten."""
        self._staged = {}

    def keep(self, name: str) -> None:
        """Take a part as the acknowledged snapshot has it."""
        self._staged[name] = self._held[name]

    def put(
        self, name: str, version: tuple[int, ...], data: bytes, needs: int | None
    ) -> list[SnapshotRecord]:
        """Return the records of a new part; none where its bytes are those that are there."""
        held = self._held.get(name)
        entry, records = self._cut(name, data, None if held is None else held.entry)
        self._staged[name] = _Written(entry, version, needs)
        return records

    def directory(self) -> list[SnapshotRecord]:
        """Return the records of the list of parts, the last ones before the index."""
        parts = _Directory({name: written.entry for name, written in self._staged.items()})
        self._directory, records = self._cut(_DIRECTORY, encode_state(parts), self._old_directory)
        return records

    def index(self, position: int) -> SnapshotRecord:
        """Return the record that makes the snapshot hold, to be sent once all others are acknowledged.

        Where it is not acknowledged itself, it must be sent again before another snapshot begins.
        """
        if self._directory is None:
            raise RuntimeError("an index comes after its directory")
        needs = [w.needs for w in self._staged.values() if w.needs is not None]
        start = min([position, *needs])
        index = Index(self._partition, self._owner, position, start, self._directory)
        value = _HEAD.pack(_MAGIC, _VERSION) + encode_state(index)
        return SnapshotRecord(self._index_key, value)

    def acknowledged(self) -> list[SnapshotRecord]:
        """Take the snapshot as the one that holds; return what takes back parts that it has not."""
        gone = self._held.keys() - self._staged.keys()
        found = [
            SnapshotRecord(_chunk_key(self._partition, self._owner, slot, chunk, name), None)
            for name in sorted(gone)
            for slot in (0, 1)
            for chunk in range(self._held[name].entry.chunks)
        ]
        self._held, self._old_directory = self._staged, self._directory
        return found

    def _cut(
        self, name: str, data: bytes, held: Entry | None
    ) -> tuple[Entry, list[SnapshotRecord]]:
        chunks = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]
        entry = Entry(0 if held is None else 1 - held.slot, len(chunks), len(data), crc32(data))
        if held is not None and (held.size, held.mark) == (entry.size, entry.mark):
            return held, []
        records = [
            SnapshotRecord(
                _chunk_key(self._partition, self._owner, entry.slot, number, name), chunk
            )
            for number, chunk in enumerate(chunks)
        ]
        return entry, records

    @property
    def _index_key(self) -> bytes:
        return f"i|{self._partition}|{self._owner}".encode()


class SnapshotShelf:
    """The records of one sketches partition's snapshots, whoever wrote them, in the topic's order."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        #: Index records that cannot be read.
        self.troubles: list[str] = []
        self._chunks: dict[bytes, bytes] = {}
        self._indexes: list[tuple[bytes, Index]] = []
        self._index_keys: set[bytes] = set()

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """Take the topic's next record; those of other partitions are passed over."""
        kind, _, rest = (key or b"").partition(b"|")
        if key is None or not rest.startswith(b"%d|" % self.partition):
            return
        if kind == b"c":
            self._chunks.pop(key, None)
            if value is not None:
                self._chunks[key] = value
        elif kind == b"i" and value is None:
            self._indexes = [entry for entry in self._indexes if entry[0] != key]
            self._index_keys.discard(key)
        elif kind == b"i" and value is not None:
            self._index_keys.add(key)
            try:
                self._indexes.append((key, _index(value)))
            except IncompatibleStateError as error:
                self.troubles.append(f"snapshot of partition {self.partition}: {error}")

    def keys(self) -> list[bytes]:
        """Return the keys of all that is there."""
        return [*sorted(self._index_keys), *self._chunks]

    def newest_first(self) -> Iterator[tuple[Index, Callable[[], Mapping[str, bytes]]]]:
        """Yield the snapshots, and what returns the parts of each by name.

        The call raises IncompatibleStateError where a part is missing or damaged. The one that has read
        furthest is the newest; of equals the last.
        """
        ordered = sorted(
            enumerate(self._indexes), key=lambda entry: (entry[1][1].position, entry[0])
        )
        for _, (_, index) in reversed(ordered):
            yield index, lambda index=index: self._parts(index)  # type: ignore[misc]

    def _parts(self, index: Index) -> dict[str, bytes]:
        listed = decode_state(_Directory, self._part(index, _DIRECTORY, index.directory))
        return {name: self._part(index, name, entry) for name, entry in listed.parts.items()}

    def _part(self, index: Index, name: str, entry: Entry) -> bytes:
        if entry.chunks != -(-entry.size // CHUNK_BYTES):
            raise IncompatibleStateError(
                f"part {name!r}: {entry.size} bytes in {entry.chunks} chunks"
            )
        keys = [
            _chunk_key(index.partition, index.owner, entry.slot, chunk, name)
            for chunk in range(entry.chunks)
        ]
        data = b"".join(self._chunks.get(key, b"") for key in keys)
        if (len(data), crc32(data)) != (entry.size, entry.mark):
            raise IncompatibleStateError(
                f"part {name!r} of the snapshot at offset {index.position} is damaged or incomplete: "
                f"{len(data)} bytes of {entry.size}"
            )
        return data


def _chunk_key(partition: int, owner: str, slot: int, chunk: int, name: str) -> bytes:
    return f"c|{partition}|{owner}|{slot}|{chunk}|{name}".encode()


def _index(value: bytes) -> Index:
    try:
        magic, version = _HEAD.unpack_from(value)
    except struct.error:
        raise IncompatibleStateError(f"{len(value)} bytes are no index") from None
    if magic != _MAGIC:
        raise IncompatibleStateError(f"expected the magic {_MAGIC!r}, got {magic!r}")
    if version != _VERSION:
        raise IncompatibleStateError(
            f"its index is of version {version}, this build reads {_VERSION}; upgrade"
        )
    return decode_state(Index, value[_HEAD.size :])
