"""When rows happened: a column of numbers, timestamps or texts as seconds since 1970."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from attributary.schemas.arrow_columns import numbers
from attributary.schemas.errors import ConfigurationError, Reason, RejectedError

UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_SECONDS_TOO_LARGE = 1e11  # the year 5138


class Times(NamedTuple):
    """Seconds since 1970 (rows,), NaN where there is none, and why, by position."""

    seconds: npt.NDArray[np.float64]
    problems: dict[int, str]


@dataclass(frozen=True)
class EventTimes:
    """How times are written.

    ``unit`` of numbers. ``zone``: of times that do not name one; of an hour that comes twice the first is
    meant. ``form``: of texts, as ``strptime`` has it; None: ISO 8601.
    """

    unit: str = "s"
    zone: str = "UTC"
    form: str | None = None

    def __post_init__(self) -> None:
        self._zone()

    def column(self, column: Any, name: str) -> Times:
        """Read an Arrow column. ConfigurationError: all of it is in another unit."""
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_temporal(column.type):
            seconds = self._temporal(column, name)
        elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            return self._texts(column)
        else:
            seconds = numbers(pa.chunked_array([column]), name) / UNITS[self.unit]
            known = np.abs(seconds[np.isfinite(seconds)])
            if known.size and known.max() > _SECONDS_TOO_LARGE:
                raise ConfigurationError(
                    f"--time-column {name!r} holds {known.max():g}, too large for seconds since 1970: "
                    "give its unit with --time-unit ms, us or ns"
                )
        seconds = np.where(np.isfinite(seconds), seconds, np.nan)
        missing = np.flatnonzero(np.isnan(seconds))
        return Times(seconds, {int(place): "the time is missing" for place in missing})

    def value(self, value: Any) -> float:
        """Read one time, a number or a text; RejectedError says what is wrong with it."""
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            seconds = float(value) / UNITS[self.unit]
            if math.isfinite(seconds) and abs(seconds) <= _SECONDS_TOO_LARGE:
                return seconds
        elif isinstance(value, str):
            return self._text(value.strip(), self._zone())
        expected = f"neither {self.unit} since 1970 (--time-unit) nor a text"
        raise RejectedError(Reason.BAD_TIME, f"the time {value!r:.60} is {expected}")

    def _temporal(self, column: Any, name: str) -> npt.NDArray[np.float64]:
        try:
            if not pa.types.is_timestamp(column.type):
                column = column.cast(pa.timestamp("ms"))
            if column.type.tz is None:
                column = pc.assume_timezone(
                    column, self.zone, ambiguous="earliest", nonexistent="latest"
                )
            moments = column.cast(pa.timestamp("ms", tz="UTC"), safe=False)
        except pa.ArrowException as error:
            raise ConfigurationError(f"--time-column {name!r}: {error}") from None
        found = moments.cast(pa.int64()).cast(pa.float64()).to_numpy(zero_copy_only=False) / 1000
        return np.asarray(found, dtype=np.float64)

    def _texts(self, column: Any) -> Times:
        zone = self._zone()
        seconds = np.full(len(column), np.nan)
        problems: dict[int, str] = {}
        known: dict[str, float] = {}
        for place, text in enumerate(column.to_pylist()):
            try:
                if text is None or not text.strip():
                    raise RejectedError(Reason.BAD_TIME, "the time is missing")
                found = known.get(text)
                if found is None:
                    found = known[text] = self._text(text.strip(), zone)
                seconds[place] = found
            except RejectedError as error:
                problems[place] = str(error)
        return Times(seconds, problems)

    def _text(self, text: str, zone: tzinfo) -> float:
        try:
            if self.form is not None:
                moment = datetime.strptime(text, self.form)
            else:
                moment = datetime.fromisoformat(_iso(text))
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=zone)
            return moment.timestamp()
        except (ValueError, OverflowError):
            form = "ISO 8601 (--time-format says another)" if self.form is None else repr(self.form)
            raise RejectedError(Reason.BAD_TIME, f"the time {text!r:.60} is not {form}") from None

    def _zone(self) -> tzinfo:
        if self.zone == "UTC":
            return timezone.utc
        try:
            return ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ConfigurationError(
                f"--time-zone {self.zone!r} is none that this machine knows: expected a name such as "
                "UTC or Europe/Berlin"
            ) from None


def _iso(text: str) -> str:
    """Return a time as Python 3.10 reads it: an offset for Z, and three or six digits of a second."""
    if text[-1:] in "zZ":
        text = f"{text[:-1]}+00:00"
    whole, point, rest = text.partition(".")
    if not point:
        return text
    digits = len(rest) - len(rest.lstrip("0123456789"))
    return f"{whole}.{rest[:digits][:6].ljust(6, '0')}{rest[digits:]}"
