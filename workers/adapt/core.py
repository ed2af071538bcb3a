"""Foreign records to messages of rows, and how far each log may be committed. No IO.

A record is published in one message of rows, never in two, and that message's header names all records
that it was made of: so what is published can be read back after a crash, and what is read again is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from aiokafka import ConsumerRecord

from attributary.schemas.adapters.convert import Converted, Converter
from attributary.schemas.adapters.framed import Decode, to_json
from attributary.schemas.adapters.message import ForeignMessage
from attributary.schemas.adapters.pairing import Log, Place
from attributary.schemas.dead_letter import DeadLetter
from attributary.schemas.errors import Reason, RejectedError
from attributary.schemas.row import CONTENT_HEADER, JSON_CONTENT, encode_row
from attributary.schemas.topics import Topics
from attributary.workers.adapt.origins import ORIGINS_HEADER, Published, encode_origins
from attributary.workers.stream.block import Rejection
from attributary.workers.stream.decode import record_of
from attributary.workers.stream.outgoing import MAX_RECORD_BYTES, Outgoing, dead_letter_record

_MESSAGE_BYTES = 900_000
_MOST_BYTES = MAX_RECORD_BYTES - 2**20  # room for the header


@dataclass
class Work:
    """What some records make: letters are to be acknowledged before rows are sent. Counts are of rows, and of
    messages that were there already."""

    letters: list[Outgoing] = field(default_factory=list)
    messages: list[Outgoing] = field(default_factory=list)
    rows: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    repeated: int = 0


class AdaptCore:
    """The logs that are read, each at its position.

    ``schemas``: readers by id, where values carry the id of their schema in front.
    """

    def __init__(
        self,
        converter: Converter,
        topics: Topics,
        *,
        batch_rows: int,
        schemas: Mapping[int, Decode | None] | None = None,
    ) -> None:
        self.converter = converter
        self.published = Published()
        self.positions: dict[Log, int] = {}
        self._topics = topics
        self._batch_rows = batch_rows
        self._schemas = schemas

    def begin(self, log: Log, position: int) -> None:
        """Read a log from ``position`` on."""
        self.positions[log] = position

    def end(self, log: Log) -> None:
        """Leave a log to somebody else, and what waits from it."""
        self.positions.pop(log, None)
        self.published.forget(log)
        self.converter.pairing.drop(log)

    def commits(self) -> dict[Log, int]:
        """Return where reading would have to begin again: at the oldest record that waits, if any does."""
        pairing = self.converter.pairing
        return {
            log: position if (oldest := pairing.oldest(log)) is None else oldest
            for log, position in self.positions.items()
        }

    def add(self, log: Log, records: Sequence[ConsumerRecord], now: float, into: Work) -> None:
        """Take records of a log, in order; ``now`` is seconds of any steady clock."""
        batch = _Batch(self._topics.rows, self._batch_rows, into)
        for record in records:
            if record.offset < self.positions[log]:
                continue
            self.positions[log] = record.offset + 1
            place = Place(log, record.offset)
            known = self.published.take(place)
            try:
                message = self._message(record)
                if known:
                    self.converter.remember(message)
                    into.repeated += 1
                    continue
                found = self.converter.add(message, place, now, named=True)
                batch.add(found, place)
            except RejectedError as error:
                self._reject(record, error.reason.value, str(error), (), error.rows, into)
                continue
            if found.errors:
                first = found.errors[0]
                rows = tuple(error.index for error in found.errors)
                reason, text = first.reason.value, first.message
                self._reject(record, reason, text, rows, len(rows), into)
        batch.finish()

    def _message(self, record: ConsumerRecord) -> ForeignMessage:
        message = foreign_message(record)
        if self._schemas is None:
            return message
        return replace(message, value=to_json(message.value, self._schemas))

    def _reject(
        self,
        record: ConsumerRecord,
        reason: str,
        message: str,
        rows: tuple[int, ...],
        count: int,
        into: Work,
    ) -> None:
        letter = DeadLetter(
            record.topic,
            record.partition,
            record.offset,
            reason,
            message,
            record.timestamp,
            rows,
            count,
        )
        into.letters.append(
            dead_letter_record(Rejection(letter, record_of(record), "", count), self._topics)
        )
        into.rejected[reason] += count


class _Batch:
    """Rows until they fill a message; all of a record's in one."""

    def __init__(self, topic: str, most: int, into: Work) -> None:
        self._topic = topic
        self._most = most
        self._into = into
        self._rows: list[bytes] = []
        self._places: set[Place] = set()
        self._size = 0

    def add(self, found: Converted, place: Place) -> None:
        if not found.groups:
            return
        models: Counter[str] = Counter()
        rows = []
        for group in found.groups:
            for row in group.rows:
                rows.append(encode_row(row))
                models[row.model or ""] += 1
        size = sum(map(len, rows)) + len(rows)
        if size > _MOST_BYTES:
            raise RejectedError(
                Reason.TOO_LARGE,
                f"its rows take {size:,} bytes as JSON; at most {_MOST_BYTES:,} are sent",
                rows=len(rows),
            )
        if self._rows and (
            len(self._rows) + len(rows) > self._most or self._size + size > _MESSAGE_BYTES
        ):
            self.finish()
        self._rows += rows
        self._size += size
        self._places.update(place for group in found.groups for place in group.places)
        self._into.rows.update(models)

    def finish(self) -> None:
        if not self._rows:
            return
        headers = [
            (CONTENT_HEADER, JSON_CONTENT.encode()),
            (ORIGINS_HEADER, encode_origins(self._places)),
        ]
        value = b"[" + b",".join(self._rows) + b"]"
        self._into.messages.append(Outgoing(self._topic, None, value, headers=headers))
        self._rows, self._places, self._size = [], set(), 0


def foreign_message(record: ConsumerRecord) -> ForeignMessage:
    """Return what adapters need of a client library's record."""
    return ForeignMessage(
        record.value or b"",
        record.key,
        {name.lower(): value or b"" for name, value in record.headers},
        record.topic,
        record.timestamp if record.timestamp >= 0 else None,
    )
