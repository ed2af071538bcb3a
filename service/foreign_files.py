"""Files of what other systems logged, as messages of native rows: JSON lines, recorded messages, Parquet."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from attributary.schemas.adapters.convert import Converted, Converter
from attributary.schemas.adapters.formats import MAX_MESSAGE_BYTES, Adapter
from attributary.schemas.adapters.message import ForeignMessage
from attributary.schemas.adapters.pairing import Limits, Place
from attributary.schemas.adapters.recorded import read_recorded
from attributary.schemas.errors import ConfigurationError, RejectedError
from attributary.schemas.row import JSON_CONTENT, encode_row
from attributary.service.file_messages import Message
from attributary.service.row_encoder import MAX_ROW_BYTES
from attributary.service.table_files import ParquetFile, Reject

_LONGEST_LINE = 2 * MAX_MESSAGE_BYTES
_PARQUET = (".parquet", ".pq")


class ForeignFile:
    """A file of one message a line (``.gz`` or not), or a Parquet file of one message a row.

    What makes no row goes to ``reject``, halves without their other one at the end.
    """

    def __init__(self, path: Path, adapter: Adapter, *, reject: Reject) -> None:
        self._path = path
        self._reject = reject
        # A file ends: only memory bounds what may wait for its other half.
        limits = Limits(halves=1_000_000, bytes=256 * 2**20, seconds=float("inf"))
        self._converter = Converter(adapter, limits)
        self._total = path.stat().st_size
        self._raw: IO[bytes] | None = None
        self._table = ParquetFile(path) if path.suffix.lower() in _PARQUET else None

    def progress(self) -> tuple[int, int]:
        """Return (done, total), in bytes or rows of the file."""
        if self._table is not None:
            return self._table.progress()
        if self._raw is None or self._raw.closed:
            return 0, self._total
        return self._raw.tell(), self._total

    def messages(self, batch_rows: int) -> Iterator[Message]:
        """Yield JSON arrays of at most ``batch_rows`` rows."""
        rows: list[bytes] = []
        size = 0
        for row in self._rows():
            if rows and (len(rows) == batch_rows or size + len(row) > MAX_ROW_BYTES):
                yield Message(b"[" + b",".join(rows) + b"]", len(rows), JSON_CONTENT)
                rows, size = [], 0
            rows.append(row)
            size += len(row) + 1
        if rows:
            yield Message(b"[" + b",".join(rows) + b"]", len(rows), JSON_CONTENT)
        self._converter.pairing.end()
        for reason, count in self._converter.pairing.lost.items():
            for _ in range(count):
                self._reject(f"half of an inference: {reason.replace('_', ' ')}")

    def skipped(self) -> dict[str, int]:
        """Return how many messages were none of what was asked for, by reason."""
        return dict(self._converter.skipped)

    def _rows(self) -> Iterator[bytes]:
        for number, value in self._values():
            try:
                message = ForeignMessage(value) if self._table is not None else read_recorded(value)
                found = self._converter.add(
                    message, Place((str(self._path), 0), number), 0.0, named=False
                )
            except RejectedError as error:
                self._reject(f"{self._unit} {number}: {error}")
                continue
            yield from self._encoded(found, number)

    def _encoded(self, found: Converted, number: int) -> Iterator[bytes]:
        for error in found.errors:
            self._reject(f"{self._unit} {number}, row {error.index}: {error.message}")
        for group in found.groups:
            for row in group.rows:
                data = encode_row(row)
                if len(data) > MAX_ROW_BYTES:
                    self._reject(f"{self._unit} {number}: longer than {MAX_ROW_BYTES:,} bytes")
                else:
                    yield data

    def _values(self) -> Iterator[tuple[int, bytes]]:
        if self._table is not None:
            number = 0
            for batch in self._table.batches(self._table.schema.names):
                for row in batch.to_pylist():
                    number += 1
                    yield number, msgspec.json.encode(row, enc_hook=str)
            return
        with self._path.open("rb") as self._raw:
            zipped = self._path.suffix == ".gz"
            file = cast("IO[bytes]", gzip.GzipFile(fileobj=self._raw)) if zipped else self._raw
            number = 0
            try:
                while line := file.readline(_LONGEST_LINE):
                    number += 1
                    if stripped := line.strip():
                        yield number, stripped
            except (OSError, EOFError) as error:
                raise ConfigurationError(f"{self._path}: {error}") from None

    @property
    def _unit(self) -> str:
        return "line" if self._table is None else "row"


def describe(counts: dict[str, Any]) -> str:
    """Return counts by reason as a phrase."""
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
