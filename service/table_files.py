"""CSV and Parquet files as record batches, a few megabytes at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from attributary.schemas.errors import ConfigurationError

_KINDS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_BLOCK_BYTES = 4 * 2**20
_BATCH_ROWS = 16_384
_READ_BYTES = 2**20

Reject = Callable[[str], None]


def check_file(path: Path) -> None:
    """Raise ConfigurationError where there is no such file, or nothing in it."""
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "there is no such file"
        raise ConfigurationError(f"{path}: {what}")
    if path.stat().st_size == 0:
        raise ConfigurationError(f"{path} is empty")


def kind_of(path: Path, asked: str = "auto") -> str:
    """Return csv, jsonl or parquet: as ``asked``, else by the file's name, or ConfigurationError."""
    if asked != "auto":
        return asked
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    kind = _KINDS.get(suffixes[-1] if suffixes else "")
    if kind is None:
        raise ConfigurationError(
            f"{path}: its name tells no format; give --format csv, jsonl or parquet"
        )
    return kind


class CsvFile:
    """A CSV file with a header, ``.gz`` or not.

    Types are taken from its first megabytes; every number is read as a float, so that a first decimal
    further down is no surprise. Rows with too few or too many fields go to ``reject``.
    """

    def __init__(self, path: Path, *, texts: Collection[str], reject: Reject) -> None:
        self._path = path
        self._reject = reject
        self._raw: Any = None
        self._invalid_rows: deque[str] = deque()
        self._total = path.stat().st_size
        with pa.OSFile(str(path)) as raw:
            found = self._reader(raw, None, lambda _: "skip").schema
        if len(set(found.names)) != len(found.names):
            twice = sorted({name for name in found.names if found.names.count(name) > 1})
            raise ConfigurationError(f"{path} names a column twice: {', '.join(twice)}")
        self.schema = pa.schema(
            [(field.name, _wide(field.type, field.name in texts)) for field in found]
        )

    def batches(self, columns: Collection[str]) -> Iterator[Any]:
        with pa.OSFile(str(self._path)) as self._raw:
            reader = self._reader(self._raw, columns, self._invalid)
            while True:
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    self._reject_invalid()
                    return
                except pa.ArrowInvalid as error:
                    raise ConfigurationError(self._explain(error)) from None
                except OSError as error:
                    raise ConfigurationError(f"{self._path}: {error}") from None
                self._reject_invalid()
                yield batch

    def progress(self) -> tuple[int, int]:
        if self._raw is None or self._raw.closed:
            return 0, self._total
        return self._raw.tell(), self._total

    def _reader(self, raw: Any, columns: Collection[str] | None, invalid: Any) -> Any:
        # Arrow's own files: its threads read ahead, and one that waits for the interpreter as that ends
        # would end the process in its own way.
        unzipped = pa.CompressedInputStream(raw, "gzip") if self._path.suffix == ".gz" else raw
        types = {} if columns is None else {name: self.schema.field(name).type for name in columns}
        try:
            return pa.csv.open_csv(
                unzipped,
                # In one thread, or a broken line does not know its number.
                read_options=pa.csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
                parse_options=pa.csv.ParseOptions(
                    delimiter="\t" if ".tsv" in self._path.suffixes else ",",
                    newlines_in_values=True,
                    invalid_row_handler=invalid,
                ),
                convert_options=pa.csv.ConvertOptions(
                    column_types=types,
                    include_columns=None if columns is None else list(columns),
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid as error:
            raise ConfigurationError(self._explain(error)) from None
        except OSError as error:
            raise ConfigurationError(f"{self._path}: {error}") from None

    def _invalid(self, row: Any) -> str:
        place = "" if row.number is None else f"line {row.number}: "
        self._invalid_rows.append(
            f"{place}{row.actual_columns} fields instead of {row.expected_columns}: {row.text!r:.80}"
        )
        return "skip"

    def _reject_invalid(self) -> None:
        """Pass the invalid rows on: pyarrow swallows what is raised inside its callback."""
        while self._invalid_rows:
            self._reject(self._invalid_rows.popleft())

    def _explain(self, error: Exception) -> str:
        text = str(error)
        if "Empty CSV" in text:
            return f"{self._path} is empty: expected a header line and rows"
        if "conversion error" in text:
            return (
                f"{self._path}: {text}; the column's type is taken from the first rows: name it in "
                "--categorical to read it as text, or leave it out with --features"
            )
        return f"{self._path} cannot be read as CSV: {text}"


class ParquetFile:
    """A Parquet file, read row group by row group."""

    def __init__(self, path: Path) -> None:
        try:
            # By default Arrow reads all row groups ahead, and holds the whole file at its end.
            self._file = pa.parquet.ParquetFile(path, pre_buffer=False, buffer_size=_READ_BYTES)
        except (pa.ArrowException, OSError) as error:
            raise ConfigurationError(f"{path} cannot be read as Parquet: {error}") from None
        self.schema = self._file.schema_arrow
        self._total = self._file.metadata.num_rows
        self._done = 0

    def batches(self, columns: Collection[str]) -> Iterator[Any]:
        for batch in self._file.iter_batches(batch_size=_BATCH_ROWS, columns=list(columns)):
            self._done += batch.num_rows
            yield batch

    def progress(self) -> tuple[int, int]:
        return self._done, self._total


def _wide(kind: Any, text: bool) -> Any:
    """Return the type that later rows of a CSV column also fit."""
    if text:
        return pa.string()
    if pa.types.is_integer(kind) or pa.types.is_null(kind):
        return pa.float64()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns", tz=kind.tz)
    return kind
