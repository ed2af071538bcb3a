"""A dead letter: the untouched bytes of a message, and headers that say why and where it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HEADER_PREFIX = "attributary-"

Headers = Sequence[tuple[str, bytes]]


@dataclass(frozen=True)
class DeadLetter:
    """Why a message (or some rows of it) was rejected. ``first_seen`` is milliseconds.

    ``rows`` are the positions of the rejected rows inside the message; empty: all of it.
    """

    topic: str
    partition: int
    offset: int
    reason: str
    message: str
    first_seen: int
    rows: tuple[int, ...] = ()

    def headers(self, original: Headers = ()) -> list[tuple[str, bytes]]:
        """Return the message's own headers followed by these fields."""
        kept = [(name, value) for name, value in original if not name.startswith(HEADER_PREFIX)]
        fields = {
            "topic": self.topic,
            "partition": str(self.partition),
            "offset": str(self.offset),
            "reason": self.reason,
            "message": self.message[:1000],
            "first-seen": str(self.first_seen),
            "rows": ",".join(map(str, self.rows)),
        }
        return [*kept, *((HEADER_PREFIX + name, text.encode()) for name, text in fields.items())]

    @classmethod
    def from_headers(cls, headers: Headers) -> DeadLetter:
        """Return the fields of a dead letter; KeyError or ValueError where they are not one's."""
        found = {
            name.removeprefix(HEADER_PREFIX): (value or b"").decode("utf-8", "replace")
            for name, value in headers
            if name.startswith(HEADER_PREFIX)
        }
        return cls(
            topic=found["topic"],
            partition=int(found["partition"]),
            offset=int(found["offset"]),
            reason=found["reason"],
            message=found["message"],
            first_seen=int(found["first-seen"]),
            rows=tuple(int(row) for row in found["rows"].split(",") if row),
        )
