"""A record of the rows topic to rows, told apart by its content type, else by its bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from aiokafka import ConsumerRecord

from attributary.schemas.arrow import ARROW_CONTENT, CONTINUATION, ArrowRows, decode_arrow_rows
from attributary.schemas.dead_letter import Headers
from attributary.schemas.errors import Reason, RejectedError
from attributary.schemas.row import (
    CONTENT_HEADER,
    JSON_CONTENT,
    MODEL_HEADER,
    Row,
    RowError,
    Shapes,
    decode_json_rows,
)
from attributary.workers.stream.options import IngestOptions


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record of the log, free of any client library. ``timestamp`` is the broker's, in ms."""

    offset: int
    timestamp: int
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()


def record_of(record: ConsumerRecord) -> Record:
    """Return what ingest needs of a client library's record."""
    return Record(record.offset, record.timestamp, record.value, record.key, record.headers)


class Staged(msgspec.Struct, frozen=True, gc=False):
    """Rows of one record, read and not counted yet: one JSON row (number ``index`` of its record), or all
    the rows of an Arrow message."""

    record: Record
    content: Row | ArrowRows
    index: int = 0

    @property
    def rows(self) -> int:
        """How many rows this is."""
        return 1 if isinstance(self.content, Row) else self.content.rows


@dataclass(frozen=True)
class Decoded:
    """The readable rows of a record by model, and why the others are not."""

    staged: list[tuple[str, Staged]] = field(default_factory=list)
    errors: list[RowError] = field(default_factory=list)


def decode(record: Record, options: IngestOptions, shapes: Shapes | None = None) -> Decoded:
    """Return the rows of ``record``; RejectedError where all of it is unusable."""
    value = record.value
    if not value:
        raise RejectedError(Reason.EMPTY, "the message is empty; expected a row as JSON or Arrow")
    if len(value) > options.max_message_bytes:
        raise RejectedError(
            Reason.TOO_LARGE,
            f"{len(value)} bytes; at most {options.max_message_bytes} are read from one message",
        )
    model = content = None
    if record.headers:
        model = _header(record.headers, MODEL_HEADER)
        content = _header(record.headers, CONTENT_HEADER)
    kind = content.partition(";")[0].strip().lower() if content else None
    if kind == ARROW_CONTENT or (kind is None and value.startswith(CONTINUATION)):
        rows = decode_arrow_rows(value, model=model, max_rows=options.max_message_rows)
        return Decoded([(rows.model, Staged(record, rows))])
    if kind not in (None, JSON_CONTENT):
        raise RejectedError(
            Reason.NOT_DECODABLE,
            f"content type {content!r:.80} is not read here; use {JSON_CONTENT} or {ARROW_CONTENT}",
        )
    found = decode_json_rows(value, model=model, max_rows=options.max_message_rows, shapes=shapes)
    return Decoded(
        [(name, Staged(record, row, index)) for index, name, row in found.rows], found.errors
    )


def _header(headers: Headers, name: str) -> str | None:
    for found, value in headers:
        if found.lower() == name:
            return (value or b"").decode("utf-8", "replace")
    return None
