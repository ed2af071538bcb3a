"""Values of rows as JSON carries them: numpy scalars become plain, and what is none is refused."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from attributary.schemas.errors import Reason, RejectedError
from attributary.schemas.row import event_time_ms
from attributary.service.arrays import as_array, dimensions, is_array, is_numpy

_NOT_A_TIME = -(2**63)  # numpy's NaT


def one_row(values: Any) -> list[Any]:
    """Return a scalar, a vector or a batch of one as a list of plain values."""
    if isinstance(values, (list, tuple)):
        if len(values) == 1 and dimensions(values[0]) > 0:
            return one_row(values[0])
        return list(values)
    array = values if is_array(values) else as_array(values)
    if array.ndim == 1:
        return array.tolist()  # type: ignore[no-any-return]
    if array.ndim == 2 and array.shape[0] == 1:
        return array[0].tolist()  # type: ignore[no-any-return]
    if array.ndim == 0:
        return [array.item()]
    raise RejectedError(
        Reason.WRONG_TYPE, f"one row expected, got shape {array.shape}: use publish_batch"
    )


def as_list(values: Any) -> list[Any]:
    """Return a column as Python values; times stay numpy's, whose tolist() gives bare integers."""
    if hasattr(values, "tolist") and getattr(values.dtype, "kind", "O") not in "mM":
        return list(values.tolist())
    return list(values)


def rows_of(values: Any, count: int, what: str) -> list[Any]:
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    found = as_list(values)
    if len(found) != count:
        raise RejectedError(Reason.WRONG_TYPE, f"{len(found)} {what} for {count} rows")
    return found


def plain_value(value: Any, name: object) -> float | str | None:
    """Return a feature's value as JSON carries it; numpy scalars and subclasses become plain."""
    if is_numpy(value) and value.ndim == 0 and value.dtype.kind in "biufU":
        value = value.item()
    if value is None or isinstance(value, (bool, float, int)):
        return value
    if isinstance(value, str):
        return str(value)
    raise RejectedError(
        Reason.WRONG_TYPE,
        f"feature {name!r:.80} must be a number, a boolean, a string or None, "
        f"got {type(value).__name__}",
    )


def identity(value: Any) -> str | int:
    if is_numpy(value) and value.ndim == 0:
        value = value.item()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return value
    raise RejectedError(Reason.WRONG_TYPE, f"id must be a string or an integer, got {value!r:.80}")


def seconds(value: Any) -> str | float:
    """Return a time as RFC 3339 text or seconds since the epoch; RejectedError where it is neither."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise RejectedError(
                Reason.BAD_TIME,
                f"the time {value} has no time zone: use datetime.now(timezone.utc), "
                "or seconds since 1970",
            )
        return value.timestamp()
    if is_numpy(value) and value.ndim == 0:
        if value.dtype.kind == "M":
            value = value.astype("datetime64[ms]").astype("int64")
            if value == _NOT_A_TIME:
                raise RejectedError(Reason.BAD_TIME, "the time is missing (NaT)")
            return float(value) / 1000
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise RejectedError(
            Reason.BAD_TIME, f"time must be RFC 3339 or seconds since 1970, got {value!r:.80}"
        )
    event_time_ms(value, 0)
    return value
