"""The bytes of a rejected message: whose they are, and some of its rows alone."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from aiokafka import ConsumerRecord

from attributary.schemas.dead_letter import Headers
from attributary.schemas.errors import Reason, RejectedError
from attributary.schemas.row import CONTENT_HEADER, MODEL_HEADER, array_parts

_MOST_MODELS = 20


class _Named(msgspec.Struct):
    model: str | None = None


_one = msgspec.json.Decoder(_Named)
_many = msgspec.json.Decoder(list[_Named])


def models_of(record: ConsumerRecord) -> tuple[str, ...]:
    """Return the models that a message names, in its rows or schema, else in its header; () for none."""
    value = record.value or b""
    if holds_arrow(record.headers, value):
        found = _arrow_model(value)
    else:
        try:
            many = value.lstrip()[:1] == b"["
            rows = _many.decode(value) if many else [_one.decode(value)]
        except (msgspec.MsgspecError, RecursionError):
            rows = []
        found = tuple(sorted({row.model for row in rows if row.model}))[:_MOST_MODELS]
    named = _header(record.headers, MODEL_HEADER)
    return found or (() if named is None else (named,))


def take_rows(value: bytes, headers: Headers, rows: Sequence[int]) -> bytes:
    """Return a message with these rows of ``value`` alone; no ``rows``: all of it, untouched.

    RejectedError: the rows cannot be told apart, or are not there.
    """
    if not rows:
        return value
    if holds_arrow(headers, value):
        from attributary.schemas.arrow import take_arrow_rows

        return take_arrow_rows(value, rows)
    stripped = value.lstrip()
    if stripped[:1] != b"[":
        if tuple(rows) == (0,):
            return value
        raise RejectedError(Reason.WRONG_TYPE, f"expected an array, with a row {rows[-1]}")
    parts = array_parts(stripped)
    if max(rows) >= len(parts):
        raise RejectedError(
            Reason.WRONG_TYPE, f"expected more than {max(rows)} rows, got {len(parts)}"
        )
    return b"[" + b",".join(parts[row] for row in rows) + b"]"


def holds_arrow(headers: Headers, value: bytes) -> bool:
    """Whether a message is an Arrow stream: its content type says so, or else its first bytes."""
    from attributary.schemas.arrow import ARROW_CONTENT, CONTINUATION

    content = _header(headers, CONTENT_HEADER)
    return value.startswith(CONTINUATION) if content is None else content == ARROW_CONTENT


def _arrow_model(value: bytes) -> tuple[str, ...]:
    from attributary.schemas.arrow import decode_arrow_rows

    try:
        return (decode_arrow_rows(value).model,)
    except RejectedError:
        return ()


def _header(headers: Headers, name: str) -> str | None:
    for found, value in headers:
        if found.lower() == name:
            return (value or b"").decode("utf-8", "replace") or None
    return None
