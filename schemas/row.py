"""The row on the wire as JSON: one object, or an array of them.

``{"model": "m", "features": {"age": 41, "plan": "pro", "income": null}, "outputs": 0.7,
"id": "r1", "time": "2026-01-31T12:00:00Z", "weight": 1}``: only ``features`` and ``outputs`` are needed where
the model's name comes in the message header ``model``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from attributary.schemas.errors import Reason, RejectedError

SCHEMA = "attributary.row/1"
#: Where rows go unless another topic is set.
DEFAULT_TOPIC = "attributary.rows"
JSON_CONTENT = "application/json"
MODEL_HEADER = "model"
CONTENT_HEADER = "content-type"

#: Squares of weights are summed in float32 on the way to merge.
MIN_WEIGHT, MAX_WEIGHT = 1e-12, 1e12
#: Characters of a feature's, an output's and a category's name: all of a model's stand in its grid.
MAX_NAME = 500

FeatureValue = float | bool | str | None
_FRACTION = re.compile(r"\.([0-9]+)")
_MODEL_NAME = re.compile(r"[\x21-\x7e]{1,200}")


class Row(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One row: what the model saw and what it said.

    ``features`` maps names to numbers, booleans, category names or null (missing); names have 1 to 500
    characters. ``outputs`` is one
    number, a list in the card's order, or a mapping by name: regression values, margins or logits.
    ``time`` is when it happened (RFC 3339, or seconds since the epoch; default: when the broker took it).
    ``id`` identifies the row to samplers (default: where it lies in the topic). ``weight``: 1e-12 to 1e12.
    """

    features: dict[str, FeatureValue]
    outputs: float | list[float | None] | dict[str, float | None]
    model: str | None = None
    id: str | int | None = None
    time: str | int | float | None = None
    weight: float = 1.0
    schema: str | None = None


@dataclass(frozen=True)
class RowError:
    """Why the row at ``index`` of its message cannot be used."""

    index: int
    reason: Reason
    message: str


@dataclass(frozen=True)
class JsonRows:
    """The readable rows of one message by position, and why the others are not."""

    rows: list[tuple[int, str, Row]] = field(default_factory=list)
    errors: list[RowError] = field(default_factory=list)


_encoder = msgspec.json.Encoder()
_row_decoder = msgspec.json.Decoder(Row)
_array_decoder = msgspec.json.Decoder(list[msgspec.Raw])


def encode_row(row: Row) -> bytes:
    """Return ``row`` as JSON; NaN and infinities become null."""
    return _encoder.encode(row)


class Shapes(Protocol):
    """Decodes rows like those before; see ``row_shape``."""

    def decode(self, data: bytes, model: str | None) -> Row | None:
        """Return the row, or None where it has to be decoded as any row."""

    def learn(self, data: bytes, model: str | None, row: Row) -> None:
        """Take note of a row that had to be decoded as any row."""


def decode_json_rows(
    data: bytes, *, model: str | None = None, max_rows: int = 100_000, shapes: Shapes | None = None
) -> JsonRows:
    """Return the rows of a JSON object or array; ``model`` names those that do not name their own.

    A message that is not JSON at all raises RejectedError; a bad row in an array is an error of
    its own and the others count. ``NaN`` and ``Infinity``, which Python's json writes, are accepted.
    """
    stripped = data.lstrip()
    if not stripped:
        raise RejectedError(Reason.EMPTY, "the message is empty; expected a row as JSON or Arrow")
    if stripped[:1] != b"[":
        return _collect([stripped], model, shapes, single=True)
    parts = array_parts(stripped)
    if not parts:
        raise RejectedError(Reason.EMPTY, "the array holds no row")
    if len(parts) > max_rows:
        raise RejectedError(
            Reason.TOO_LARGE,
            f"the array holds {len(parts)} rows; send at most {max_rows} a message",
            rows=len(parts),
        )
    return _collect(parts, model, shapes, single=False)


def array_parts(array: bytes) -> list[bytes]:
    """Return the elements of a JSON array as JSON, their bytes untouched where the array is strict JSON.

    RejectedError: it is not JSON.
    """
    try:
        return [bytes(part) for part in _array_decoder.decode(array)]
    except (msgspec.MsgspecError, RecursionError):
        found = _lenient(array)
        return [json.dumps(part).encode() for part in found] if isinstance(found, list) else []


def _collect(
    parts: list[bytes], model: str | None, shapes: Shapes | None, *, single: bool
) -> JsonRows:
    found = JsonRows()
    for index, part in enumerate(parts):
        try:
            row = _decode_one(part, model, shapes)
            found.rows.append((index, model_name(row.model or model), row))
        except RejectedError as error:
            if single:
                raise
            found.errors.append(RowError(index, error.reason, str(error)))
    return found


def output_number(value: Any) -> float | None:
    """Return an output as a finite float, or None where it is missing, NaN or infinite.

    RejectedError: it is text, or no number.
    """
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or isinstance(value, str):
        raise RejectedError(Reason.WRONG_TYPE, f"an output is a number, got {value!r:.80}")
    return number if math.isfinite(number) else None


