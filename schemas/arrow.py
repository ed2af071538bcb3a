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

from attributary.schemas.arrow_columns import (
    Columns,
    ColumnShape,
    Numbers,
    longest,
    numbers,
    plain,
)
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

# Schemas that are remembered, and the largest of them: producers send few, and the hostile may send many.
_MOST_SHAPES, _LARGEST_SCHEMA = 32, 2**18


@dataclass(frozen=True)
class ArrowRows:
    """The rows of one message, column by column; ``time`` is milliseconds or None."""

    model: str
    rows: int
    features: Columns
    outputs: dict[str, Numbers]
    ids: list[bytes | None] | None
    time: npt.NDArray[np.int64] | None
    weight: Numbers | None

    def only(self, chosen: npt.NDArray[np.bool_]) -> ArrowRows:
        """Return the rows that a mask (rows,) chooses."""
        return ArrowRows(
            model=self.model,
            rows=int(chosen.sum()),
            features=self.features.only(chosen),
            outputs={name: values[chosen] for name, values in self.outputs.items()},
            ids=None if self.ids is None else [self.ids[i] for i in np.flatnonzero(chosen)],
            time=None if self.time is None else self.time[chosen],
            weight=None if self.weight is None else self.weight[chosen],
        )


class _Shape:
    """What the schema alone says of a message, checked; RejectedError where it cannot be read."""

    def __init__(self, schema: Any) -> None:
        metadata = schema.metadata or {}
        self.model = metadata.get(_MODEL, b"").decode("utf-8", "replace")
        try:
            names = schema.names
        except UnicodeDecodeError as error:
            text = f"the name of a column is not UTF-8: {error}"
            raise RejectedError(Reason.NOT_DECODABLE, text) from None
        if len(set(names)) != len(names):
            raise RejectedError(Reason.WRONG_TYPE, "the Arrow stream names a column twice")
        self.outputs = tuple(_output_names(metadata, names))
        reserved = {ID, TIME, WEIGHT, *self.outputs}
        features = [name for name in names if name not in reserved]
        check_names([*features, *self.outputs])
        self.columns = ColumnShape(schema, names)
        self.features = ColumnShape(schema, features)
        self.texts = self.features.texts


_shapes: dict[bytes, _Shape] = {}


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
    batches, schema = _read(data)
    rows = sum(batch.num_rows for batch in batches)
    if rows == 0:
        raise RejectedError(Reason.EMPTY, "the Arrow stream holds no row")
    try:
        if rows > max_rows:
            raise RejectedError(Reason.TOO_LARGE, f"{rows} rows; send at most {max_rows} a message")
        shape = _shape(data, schema)
        if len(batches) > 1:
            batches = pa.Table.from_batches(batches).combine_chunks().to_batches()
        return _rows(batches[0], shape, model)
    except RejectedError as error:
        raise RejectedError(error.reason, str(error), rows=rows) from None


def _read(data: bytes) -> tuple[list[Any], Any]:
    """Return the batches that hold rows, checked, and their schema."""
    try:
        if compressed(data):
            raise RejectedError(
                Reason.NOT_DECODABLE,
                "the Arrow buffers are compressed: write them plain and let the Kafka producer compress",
            )
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            batches = [batch for batch in reader if batch.num_rows]
            schema = reader.schema
        # Without the full check a wrong offset in a hostile message reads outside the buffer.
        for batch in batches:
            batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        raise RejectedError(Reason.NOT_DECODABLE, f"not an Arrow IPC stream: {error}") from None
    return batches, schema


def _shape(data: bytes, schema: Any) -> _Shape:
    """Return what the schema says, remembered by its bytes: a producer's messages have the same."""
    start = len(CONTINUATION) + 4
    size = int.from_bytes(data[len(CONTINUATION) : start], "little")
    if not data.startswith(CONTINUATION) or size > _LARGEST_SCHEMA:
        return _Shape(schema)
    key = data[: start + size]
    found = _shapes.get(key)
    if found is None:
        found = _Shape(schema)
        if len(_shapes) >= _MOST_SHAPES:
            _shapes.clear()
        _shapes[key] = found
    return found


def _rows(batch: Any, shape: _Shape, model: str | None) -> ArrowRows:
    for place in shape.texts:
        check_category(longest(batch.column(place)))
    named = model_name(shape.model or model)
    columns = Columns(batch, shape.columns)
    outputs = dict(zip(shape.outputs, columns.matrix(shape.outputs).T, strict=True))
    return ArrowRows(
        model=named,
        rows=batch.num_rows,
        features=columns.part(shape.features),
        outputs=outputs,
        ids=_ids(columns),
        time=_time(columns),
        weight=_weight(columns),
    )


def take_arrow_rows(data: bytes, rows: Sequence[int]) -> bytes:
    """Return an Arrow IPC stream with these rows of ``data`` alone, its schema and metadata unchanged.

    RejectedError: it is no Arrow stream, or does not have so many rows.
    """
    batches, schema = _read(data)
    table = pa.Table.from_batches(batches, schema)
    if rows and max(rows) >= table.num_rows:
        raise RejectedError(
            Reason.WRONG_TYPE, f"expected more than {max(rows)} rows, got {table.num_rows}"
        )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.take(pa.array(rows, pa.int64())))
    return bytes(sink.getvalue())


def _output_names(metadata: Mapping[bytes, bytes], names: Sequence[str]) -> list[str]:
    try:
        outputs = json.loads(metadata.get(_OUTPUTS, b"[]"))
    except (ValueError, RecursionError):
        outputs = None
    if not isinstance(outputs, list) or not outputs or not all(isinstance(o, str) for o in outputs):
        raise RejectedError(
            Reason.OUTPUTS_MISSING,
            f"the schema's metadata must hold {_OUTPUTS.decode()!r}, a JSON list of column names",
        )
    missing = sorted(set(outputs) - set(names))
    if missing:
        raise RejectedError(Reason.OUTPUTS_MISSING, f"no column for the outputs {missing[:5]}")
    return outputs


def _ids(columns: Columns) -> list[bytes | None] | None:
    if ID not in columns:
        return None
    return [None if value is None else str(value).encode() for value in plain(columns[ID], ID)]


def _time(columns: Columns) -> npt.NDArray[np.int64] | None:
    if TIME not in columns:
        return None
    column = columns[TIME]
    if pa.types.is_timestamp(column.type):
        if column.null_count:
            raise RejectedError(Reason.BAD_TIME, f"column {TIME!r} holds nulls")
        cast = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
        return np.asarray(cast.to_numpy(), dtype=np.int64)
    seconds = numbers(column, TIME)
    if not np.all(np.abs(seconds) < 2.0**53):
        raise RejectedError(Reason.BAD_TIME, f"column {TIME!r} holds nulls or impossible times")
    return np.rint(seconds * 1000).astype(np.int64)


def _weight(columns: Columns) -> Numbers | None:
    if WEIGHT not in columns:
        return None
    weight = numbers(columns[WEIGHT], WEIGHT)
    if not np.all((weight >= MIN_WEIGHT) & (weight <= MAX_WEIGHT)):
        raise RejectedError(
            Reason.BAD_WEIGHT,
            f"column {WEIGHT!r} must lie between {MIN_WEIGHT:g} and {MAX_WEIGHT:g}",
        )
    return weight
