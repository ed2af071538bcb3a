"""What predict functions take and return, as rows: frames, arrays, tensors, mappings, records.

Told by what they can do, so that none of their libraries is imported. What is returned no longer depends on
the caller's objects: a function may change its argument in place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from attributary.schemas.errors import Reason, RejectedError
from attributary.service.arrays import as_array, is_array, numbers, plain_matrix, plain_vector


class Observed(msgspec.Struct, frozen=True):
    """Features as ``publish`` (one row) or ``publish_batch`` (``many``) take them, and how many rows.

    ``Numbers`` are one row, whether as a vector or as a matrix (``many``).
    """

    features: Any
    many: bool
    rows: int


def observe(features: Any, names: Sequence[str] | None = None) -> Observed:
    """Return what a function was given: one row (a mapping, a record, a vector) or many.

    Many are a data frame, a mapping of columns, a matrix, a list of rows, a DMatrix. ``names`` are those of a
    vector or matrix, None: the publisher knows them. RejectedError: no rows can be made of it.
    """
    if is_array(features):  # most calls, and the rest is as long as a row's encoding
        shape = features.shape
        if names is None and (len(shape) == 1 or (len(shape) == 2 and shape[0] == 1)):
            return Observed(numbers(features) or features.copy(), len(shape) == 2, 1)
        return _array(features, names)
    value = _fields(features)
    if isinstance(value, Mapping):
        return _mapping(value)
    if _is_frame(value):
        columns = _columns(value)
        return Observed(columns, True, len(next(iter(columns.values()), ())))
    if hasattr(value, "get_data") and hasattr(value, "feature_names"):
        matrix, own = _entries(value.get_data()), value.feature_names
        return _matrix(matrix, own or names)
    if isinstance(value, (list, tuple)) and value:
        rows = [_fields(row) for row in value]
        if all(isinstance(row, Mapping) for row in rows):
            named = dict.fromkeys(name for row in rows for name in row)
            columns = {name: [plain(row.get(name)) for row in rows] for name in named}
            return Observed(columns, True, len(rows))
        if (listed := _listed(value, names)) is not None:
            return listed
    return _array(array_of(value), names)


def said(outputs: Any) -> Any:
    """Return what a function said, as ``publish`` and ``publish_batch`` take it."""
    if is_array(outputs):
        return outputs
    if hasattr(outputs, "to_numpy") and not hasattr(outputs, "columns"):
        return array_of(outputs)  # a Series is a column of outputs here, whatever its index
    value = _fields(outputs)
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if _is_frame(value):
        columns = _columns(value)
        return next(iter(columns.values())) if len(columns) == 1 else columns
    if isinstance(value, (float, int)):
        return value
    if plain_vector(value) or plain_matrix(value) is not None:
        return [plain(each) for each in value]
    return array_of(value)


def array_of(value: Any) -> Any:
    """Return an array of numpy, torch, scipy, or of anything that numpy can read."""
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        tensor = value.detach().cpu()
        try:
            return tensor.numpy()
        except TypeError:  # bfloat16, which numpy does not know
            return tensor.float().numpy()
    if hasattr(value, "toarray"):
        return value.toarray()
    return as_array(value)


def plain(value: Any) -> Any:
    """Return a member of a row or a column of a batch without its library: numbers, texts, lists."""
    if value is None or isinstance(value, (float, int, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if hasattr(value, "to_pylist"):
        return value.to_pylist()
    if hasattr(value, "detach") or hasattr(value, "__array__"):
        array = array_of(value)
        if array.dtype.kind in "mM" and array.ndim:
            return list(array)  # their tolist() gives bare integers
        if array.dtype.kind == "O" and array.ndim:
            return [None if type(each).__name__ == "NAType" else each for each in array.tolist()]
        return array.tolist()
    return value


def _fields(value: Any) -> Any:
    """Return a record (pydantic, dataclass, struct, named tuple, Series) as a mapping; else the value."""
    if isinstance(value, (Mapping, str)) or is_array(value):
        return value
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return value._asdict()
    if hasattr(value, "keys") and not hasattr(value, "columns"):
        return dict(value)
    return value


def _is_frame(value: Any) -> bool:
    return hasattr(value, "columns") and hasattr(value, "__getitem__")


def _columns(frame: Any) -> dict[str, Any]:
    """Return the columns of a frame of pandas or Arrow."""
    names = getattr(frame, "column_names", None) or list(frame.columns)
    return {str(name): plain(frame[name]) for name in names}


def _mapping(value: Mapping[Any, Any]) -> Observed:
    found = {name: plain(each) for name, each in value.items()}
    lengths = {len(each) for each in found.values() if isinstance(each, list)}
    if not lengths:
        return Observed(found, False, 1)
    if len(lengths) != 1 or not all(isinstance(each, list) for each in found.values()):
        raise RejectedError(
            Reason.WRONG_TYPE, "a mapping holds either one row's values or columns of one length"
        )
    return Observed(found, True, lengths.pop())


def _listed(values: Any, names: Sequence[str] | None) -> Observed | None:
    """Return a list of values, or of such lists, as rows; None where it takes numpy to read it."""
    if plain_vector(values):
        return Observed(list(values) if names is None else _row(values, names), False, 1)
    matrix = plain_matrix(values)
    if matrix is None:
        return None
    if names is None:
        return Observed([list(row) for row in matrix], True, len(matrix))
    _check_width(len(matrix[0]), names)
    columns = map(list, zip(*matrix, strict=True))
    return Observed(dict(zip(map(str, names), columns, strict=True)), True, len(matrix))


def _array(array: Any, names: Sequence[str] | None) -> Observed:
    if array.ndim == 1:
        return Observed(array.copy() if names is None else _row(array.tolist(), names), False, 1)
    return _matrix(array.copy(), names)


def _matrix(array: Any, names: Sequence[str] | None) -> Observed:
    if array.ndim != 2:
        raise RejectedError(
            Reason.WRONG_TYPE,
            f"features of shape (rows, features) expected, got {array.shape}: make them with "
            "watch(..., features=...)",
        )
    if names is None:
        return Observed(array, True, len(array))
    _check_width(array.shape[1], names)
    columns = {str(name): array[:, place].tolist() for place, name in enumerate(names)}
    return Observed(columns, True, len(array))


def _row(vector: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    _check_width(len(vector), names)
    return dict(zip(map(str, names), vector, strict=True))


def _check_width(width: int, names: Sequence[str]) -> None:
    if width != len(names):
        raise RejectedError(
            Reason.WRONG_TYPE, f"{width} features for {len(names)} names: {list(names)[:5]}"
        )


def _entries(matrix: Any) -> Any:
    """Return a sparse matrix (rows by ``indptr``) as an array, NaN where it has no entry."""
    import numpy as np  # who made the matrix has loaded it

    found = np.full(matrix.shape, np.nan)
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    found[rows, matrix.indices] = matrix.data
    return found