def weight_of(value: Any) -> float:
    """Return a row's weight; RejectedError where it is no number, or beyond what windows can add up."""
    try:
        weight = float(value)
    except (TypeError, ValueError, OverflowError):
        weight = math.nan
    if not MIN_WEIGHT <= weight <= MAX_WEIGHT:
        raise RejectedError(
            Reason.BAD_WEIGHT,
            f"weight must lie between {MIN_WEIGHT:g} and {MAX_WEIGHT:g}, got {value!r:.80}",
        )
    return weight


def _decode_one(part: bytes, model: str | None, shapes: Shapes | None) -> Row:
    row = None if shapes is None else shapes.decode(part, model)
    if row is None:
        row = _decode_any(part)
        if b"\\u" in part:
            _refuse_surrogates(row)
        if len(part) > MAX_NAME or b'""' in part:
            _check_names(row)
        if shapes is not None:
            shapes.learn(part, model, row)
    if row.schema is not None and row.schema != SCHEMA:
        raise RejectedError(
            Reason.WRONG_TYPE, f"expected the schema {SCHEMA!r} or none, got {row.schema!r}"
        )
    if not (MIN_WEIGHT <= row.weight <= MAX_WEIGHT):
        raise RejectedError(
            Reason.BAD_WEIGHT,
            f"weight must lie between {MIN_WEIGHT:g} and {MAX_WEIGHT:g}, got {row.weight}",
        )
    return row


def _decode_any(part: bytes) -> Row:
    try:
        return _row_decoder.decode(part)
    except (msgspec.ValidationError, RecursionError) as error:
        raise RejectedError(Reason.WRONG_TYPE, f"not a row: {error}") from None
    except msgspec.DecodeError:
        return _convert(_lenient(part))


def _check_names(row: Row) -> None:
    check_names(row.features)
    if isinstance(row.outputs, dict):
        check_names(row.outputs)
    if longest := max((len(v) for v in row.features.values() if isinstance(v, str)), default=0):
        check_category(longest)


def check_names(names: Iterable[str]) -> None:
    """Raise RejectedError where a name of a feature or output is empty or too long to be kept."""
    for name in names:
        if not 0 < len(name) <= MAX_NAME:
            raise RejectedError(
                Reason.WRONG_TYPE,
                f"names of features and outputs have 1 to {MAX_NAME} characters, got {name!r:.60}",
            )


def check_category(longest: int) -> None:
    """Raise RejectedError where the longest text among a row's values is too long for a category's name."""
    if longest > MAX_NAME:
        raise RejectedError(
            Reason.WRONG_TYPE,
            f"a feature that is text is a category's name of at most {MAX_NAME} characters, "
            f"got one of {longest}",
        )


def _refuse_surrogates(row: Row) -> None:
    """Raise RejectedError where an escape such as ``\\ud800`` made text that no message can carry."""
    try:
        _encoder.encode(row)
    except UnicodeEncodeError as error:
        raise _surrogate(error) from None


def _surrogate(error: UnicodeEncodeError) -> RejectedError:
    return RejectedError(
        Reason.NOT_DECODABLE, f"a string holds half of a surrogate pair: {error.object!r:.60}"
    )


def _lenient(data: bytes) -> object:
    """Parse JSON that may hold NaN and Infinity, as Python's own json module writes them."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RejectedError(Reason.NOT_DECODABLE, f"neither JSON nor Arrow: {error}") from None


def _convert(value: object) -> Row:
    try:
        return msgspec.convert(value, Row)
    except UnicodeEncodeError as error:
        raise _surrogate(error) from None
    except (msgspec.ValidationError, OverflowError, RecursionError) as error:
        raise RejectedError(Reason.WRONG_TYPE, f"not a row: {error}") from None


@lru_cache(maxsize=4096)
def model_name(name: str | None) -> str:
    """Return ``name``; RejectedError where it is missing or not a model's name."""
    if not name:
        raise RejectedError(
            Reason.NO_MODEL, f"no model: set 'model' in the row or the header {MODEL_HEADER!r}"
        )
    if not _MODEL_NAME.fullmatch(name):
        raise RejectedError(
            Reason.NO_MODEL,
            f"a model's name is 1 to 200 printable ASCII characters, no spaces, got {name!r:.80}",
        )
    return name


def event_time_ms(time: str | int | float | None, default: int) -> int:
    """Return ``time`` (RFC 3339 or seconds since the epoch) in milliseconds, or ``default``."""
    if time is None:
        return default
    if isinstance(time, str):
        # Python 3.10 reads no "Z" and fractions of 3 or 6 digits only; other languages write 1 to 9.
        text = _FRACTION.sub(lambda found: f".{found[1][:6]:0<6}", time, count=1)
        try:
            moment = datetime.fromisoformat(text.replace("Z", "+00:00").replace("z", "+00:00"))
        except ValueError:
            raise RejectedError(
                Reason.BAD_TIME, f"time must be RFC 3339 or seconds since 1970, got {time!r:.60}"
            ) from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=timezone.utc)
        return round(moment.timestamp() * 1000)
    if not abs(time) < 2**53:
        raise RejectedError(Reason.BAD_TIME, f"time must be seconds since 1970, got {time!r}")
    return round(time * 1000)
