"""CloudEvents 1.0 in Kafka messages: binary mode (headers ``ce_…``) and structured mode (JSON).

https://github.com/cloudevents/spec, Kafka protocol binding and JSON event format.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from attributary.schemas.adapters.message import ForeignMessage, parse_json
from attributary.schemas.errors import Reason, RejectedError

_STRUCTURED = "application/cloudevents"


@dataclass(frozen=True)
class CloudEvent:
    """An event: its attributes by lower-case name, and its data as bytes."""

    attributes: Mapping[str, str]
    data: bytes

    def get(self, name: str) -> str | None:
        """Return an attribute; None where it is not there or empty."""
        return self.attributes.get(name) or None


def read_event(message: ForeignMessage) -> CloudEvent:
    """Return the event that a message is; RejectedError: it is none."""
    content = (message.header("content-type") or "").lower()
    if content.startswith(_STRUCTURED):
        return _structured(parse_json(message.value))
    attributes = {
        name[3:]: value.decode("utf-8", "replace")
        for name, value in message.headers.items()
        if name.startswith(("ce_", "ce-"))
    }
    if attributes:
        return CloudEvent({**attributes, "datacontenttype": content}, message.value)
    if message.value.lstrip()[:1] == b"{":
        found = parse_json(message.value)
        if isinstance(found, dict) and "specversion" in found:
            return _structured(found)
    raise RejectedError(
        Reason.NOT_DECODABLE,
        "not a CloudEvent: no header ce_id, no content type application/cloudevents+json",
    )


def _structured(event: Any) -> CloudEvent:
    if not isinstance(event, dict):
        raise RejectedError(Reason.WRONG_TYPE, "a structured CloudEvent is a JSON object")
    attributes = {
        name.lower(): value if isinstance(value, str) else str(value)
        for name, value in event.items()
        if name not in ("data", "data_base64") and isinstance(value, (str, int, bool))
    }
    if (encoded := event.get("data_base64")) is not None:
        try:
            data = base64.b64decode(encoded, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise RejectedError(Reason.NOT_DECODABLE, "data_base64 is not base64") from None
    elif isinstance(event.get("data"), str):
        data = event["data"].encode("utf-8", "replace")
    else:
        data = msgspec.json.encode(event.get("data"))
    return CloudEvent(attributes, data)
