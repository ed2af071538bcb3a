"""Which foreign messages a message of rows was made of: a header, and the memory of what is published."""

from __future__ import annotations

import json
from collections.abc import Iterable

from attributary.schemas.adapters.pairing import Log, Place
from attributary.schemas.dead_letter import HEADER_PREFIX, Headers, format_rows, parse_rows

ORIGINS_HEADER = HEADER_PREFIX + "origins"


def encode_origins(places: Iterable[Place]) -> bytes:
    """Return the places as a header's value: JSON of ``topic/partition`` to offsets such as ``0-4,7``."""
    offsets: dict[str, set[int]] = {}
    for (topic, partition), offset in places:
        offsets.setdefault(f"{topic}/{partition}", set()).add(offset)
    return json.dumps({log: format_rows(sorted(found)) for log, found in offsets.items()}).encode()


def decode_origins(headers: Headers) -> list[tuple[Log, tuple[int, ...]]]:
    """Return the offsets by log; nothing where the header is not there or none of ours."""
    value = dict(headers).get(ORIGINS_HEADER)
    if value is None:
        return []
    found = []
    try:
        for name, text in json.loads(value).items():
            topic, _, partition = name.rpartition("/")
            found.append(((topic, int(partition)), parse_rows(text)))
    except (ValueError, AttributeError, RecursionError):
        return []
    return found


class Published:
    """The offsets that are published already, of the logs that are read from ``starts`` on."""

    def __init__(self) -> None:
        self._offsets: dict[Log, set[int]] = {}

    def learn(self, headers: Headers, starts: dict[Log, int]) -> None:
        """Take note of a message of rows."""
        for log, offsets in decode_origins(headers):
            if (start := starts.get(log)) is not None:
                self._offsets.setdefault(log, set()).update(o for o in offsets if o >= start)

    def take(self, place: Place) -> bool:
        """Return whether the message there is published; it is asked for once."""
        offsets = self._offsets.get(place.log)
        if offsets is None or place.offset not in offsets:
            return False
        offsets.remove(place.offset)
        return True

    def forget(self, log: Log) -> None:
        """Drop what is known of a log."""
        self._offsets.pop(log, None)

    def __len__(self) -> int:
        return sum(map(len, self._offsets.values()))
