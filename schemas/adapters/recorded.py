"""Kafka messages in a file, one a line: as ``kcat -C -J`` prints them, or a value alone.

A value that is no text stands as ``payload_base64`` in the place of ``payload``.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from attributary.schemas.adapters.message import ForeignMessage, parse_json
from attributary.schemas.errors import Reason, RejectedError


def read_recorded(line: bytes) -> ForeignMessage:
    """Return the message of a line; a line that is no record is a message's value."""
    found = parse_json(line, "the line")
    if (
        not isinstance(found, dict)
        or "topic" not in found
        or not ("payload" in found or "payload_base64" in found)
    ):
        return ForeignMessage(line)
    timestamp = found.get("ts")
    return ForeignMessage(
        _payload(found),
        _bytes(found.get("key")),
        _headers(found.get("headers")),
        str(found["topic"]),
        timestamp if type(timestamp) is int and timestamp >= 0 else None,
    )


def _payload(found: dict[str, Any]) -> bytes:
    encoded = found.get("payload_base64")
    if encoded is None:
        return _bytes(found["payload"]) or b""
    try:
        return base64.b64decode(encoded, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise RejectedError(Reason.NOT_DECODABLE, "payload_base64 is not base64") from None


def _headers(given: Any) -> dict[str, bytes]:
    """Return the headers of a flat list (name, value, name, ...), as kcat writes them, or of an object."""
    pairs: Any = ()
    if isinstance(given, dict):
        pairs = given.items()
    elif isinstance(given, list):
        pairs = zip(given[::2], given[1::2], strict=False)
    return {str(name).lower(): _bytes(value) or b"" for name, value in pairs}


def _bytes(value: Any) -> bytes | None:
    return None if value is None else str(value).encode("utf-8", "replace")
