"""A message of another system: bytes and what the log says of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from attributary.schemas.errors import Reason, RejectedError


@dataclass(frozen=True)
class ForeignMessage:
    """One message. Headers have lower-case names; ``timestamp`` is the log's, in ms, where there is one."""

    value: bytes
    key: bytes | None = None
    headers: Mapping[str, bytes] = field(default_factory=dict)
    topic: str = ""
    timestamp: int | None = None

    def header(self, *names: str) -> str | None:
        """Return the first of these headers that is there and not empty."""
        for name in names:
            if found := self.headers.get(name):
                return found.decode("utf-8", "replace")
        return None


def parse_json(data: bytes | str, what: str = "the message") -> Any:
    """Return JSON, which may hold NaN and Infinity as Python writes them; RejectedError: it is none."""
    if not data.strip():
        raise RejectedError(Reason.EMPTY, f"{what} is empty")
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise RejectedError(
                Reason.NOT_DECODABLE, f"{what} is not JSON: {error!s:.200}"
            ) from None


def parse_object(data: bytes | str, what: str = "the message") -> dict[str, Any]:
    """Return a JSON object; RejectedError: it is none."""
    found = parse_json(data, what)
    if not isinstance(found, dict):
        raise RejectedError(
            Reason.WRONG_TYPE, f"{what}: expected a JSON object, got {type(found).__name__}"
        )
    return found
