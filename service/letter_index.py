"""What is known of the dead letters: one entry for every rejected message, and what became of its retries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from aiokafka import ConsumerRecord, TopicPartition

from attributary.schemas.connection import Connection
from attributary.schemas.dead_letter import DeadLetter, Origin, attempt_of
from attributary.schemas.errors import RejectedError
from attributary.schemas.retry_marker import RetryMarker
from attributary.service.letter_content import models_of
from attributary.service.reader import Reader

_MESSAGE_SHOWN = 300

State = Literal["open", "unfinished", "retried"]
Rows = frozenset[int]
"""Positions of rows in a message; empty: all of it."""


@dataclass
class Letter:
    """All dead letters of one message: a block that is replayed repeats them, and rows of one array may be
    rejected at different moments. ``rows`` are the rejected ones, together; where all of it was rejected,
    ``whole`` says how many rows that are."""

    origin: Origin
    message: str
    first_seen: int
    rows: Rows
    whole: int
    reasons: list[str]
    models: tuple[str, ...]
    attempt: int
    bytes: int
    claims: dict[int, RetryMarker] = field(default_factory=dict)
    outcomes: dict[tuple[int, str], str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many rows were rejected."""
        return len(self.rows) or self.whole

    @property
    def pending(self) -> Rows | None:
        """The rejected rows that no retry has taken; None: there are none."""
        taken = [claim for claim in self.claims.values() if self._outcome(claim) != "void"]
        if not taken:
            return self.rows
        if not self.rows or not all(claim.positions for claim in taken):
            return None
        return self.rows.difference(*(claim.positions for claim in taken)) or None

    @property
    def state(self) -> State:
        """``unfinished``: a retry claimed it and did not say that it was published."""
        if self.pending is not None:
            return "open"
        unfinished = any(self._outcome(claim) is None for claim in self.claims.values())
        return "unfinished" if unfinished else "retried"

    @property
    def next_attempt(self) -> int:
        """The number that the next retry claims."""
        return max(self.claims, default=0) + 1

    def _outcome(self, claim: RetryMarker) -> str | None:
        return self.outcomes.get((claim.attempt, claim.run))

    def add(self, letter: DeadLetter) -> None:
        """Count another dead letter of the same message."""
        rows = frozenset(letter.rows)
        self.rows = self.rows | rows if self.rows and rows else frozenset()
        self.whole = max(self.whole, 0 if rows else letter.count)
        self.first_seen = min(self.first_seen, letter.first_seen)
        if letter.reason not in self.reasons:
            self.reasons.append(letter.reason)

    def mark(self, marker: RetryMarker) -> None:
        """Count a marker; of the claims of one attempt the first one holds."""
        if marker.state == "claimed":
            self.claims.setdefault(marker.attempt, marker)
        else:
            self.outcomes[marker.attempt, marker.run] = marker.state


class LetterIndex:
    """Folds the records of the dead-letters topic; it keeps little of each, whatever its message holds."""

    def __init__(self) -> None:
        self.letters: dict[Origin, Letter] = {}
        self.unreadable = 0
        self._markers: dict[Origin, list[RetryMarker]] = {}

    def add(self, record: ConsumerRecord) -> None:
        """Count a record: a dead letter, a marker of a retry, or neither."""
        try:
            if RetryMarker.is_marker(record.headers):
                self._mark(RetryMarker.from_bytes(record.value))
            else:
                self._add(DeadLetter.from_headers(record.headers), record)
        except (KeyError, ValueError, RejectedError):
            self.unreadable += 1

    def __iter__(self) -> Iterator[Letter]:
        """Yield the letters, the oldest first."""
        return iter(
            sorted(self.letters.values(), key=lambda found: (found.first_seen, found.origin))
        )

    def _add(self, letter: DeadLetter, record: ConsumerRecord) -> None:
        known = self.letters.get(letter.origin)
        if known is not None:
            known.add(letter)
            return
        self.letters[letter.origin] = found = Letter(
            origin=letter.origin,
            message=letter.message[:_MESSAGE_SHOWN],
            first_seen=letter.first_seen,
            rows=frozenset(letter.rows),
            whole=0 if letter.rows else letter.count,
            reasons=[letter.reason],
            models=models_of(record),
            attempt=attempt_of(record.headers),
            bytes=len(record.value or b""),
        )
        # Where the topic has several partitions, a marker may be read before its letter.
        for marker in self._markers.pop(letter.origin, ()):
            found.mark(marker)

    def _mark(self, marker: RetryMarker) -> None:
        letter = self.letters.get(marker.origin)
        if letter is None:
            self._markers.setdefault(marker.origin, []).append(marker)
        else:
            letter.mark(marker)


@dataclass(frozen=True)
class Filter:
    """Which letters; None: any. Times are milliseconds, from ``since`` to before ``until``."""

    model: str | None = None
    reason: str | None = None
    topic: str | None = None
    since: int | None = None
    until: int | None = None

    def holds(self, letter: Letter) -> bool:
        """Whether the letter is wanted: one of its reasons, or of its models, is enough."""
        return (
            (self.model is None or self.model in letter.models)
            and (self.reason is None or self.reason in letter.reasons)
            and (self.topic is None or self.topic == letter.origin.topic)
            and (self.since is None or letter.first_seen >= self.since)
            and (self.until is None or letter.first_seen < self.until)
        )


async def read_index(
    connection: Connection,
    topic: str,
    index: LetterIndex,
    start_at: dict[TopicPartition, int] | None = None,
) -> dict[TopicPartition, int]:
    """Fold the records of the topic from its beginning, or from ``start_at``, to its present end.

    Returns where that is. BrokerError: it cannot be read.
    """
    reader = Reader(connection, [topic], from_beginning=True, follow=False, start_at=start_at)
    await reader.start()
    try:
        while (records := await reader.read()) is not None:
            for record in records:
                index.add(record)
        return reader.ends
    finally:
        await reader.stop()


def count_reasons(letters: Iterable[Letter]) -> dict[str, int]:
    """Return how many messages were rejected for each reason, the most frequent first."""
    counts: dict[str, int] = {}
    for letter in letters:
        for reason in letter.reasons:
            counts[reason] = counts.get(reason, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
