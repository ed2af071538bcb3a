"""A dead letter: the untouched bytes of a message, and headers that say why and where it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

HEADER_PREFIX = "attributary-"
# What a message that was published again says of itself; its own dead letter keeps both.
RETRY_OF_HEADER = HEADER_PREFIX + "retry-of"
ATTEMPT_HEADER = HEADER_PREFIX + "attempt"
_KEPT = (RETRY_OF_HEADER, ATTEMPT_HEADER)
_MOST_ROWS = 1_000_000

Headers = Sequence[tuple[str, bytes]]


class Origin(NamedTuple):
    """Where a message lies: what a dead letter is of."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Origin:
        """Return the origin of ``topic/partition/offset``; ValueError otherwise."""
        parts = text.rsplit("/", 2)
        topic, partition, offset = parts if len(parts) == 3 else ("", "", "")
        if not (topic and partition.isdecimal() and offset.isdecimal()):
            raise ValueError(f"expected topic/partition/offset, got {text!r}")
        return cls(topic, int(partition), int(offset))


@dataclass(frozen=True)
class DeadLetter:
    """Why a message (or some rows of it) was rejected. ``first_seen`` is milliseconds.

    ``rows`` are the positions of the rejected rows inside the message; empty: all of it. ``count`` is how
    many rows are rejected, 1 for a message that is too broken to tell.
    """

    topic: str
    partition: int
    offset: int
    reason: str
    message: str
    first_seen: int
    rows: tuple[int, ...] = ()
    count: int = 1

    @property
    def origin(self) -> Origin:
        """Where the message lies."""
        return Origin(self.topic, self.partition, self.offset)

    def headers(self, original: Headers = ()) -> list[tuple[str, bytes]]:
        """Return the message's own headers followed by these fields."""
        kept = [
            (name, value)
            for name, value in original
            if not name.startswith(HEADER_PREFIX) or name in _KEPT
        ]
        fields = {
            "topic": self.topic,
            "partition": str(self.partition),
            "offset": str(self.offset),
            "reason": self.reason,
            "message": self.message[:1000],
            "first-seen": str(self.first_seen),
            "rows": format_rows(self.rows),
            "count": str(self.count),
        }
        # What a sender wrote may be quoted in these, half surrogate pairs included.
        added = (
            (HEADER_PREFIX + name, text.encode(errors="replace")) for name, text in fields.items()
        )
        return [*kept, *added]

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
            rows=parse_rows(found["rows"]),
            count=int(found.get("count", "1")),
        )


def attempt_of(headers: Headers) -> int:
    """Return how often a message had been published again when it had these headers."""
    text = dict(headers).get(ATTEMPT_HEADER) or b""
    return int(text) if text.isdigit() and len(text) < 10 else 0


def retry_headers(letter: DeadLetter, headers: Headers) -> list[tuple[str, bytes]]:
    """Return the headers with which a dead letter's message is published again."""
    own = [(name, value) for name, value in headers if not name.startswith(HEADER_PREFIX)]
    return [
        *own,
        (RETRY_OF_HEADER, str(letter.origin).encode()),
        (ATTEMPT_HEADER, str(attempt_of(headers) + 1).encode()),
    ]


def format_rows(rows: Sequence[int]) -> str:
    """Return ascending positions as ``0-4,7``: a message may hold 100,000 bad rows."""
    parts: list[str] = []
    first = last = None
    for row in [*rows, None]:
        if first is not None and last is not None and row != last + 1:
            parts.append(str(first) if first == last else f"{first}-{last}")
            first = row
        elif first is None:
            first = row
        last = row
    return ",".join(parts)


def parse_rows(text: str) -> tuple[int, ...]:
    """Return the positions of ``0-4,7``; ValueError otherwise."""
    rows: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        span = range(int(first), int(last or first) + 1)
        if len(rows) + len(span) > _MOST_ROWS:
            raise ValueError(f"more than {_MOST_ROWS} rows")
        rows.extend(span)
    return tuple(rows)
