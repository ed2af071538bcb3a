"""What a message says of the call that it is part of: W3C trace context and baggage, CloudEvents."""

from __future__ import annotations

from attributary.schemas.dead_letter import Headers

CONTEXT_HEADERS = ("traceparent", "tracestate", "baggage")
CLOUD_EVENTS_PREFIX = "ce_"
# Enough for the 8 KiB that a baggage may have; what is longer must not make an answer too long to send.
_MOST_BYTES = 16_384


def context_headers(headers: Headers) -> list[tuple[str, bytes]]:
    """Return those of a message's headers that its outputs carry, as they came, 16 KiB of them at most."""
    carried = []
    size = 0
    for name, value in headers:
        lower = name.lower()
        if lower in CONTEXT_HEADERS or lower.startswith(CLOUD_EVENTS_PREFIX):
            size += len(name.encode()) + len(value or b"")
            if size > _MOST_BYTES:
                break
            carried.append((name, value))
    return carried
