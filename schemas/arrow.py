"""Rows as an Arrow IPC stream: one column per feature and output, names in the schema's metadata.

The schema's metadata holds ``attributary.model`` and ``attributary.outputs`` (a JSON list of the output
columns); every other column is a feature, except the optional ``_id`` (string), ``_time`` (timestamp, or
number of seconds since the epoch) and ``_weight``. String columns are categories.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from attributary.schemas.arrow_frames import compressed
from attributary.schemas.errors import Reason, RejectedError
from attributary.schemas.row import (
    MAX_WEIGHT,
    MIN_WEIGHT,
    check_category,
    check_names,
    model_name,
)

ARROW_CONTENT = "application/vnd.apache.arrow.stream"
CONTINUATION = b"\xff\xff\xff\xff"

ID, TIME, WEIGHT = "_id", "_time", "_weight"
_MODEL, _OUTPUTS = b"attributary.model", b"attributary.outputs"

Numbers = npt.NDArray[np.float64]

_PLAIN = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
)


@dataclass(frozen=True)
class ArrowRows:
    """The rows of one message, column by column; ``time`` is milliseconds or None."""

    model: str
    rows: int
    features: Mapping[str, Any]
    outputs: dict[str, Numbers]
    ids: list[bytes | None] | None
    time: npt.NDArray[np.int64] | None
    weight: Numbers | None

    def only(self, chosen: npt.NDArray[np.bool_]) -> ArrowRows:
        """Return the rows that a mask (rows,) chooses."""
        mask = pa.array(chosen)
        return ArrowRows(
            model=self.model,
            rows=int(chosen.sum()),
            features={name: column.filter(mask) for name, column in self.features.items()},
            outputs={name: values[chosen] for name, values in self.outputs.items()},
            ids=None if self.ids is None else [self.ids[i] for i in np.flatnonzero(chosen)],
            time=None if self.time is None else self.time[chosen],
            weight=None if self.weight is None else self.weight[chosen],
        )


def encode_arrow_rows(model: str, columns: Mapping[str, Any], outputs: Sequence[str]) -> bytes:
    """Return ``columns`` (equal lengths; the reserved names allowed) as one Arrow IPC stream."""
    table = pa.table(dict(columns))
    table = table.replace_schema_metadata(
        {_MODEL: model.encode(), _OUTPUTS: json.dumps(list(outputs)).encode()}
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def decode_arrow_rows(
    data: bytes, *, model: str | None = None, max_rows: int = 100_000
) -> ArrowRows:
    """Return the rows of an Arrow IPC stream; RejectedError where it is none, or lacks its names.

    A message is accepted or rejected whole: the error counts every row that can be told.
    """
    table = _read(data)
    if table.num_rows == 0:
        raise RejectedError(Reason.EMPTY, "the Arrow stream holds no row")
    try:
        return _rows(table, model, max_rows)
    except RejectedError as error:
        raise RejectedError(error.reason, str(error), rows=table.num_rows) from None


def _read(data: bytes) -> Any:
    try:
        if compressed(data):
            raise RejectedError(
                Reason.NOT_DECODABLE,
                "the Arrow buffers are compressed: write them plain and let the Kafka producer compress",
            )
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            table = reader.read_all()
        # Without the full check a wrong offset in a hostile message reads outside the buffer.
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        raise RejectedError(Reason.NOT_DECODABLE, f"not an Arrow IPC stream: {error}") from None
    return table


def _rows(table: Any, model: str | None, max_rows: int) -> ArrowRows:
    if table.num_rows > max_rows:
        raise RejectedError(
            Reason.TOO_LARGE, f"{table.num_rows} rows; send at most {max_rows} a message"
        )
    metadata = table.schema.metadata or {}
    named = metadata.get(_MODEL, b"").decode("utf-8", "replace") or model
    if len(set(table.column_names)) != len(table.column_names):
        raise RejectedError(Reason.WRONG_TYPE, "the Arrow stream names a column twice")
    outputs = _output_names(metadata, table)
    reserved = {ID, TIME, WEIGHT, *outputs}
    features = {name: table[name] for name in table.column_names if name not in reserved}
    check_names([*features, *outputs])
    for column in features.values():
        check_category(_longest(column))
    return ArrowRows(
        model=model_name(named),
        rows=table.num_rows,
        features=features,
        outputs={name: numbers(table[name], name) for name in outputs},
        ids=_ids(table),
        time=_time(table),
        weight=_weight(table),
    )


def _longest(column: Any) -> int:
    """Return the characters of the longest text in a column, 0 where it holds no text."""
    if pa.types.is_dictionary(column.type):
        column = pa.chunked_array(
            [part.dictionary for part in column.chunks], column.type.value_type
        )
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return 0
    return pc.max(pc.utf8_length(column)).as_py() or 0


def take_arrow_rows(data: bytes, rows: Sequence[int]) -> bytes:
    """Return an Arrow IPC stream with these rows of ``data`` alone, its schema and metadata unchanged.

    RejectedError: it is no Arrow stream, or does not have so many rows.
    """
    table = _read(data)
    if rows and max(rows) >= table.num_rows:
        raise RejectedError(
            Reason.WRONG_TYPE, f"expected more than {max(rows)} rows, got {table.num_rows}"
        )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.take(pa.array(rows, pa.int64())))
    return bytes(sink.getvalue())


def numbers(column: Any, name: str) -> Numbers:
    """Return an Arrow column as float64, null as NaN; RejectedError where it is not numeric."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise RejectedError(Reason.WRONG_TYPE, f"column {name!r} must be numeric, got {kind}")
    found = column.cast(pa.float64(), safe=False).to_numpy()
    return np.asarray(found, dtype=np.float64)


