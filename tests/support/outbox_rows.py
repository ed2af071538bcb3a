"""What a publisher has put into its buffer, where no broker takes it."""

from __future__ import annotations

import json
from typing import Any

from attributary import Publisher


def take_rows(publisher: Publisher) -> list[dict[str, Any]]:
    """Take the rows of the next message out of the buffer; none where it is empty."""
    parcel = publisher._outbox.take(max_rows=10_000, max_bytes=2**24)
    if parcel is None:
        return []
    publisher._outbox.acknowledge(parcel)
    found = json.loads(parcel.value)
    return found if isinstance(found, list) else [found]
