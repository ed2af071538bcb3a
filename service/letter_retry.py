"""Publish rejected messages again, each once.

Of every message first a claim is written beside the dead letters, then the message, then that it is done.
Whoever finds a claim leaves the message alone, so that rows are not counted twice: neither by two retries
at one time (the first claim in the log holds) nor after a retry that was interrupted (it stays
``unfinished`` until somebody asks for it ``again``).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal
from zlib import crc32

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from attributary.schemas.connection import Connection
from attributary.schemas.dead_letter import DeadLetter, Origin, retry_headers
from attributary.schemas.errors import BrokerError, RejectedError
from attributary.schemas.retry_marker import MARKER_HEADER, RetryMarker
from attributary.schemas.topics import Topics
from attributary.service.letter_content import take_rows
from attributary.service.letter_index import Letter, LetterIndex, read_index
from attributary.service.reader import Reader
from attributary.workers.stream.outgoing import TRUNCATED_HEADER, Outgoing
from attributary.workers.stream.producer import AcknowledgedProducer

_BATCH_RECORDS = 500
_BATCH_BYTES = 8 * 2**20


@dataclass
class Outcome:
    """What a retry did, in messages. ``failures`` says, by origin, why some were not published."""

    published: int = 0
    rows: int = 0
    whole: int = 0
    taken_by_others: int = 0
    failures: dict[Origin, str] = field(default_factory=dict)


class _UnavailableError(Exception):
    """The message is not there as it was."""


class Retry:
    """One retry of the letters of one connection's dead-letters topic."""

    def __init__(self, connection: Connection, topics: Topics) -> None:
        self._connection = connection
        self._topics = topics
        self._run = uuid.uuid4().hex
        self._producer = AcknowledgedProducer(connection)
        self._partitions: dict[str, int] = {}

    async def run(
        self,
        index: LetterIndex,
        ends: dict[TopicPartition, int],
        letters: Sequence[Letter],
        *,
        again: bool = False,
    ) -> Outcome:
        """Publish the pending rows of ``letters``; with ``again``, all of their rejected rows.

        ``ends``: where ``index`` was read to. BrokerError: the broker refuses to be read or written.
        """
        outcome = Outcome()
        claims: dict[Origin, RetryMarker] = {}
        for letter in letters:
            rows = letter.rows if again else letter.pending
            if letter.origin.topic != self._topics.rows:
                # Whoever may write dead letters must not choose what this process writes to.
                outcome.failures[letter.origin] = (
                    f"only messages of the rows topic {self._topics.rows} are published again"
                )
            elif rows is not None:
                claims[letter.origin] = self._claim(letter, rows)
        await self._producer.start()
        try:
            for topic in (self._topics.dead_letters, self._topics.rows):
                self._partitions[topic] = await self._producer.partitions(topic)
            await self._mark(list(claims.values()))
            await read_index(self._connection, self._topics.dead_letters, index, ends)
            mine = {origin: claim for origin, claim in claims.items() if self._holds(index, claim)}
            outcome.taken_by_others = len(claims) - len(mine)
            await self._publish(mine, outcome)
        except KafkaError as error:
            raise BrokerError(
                f"the retry was interrupted after {outcome.published} messages: {error}"
            ) from None
        finally:
            await self._producer.stop()
        return outcome

    def _claim(self, letter: Letter, rows: frozenset[int]) -> RetryMarker:
        now = round(time.time() * 1000)
        return RetryMarker.claim(letter.origin, letter.next_attempt, rows, self._run, now)

    def _holds(self, index: LetterIndex, claim: RetryMarker) -> bool:
        first = index.letters[claim.origin].claims.get(claim.attempt)
        return first is not None and first.run == self._run

    async def _mark(self, markers: Sequence[RetryMarker]) -> None:
        topic = self._topics.dead_letters
        for start in range(0, len(markers), _BATCH_RECORDS):
            await self._producer.send(
                [
                    # One partition for one origin: the log's order decides who was first.
                    Outgoing(
                        topic,
                        marker.key,
                        marker.to_bytes(),
                        crc32(marker.key) % self._partitions[topic],
                        [(MARKER_HEADER, marker.state.encode())],
                    )
                    for marker in markers[start : start + _BATCH_RECORDS]
                ]
            )

    async def _publish(self, mine: dict[Origin, RetryMarker], outcome: Outcome) -> None:
        """Read the letters once more, for their bytes, and publish those that are claimed."""
        left = dict(mine)
        reader = Reader(
            self._connection, [self._topics.dead_letters], from_beginning=True, follow=False
        )
        await reader.start()
        try:
            batch: list[tuple[RetryMarker, Outgoing]] = []
            while left and (records := await reader.read()) is not None:
                for record in records:
                    letter = _letter(record)
                    claim = None if letter is None else left.pop(letter.origin, None)
                    if letter is None or claim is None:
                        continue
                    try:
                        batch.append((claim, self._again(letter, record, claim)))
                    except (_UnavailableError, RejectedError) as error:
                        outcome.failures[claim.origin] = str(error)
                    if _is_full(batch):
                        await self._send(batch, outcome)
                        batch = []
            await self._send(batch, outcome)
        finally:
            await reader.stop()
        for origin in left:
            outcome.failures[origin] = "it is no longer among the dead letters"
        unpublished = mine.keys() & outcome.failures.keys()
        await self._mark([_as(mine[origin], "void") for origin in sorted(unpublished)])

    async def _send(self, batch: list[tuple[RetryMarker, Outgoing]], outcome: Outcome) -> None:
        await self._producer.send([record for _, record in batch])
        await self._mark([_as(claim, "done") for claim, _ in batch])
        outcome.published += len(batch)
        for claim, _ in batch:
            outcome.rows += len(claim.positions)
            outcome.whole += not claim.rows

    def _again(self, letter: DeadLetter, record: ConsumerRecord, claim: RetryMarker) -> Outgoing:
        """Return the message to publish; an error says why it cannot be had."""
        if cut := dict(record.headers).get(TRUNCATED_HEADER):
            raise _UnavailableError(
                f"too large for a dead letter, of its {cut.decode(errors='replace')} bytes the end is lost"
            )
        value = record.value
        if value is not None:
            value = take_rows(value, record.headers, sorted(claim.positions))
        there = letter.partition < self._partitions[letter.topic]
        return Outgoing(
            letter.topic,
            record.key,
            value,
            letter.partition if there else None,
            retry_headers(letter, record.headers),
        )


def _letter(record: ConsumerRecord) -> DeadLetter | None:
    if RetryMarker.is_marker(record.headers):
        return None
    try:
        return DeadLetter.from_headers(record.headers)
    except (KeyError, ValueError):
        return None


def _as(claim: RetryMarker, state: Literal["done", "void"]) -> RetryMarker:
    return claim.model_copy(update={"state": state, "at": round(time.time() * 1000)})


def _is_full(batch: Sequence[tuple[RetryMarker, Outgoing]]) -> bool:
    size = sum(len(record.value or b"") for _, record in batch)
    return len(batch) >= _BATCH_RECORDS or size >= _BATCH_BYTES
