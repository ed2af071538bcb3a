"""What the workers send, as records for the producer."""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from attributary.schemas.attribution import WindowAttribution, WindowDrift
from attributary.schemas.dead_letter import Headers
from attributary.schemas.sketch import encode_sketch
from attributary.schemas.topics import Topics
from attributary.workers.stream.block import Rejection
from attributary.workers.stream.ingest import Flush

# What a broker takes in one record of these topics.
MAX_RECORD_BYTES = 8 * 2**20
TRUNCATED_HEADER = "attributary-truncated-from"


class Outgoing(NamedTuple):
    """A record to send; ``partition`` None: the key decides."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None = None
    headers: Headers = ()


def sketch_partition(model: str, partitions: int) -> int:
    """Return the sketches partition of a model: one merge owner sees all of it."""
    return crc32(model.encode()) % partitions


def flush_records(flush: Flush, topics: Topics, sketch_partitions: int) -> list[Outgoing]:
    """Return a flush's records in the order that they must be sent in: manifests last."""
    letters = [dead_letter_record(rejection, topics) for rejection in flush.rejections]
    sketches = [
        Outgoing(
            topics.sketches,
            header.key,
            encode_sketch(header, body),
            sketch_partition(header.model, sketch_partitions),
        )
        for header, body in flush.sketches
    ]
    manifests = [
        Outgoing(topics.sketches, key, value, partition)
        for key, value in ((manifest.key, manifest.to_bytes()) for manifest in flush.manifests)
        for partition in range(sketch_partitions)
    ]
    return [*letters, *sketches, *manifests]


def dead_letter_record(rejection: Rejection, topics: Topics) -> Outgoing:
    """Return the untouched message with the letter's headers.

    A message so large that no record can hold it with its headers is cut at the end, and says so; nothing
    may make a flush fail for ever.
    """
    record = rejection.record
    headers = rejection.letter.headers(record.headers)
    key, value = record.key, record.value
    if _size(headers) + len(key or b"") > MAX_RECORD_BYTES // 4:
        headers, key = rejection.letter.headers(), None
    room = MAX_RECORD_BYTES - 4096 - _size(headers) - len(key or b"")
    if value is not None and len(value) > room:
        headers.append((TRUNCATED_HEADER, str(len(value)).encode()))
        value = value[:room]
    if key is None and value is None:
        key = b""  # aiokafka sends no record that has neither
    return Outgoing(topics.dead_letters, key, value, headers=headers)


def result_record(message: WindowAttribution | WindowDrift, topics: Topics) -> Outgoing:
    """Return an attribution or drift message, all of one model in one partition."""
    topic = topics.attributions if isinstance(message, WindowAttribution) else topics.drift
    return Outgoing(topic, message.model.encode(), message.to_bytes())


def _size(headers: Headers) -> int:
    return sum(len(name) + len(value or b"") + 16 for name, value in headers)
