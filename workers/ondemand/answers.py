"""What the log of answers says: which requests are answered, and how often one was begun.

For the partitions of requests that this worker owns it knows every answer from the oldest uncommitted request
on: it follows the log, and looks back once to the broker's time of the first request that it meets there.
What is committed is forgotten, so that memory is bounded by how far requests are read ahead.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from attributary.schemas.connection import Connection
from attributary.schemas.context import context_headers
from attributary.schemas.dead_letter import Origin
from attributary.schemas.errors import RejectedError
from attributary.schemas.explanation import (
    FINAL,
    KIND_HEADER,
    ORIGIN_HEADER,
    PROGRESS,
    Explanation,
    Progress,
)
from attributary.schemas.request import PROGRESS_PREFIX
from attributary.schemas.topics import Topics
from attributary.workers.ondemand.job import Job
from attributary.workers.stream.closing import close
from attributary.workers.stream.log_reader import LogReader
from attributary.workers.stream.outgoing import Outgoing

_log = logging.getLogger(__name__)

#: Which worker wrote an answer.
WORKER_HEADER = "attributary-worker"

# Brokers' clocks may differ by so much.
_SLACK_MS = 10_000
_MOST_IDS = 100_000
_MOST_ATTEMPTS = 10_000


def answer_record(
    topics: Topics, partitions: int, message: Explanation | Progress, job: Job, worker: str
) -> Outgoing:
    """Return a message as a record of the explanations topic, all of one request in one partition.

    A final answer's key is the request's id; progress has another, so that compaction keeps both apart.
    """
    final = isinstance(message, Explanation)
    key = message.id if final else PROGRESS_PREFIX + message.id
    headers = [
        (KIND_HEADER, FINAL if final else PROGRESS),
        (ORIGIN_HEADER, str(job.origin).encode()),
        (WORKER_HEADER, worker.encode()),
        *context_headers(job.record.headers),
    ]
    partition = answer_partition(message.id, partitions)
    return Outgoing(topics.explanations, key.encode(), message.to_bytes(), partition, headers)


def answer_partition(request_id: str, partitions: int) -> int:
    """Return the explanations partition of a request."""
    return crc32(request_id.encode()) % partitions


@dataclass
class _First:
    """Where the first answer of an id lies in the log."""

    partition: TopicPartition
    offset: int
    repeated: bool = False


class AnswerLog(LogReader):
    """Follows the explanations topic.

    Two workers may both answer a request, when one of them has lost its partition without knowing it yet. The
    first answer in log order is the one that holds. Compaction keeps the last record of a key, so the
    worker that finds its own answer second writes the first one once more behind it: ``to_repeat``.
    """

    def __init__(self, connection: Connection, topics: Topics, worker: str, **kwargs: Any) -> None:
        super().__init__(connection, [topics.explanations], from_beginning=False, **kwargs)
        self.to_repeat: list[tuple[TopicPartition, int]] = []
        #: Told of every final answer, key and value; of those that a look back finds again, too.
        self.on_final: Callable[[bytes | None, bytes | None], None] = lambda key, value: None
        self._worker = worker.encode()
        self._answered: dict[TopicPartition, set[int]] = {}
        # From which broker's time on the answers to a partition's requests are known.
        self._known_from: dict[TopicPartition, float] = {}
        # None: this worker's answer is acknowledged, and not read back yet.
        self._ids: OrderedDict[bytes, _First | None] = OrderedDict()
        self._begun: OrderedDict[Origin, int] = OrderedDict()

    def own(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin to keep the answers to the requests of partitions; others are forgotten."""
        owned = set(partitions)
        self._answered = {p: self._answered.get(p, set()) for p in owned}
        self._known_from = {p: self._known_from.get(p, math.inf) for p in owned}

    async def know_since(self, partition: TopicPartition, time_ms: int) -> None:
        """Make sure that the answers to requests of this broker's time are known."""
        if time_ms >= self._known_from.get(partition, 0):
            return
        async with self.reading:
            if time_ms >= self._known_from.get(partition, 0):
                return
            since = max(0, time_ms - _SLACK_MS)
            consumer = self.consumer
            found = await consumer.offsets_for_times(dict.fromkeys(self.partitions, since))
            for part, place in found.items():
                if place is not None and place.offset < await consumer.position(part):
                    consumer.seek(part, place.offset)
            await self.catch_up()
            for owned in self._known_from:
                self._known_from[owned] = min(self._known_from[owned], since)

    def committed(self, partition: TopicPartition, offset: int) -> None:
        """Forget the answers to what lies before the committed offset."""
        answered = self._answered.get(partition)
        if answered:
            self._answered[partition] = {other for other in answered if other >= offset}

    def answered(self, origin: Origin, request_id: str | None) -> bool:
        """Whether the request at ``origin``, or another of its id, has its final answer."""
        partition = TopicPartition(origin.topic, origin.partition)
        if origin.offset in self._answered.get(partition, ()):
            return True
        return request_id is not None and _digest(request_id.encode()) in self._ids

    def acknowledged(self, origin: Origin, request_id: str | None) -> None:
        """Know of an answer of this worker's that is in the log, before it is read back from there.

        Whoever else asks the same meanwhile would be answered a second time.
        """
        self._answer(origin)
        if request_id is not None:
            self._ids.setdefault(_digest(request_id.encode()))
            self._forget_oldest()

    def begun(self, origin: Origin) -> int:
        """Return how many workers began with the request there and did not end or release it."""
        return self._begun.get(origin, 0)

    def add(self, record: ConsumerRecord) -> None:
        """Take a record of the explanations topic."""
        headers = dict(record.headers)
        kind = headers.get(KIND_HEADER)
        if kind == PROGRESS:
            self._add_progress(record, headers)
        elif kind == FINAL and record.key:
            self._add_final(record, headers)

    def _add_progress(self, record: ConsumerRecord, headers: dict[str, bytes]) -> None:
        try:
            progress = Progress.from_bytes(record.value)
            origin = _origin(headers)
        except (RejectedError, ValueError) as error:
            _log.warning("skipped a progress message: %s", error)
            return
        if _digest(progress.id.encode()) in self._ids:
            return
        if progress.state == "released":
            # Where the partition has moved, its next owner may have begun already.
            self._begun[origin] = max(0, self.begun(origin) - 1)
        elif progress.state == "started" or origin not in self._begun:
            self._begun[origin] = max(progress.attempt, self.begun(origin))
        self._begun.move_to_end(origin)
        if len(self._begun) > _MOST_ATTEMPTS:
            self._begun.popitem(last=False)

    def _add_final(self, record: ConsumerRecord, headers: dict[str, bytes]) -> None:
        try:
            self._answer(_origin(headers))
        except ValueError as error:
            _log.warning("an answer does not say what it answers: %s", error)
        digest = _digest(record.key)
        first = self._ids.get(digest)
        mine = headers.get(WORKER_HEADER) == self._worker
        # A look back may find a record before the first one known, and all of them again.
        if first is None or record.offset < first.offset:
            place = TopicPartition(record.topic, record.partition)
            self._ids[digest] = _First(place, record.offset)
        elif record.offset > first.offset and mine and not first.repeated:
            first.repeated = True
            self.to_repeat.append((first.partition, first.offset))
        self.on_final(record.key, record.value)
        self._forget_oldest()

    def _answer(self, origin: Origin) -> None:
        answered = self._answered.get(TopicPartition(origin.topic, origin.partition))
        if answered is not None:
            answered.add(origin.offset)
        self._begun.pop(origin, None)

    def _forget_oldest(self) -> None:
        if len(self._ids) > _MOST_IDS:
            self._ids.popitem(last=False)

    async def read_at(self, partition: TopicPartition, offset: int) -> Outgoing | None:
        """Return the record there for sending it once more, as another's; None where it is gone."""
        consumer = AIOKafkaConsumer(
            **self._connection.client_arguments(),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        try:
            await consumer.start()
            consumer.assign([partition])
            consumer.seek(partition, offset)
            found = (await consumer.getmany(partition, timeout_ms=2000, max_records=1)).get(
                partition
            )
        finally:
            await close(consumer.stop())
        if not found or found[0].offset != offset:
            return None
        record = found[0]
        headers = [pair for pair in record.headers if pair[0] != WORKER_HEADER]
        return Outgoing(record.topic, record.key, record.value, record.partition, headers)


def _origin(headers: dict[str, bytes]) -> Origin:
    """Return which request a record of the topic is about; ValueError where it does not say."""
    return Origin.parse((headers.get(ORIGIN_HEADER) or b"").decode())


def _digest(request_id: bytes) -> bytes:
    return hashlib.blake2b(request_id, digest_size=16).digest()
