"""The record of a retry, beside the dead letters: what is published again is not published twice."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from attributary.schemas.dead_letter import Headers, Origin, format_rows, parse_rows
from attributary.schemas.message import Message

MARKER_HEADER = "attributary-retry-marker"


class RetryMarker(Message):
    """``claimed`` before a message is published again, then ``done``, or ``void`` where it was not.

    Of the claims of one origin and attempt the first in log order holds, so that of two retries at
    one time one publishes.
    """

    SCHEMA: ClassVar[str] = "attributary.retry/1"

    topic: str
    partition: int
    offset: int
    attempt: int = Field(ge=1, description="1 for the first retry of this message, and so on.")
    state: Literal["claimed", "done", "void"]
    run: str = Field(description="The retry that wrote it.")
    at: int = Field(description="When, in milliseconds.")
    rows: str = Field(default="", description="Positions of the rows, such as 0-4,7; empty: all.")

    @property
    def origin(self) -> Origin:
        """Where the message lies that is published again."""
        return Origin(self.topic, self.partition, self.offset)

    @property
    def positions(self) -> frozenset[int]:
        """The rows; empty: all of the message."""
        return frozenset(parse_rows(self.rows))

    @property
    def key(self) -> bytes:
        """The record's key: all markers of one origin have the same."""
        return f"retry|{self.origin}".encode()

    @staticmethod
    def is_marker(headers: Headers) -> bool:
        """Whether a record among the dead letters is a marker, by its headers."""
        return any(name == MARKER_HEADER for name, _ in headers)

    @classmethod
    def claim(
        cls, origin: Origin, attempt: int, rows: frozenset[int], run: str, at: int
    ) -> RetryMarker:
        """Return the claim of some rows (empty: all) of a message."""
        return cls(
            topic=origin.topic,
            partition=origin.partition,
            offset=origin.offset,
            attempt=attempt,
            state="claimed",
            run=run,
            at=at,
            rows=format_rows(sorted(rows)),
        )