def texts(column: Any, name: str) -> list[str | None]:
    """Return an Arrow column of categories as strings; numbers and booleans as JSON writes them."""
    return [category(value) for value in plain(column, name)]


def plain(column: Any, name: str) -> list[str | float | bool | None]:
    """Return a column of texts, numbers or booleans; RejectedError for anything else.

    Dates and the like are not read: Python cannot hold all of Arrow's, nor all of its time zones.
    """
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not any(holds(kind) for holds in _PLAIN):
        raise RejectedError(
            Reason.WRONG_TYPE, f"column {name!r} must hold text or numbers, got {column.type}"
        )
    found: list[str | float | bool | None] = column.to_pylist()
    return found


def category(value: object) -> str | None:
    """Return a category's name, the same for every row format: 3.0 and 3 are one category.

    None for null and NaN, which mean that the value is missing.
    """
    if value is None or value != value:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _output_names(metadata: Mapping[bytes, bytes], table: Any) -> list[str]:
    try:
        outputs = json.loads(metadata.get(_OUTPUTS, b"[]"))
    except (ValueError, RecursionError):
        outputs = None
    if not isinstance(outputs, list) or not outputs or not all(isinstance(o, str) for o in outputs):
        raise RejectedError(
            Reason.OUTPUTS_MISSING,
            f"the schema's metadata must hold {_OUTPUTS.decode()!r}, a JSON list of column names",
        )
    missing = sorted(set(outputs) - set(table.column_names))
    if missing:
        raise RejectedError(Reason.OUTPUTS_MISSING, f"no column for the outputs {missing[:5]}")
    return outputs


def _ids(table: Any) -> list[bytes | None] | None:
    if ID not in table.column_names:
        return None
    return [None if value is None else str(value).encode() for value in plain(table[ID], ID)]


def _time(table: Any) -> npt.NDArray[np.int64] | None:
    if TIME not in table.column_names:
        return None
    column = table[TIME]
    if pa.types.is_timestamp(column.type):
        if column.null_count:
            raise RejectedError(Reason.BAD_TIME, f"column {TIME!r} holds nulls")
        cast = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
        return np.asarray(cast.to_numpy(), dtype=np.int64)
    seconds = numbers(column, TIME)
    if not np.all(np.abs(seconds) < 2.0**53):
        raise RejectedError(Reason.BAD_TIME, f"column {TIME!r} holds nulls or impossible times")
    return np.rint(seconds * 1000).astype(np.int64)


def _weight(table: Any) -> Numbers | None:
    if WEIGHT not in table.column_names:
        return None
    weight = numbers(table[WEIGHT], WEIGHT)
    if not np.all((weight >= MIN_WEIGHT) & (weight <= MAX_WEIGHT)):
        raise RejectedError(
            Reason.BAD_WEIGHT,
            f"column {WEIGHT!r} must lie between {MIN_WEIGHT:g} and {MAX_WEIGHT:g}",
        )
    return weight
