"""Exact accounting from outside: what became of every offset of the rows topic, from the manifests.

Ingest sends the manifest of each block to every partition of the sketches topic, so one partition tells
all. Of two manifests for one (topic, partition, block), the one that covers more offsets holds; their
sum gives, at any time, rows published = rows accepted + rejected + waiting + not read yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from attributary.schemas.connection import Connection
from attributary.schemas.errors import BrokerError
from attributary.schemas.manifest import MANIFEST_KEY, Manifest
from attributary.schemas.topics import Topics
from attributary.workers.stream.closing import close
from attributary.workers.stream.ends import Fetched, log_ends
from attributary.workers.stream.log_reader import topic_partitions

RECENT_MS = 600_000
_FETCH_BYTES = 16 * 2**20

Source = tuple[str, int]
"""Topic and partition that rows were read from."""


@dataclass(frozen=True)
class ModelAccount:
    """Rows of one model over all blocks; ``rejected`` by reason.

    ``thinned`` of the accepted rows are counted and left out of the sketches, in the lightweight mode.
    """

    accepted: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    waiting: int = 0
    thinned: int = 0

    @property
    def rows_rejected(self) -> int:
        """Rows rejected for any reason."""
        return sum(self.rejected.values())


@dataclass(frozen=True)
class SourceAccount:
    """Offsets of one source partition: from ``start`` to ``upto`` are read, without ``gaps`` of them.

    ``overlaps`` are offsets that two blocks claim, which would count rows twice. ``end`` is where the log
    ends.
    """

    start: int
    upto: int
    covered: int
    gaps: int
    overlaps: int
    end: int
    event_time: int | None = None

    @property
    def lag(self) -> int:
        """Offsets from ``upto`` to the end of the log."""
        return max(0, self.end - self.upto)

    @property
    def lost_end(self) -> bool:
        """Whether the log ends before what was read of it: the topic is another one of the same name, or the
        broker has lost the end. Rows at offsets that were read before are not counted."""
        return self.end < self.upto


@dataclass(frozen=True)
class Recent:
    """Totals by model of the blocks that took rows in the RECENT_MS before the newest did, at ``until``: ms,
    by the clock of the sketches topic; 0: there is no block."""

    models: Mapping[str, ModelAccount] = field(default_factory=dict)
    until: int = 0


@dataclass(frozen=True)
class Accounting:
    """Totals by model ('': rows whose model cannot be read) and by source partition."""

    models: Mapping[str, ModelAccount]
    sources: Mapping[Source, SourceAccount]
    recent: Recent = Recent()

    @property
    def accepted(self) -> int:
        """Rows accepted, all models."""
        return sum(model.accepted for model in self.models.values())

    @property
    def rejected(self) -> int:
        """Rows rejected, all models and reasons."""
        return sum(model.rows_rejected for model in self.models.values())

    @property
    def rejected_by_reason(self) -> dict[str, int]:
        """Rows rejected by reason, all models."""
        total: dict[str, int] = {}
        for model in self.models.values():
            for reason, rows in model.rejected.items():
                total[reason] = total.get(reason, 0) + rows
        return total

    @property
    def waiting(self) -> int:
        """Rows read that wait for their model's grid."""
        return sum(model.waiting for model in self.models.values())

    @property
    def thinned(self) -> int:
        """Rows accepted that the sketches leave out, all models."""
        return sum(model.thinned for model in self.models.values())

    @property
    def gaps(self) -> int:
        """Offsets between blocks that no manifest covers: anything above 0 is a loss."""
        return sum(source.gaps for source in self.sources.values())

    @property
    def overlaps(self) -> int:
        """Offsets that two blocks claim: anything above 0 counts rows twice."""
        return sum(source.overlaps for source in self.sources.values())

    @property
    def lag(self) -> int:
        """Offsets in the log that no manifest covers yet."""
        return sum(source.lag for source in self.sources.values())

    @property
    def begun_recently(self) -> bool:
        """Whether all rows that are counted came in recent blocks."""
        return self.recent.models == self.models

    @property
    def lost_ends(self) -> list[Source]:
        """Source partitions whose log ends before what was read of it."""
        return [at for at, source in self.sources.items() if source.lost_end]

    @property
    def settled(self) -> bool:
        """Every offset in the log is counted, once, and no row waits."""
        return not (self.lag or self.waiting or self.gaps or self.overlaps or self.lost_ends)


class ManifestFold:
    """Folds manifests, in any order and however often repeated, into an Accounting."""

    def __init__(self) -> None:
        self._blocks: dict[Source, dict[int, Manifest]] = {}
        #: When the blocks took their newest offset.
        self._grew: dict[tuple[Source, int], int] = {}

    def add(self, manifest: Manifest, at: int = 0) -> None:
        """Count ``manifest``, written ``at`` (ms), unless as many offsets of its block are known."""
        source = manifest.topic, manifest.partition
        blocks = self._blocks.setdefault(source, {})
        known = blocks.get(manifest.block)
        if manifest.upto > (manifest.block if known is None else known.upto):
            self._grew[source, manifest.block] = at
        if known is None or _coverage(manifest) > _coverage(known):
            blocks[manifest.block] = manifest

    def manifests(self) -> Iterator[Manifest]:
        """Yield what holds of every block."""
        for blocks in self._blocks.values():
            yield from blocks.values()

    def accounting(self, log: Mapping[Source, tuple[int, int]] | None = None) -> Accounting:
        """Return the totals; ``log`` gives the first and the end offset of every source partition."""
        log = log or {}
        counted = {source: _uncut(blocks) for source, blocks in self._blocks.items()}
        until = max(self._grew.values(), default=0)
        models: dict[str, ModelAccount] = {}
        recent: dict[str, ModelAccount] = {}
        for source, blocks in counted.items():
            for block, manifest in blocks.items():
                _add_models(models, manifest)
                if self._grew.get((source, block), 0) > until - RECENT_MS:
                    _add_models(recent, manifest)
        # A partition that the topic does not have any more has lost all of its log.
        logged = {topic for topic, _ in log}
        gone = {at: (0, 0) for at in counted if at[0] in logged and at not in log}
        extents = {**log, **gone}
        sources = {
            source: _source(counted.get(source, {}), extents.get(source))
            for source in sorted({*counted, *log})
        }
        return Accounting(models, sources, Recent(recent, until))


def _coverage(manifest: Manifest) -> tuple[int, bool, int, int]:
    """Order manifests of one block. With equal offsets fewer waiting rows and a seal are news.

    Of two owners' that sketch other fractions of the same rows merge takes the larger.
    """
    waiting = sum(model.waiting for model in manifest.models.values())
    thinned = sum(model.thinned for model in manifest.models.values())
    return manifest.upto, manifest.sealed, -waiting, -thinned


def _uncut(blocks: Mapping[int, Manifest]) -> dict[int, Manifest]:
    """Leave out blocks that the log's truncation has cut through: what of their rows is left is counted again
    by the owner that began behind it, and merge drops them too."""
    begun = max((manifest.acknowledged for manifest in blocks.values()), default=0)
    return {
        block: manifest
        for block, manifest in blocks.items()
        if manifest.sealed or not block < begun < manifest.upto
    }


def _add_models(models: dict[str, ModelAccount], manifest: Manifest) -> None:
    for name, count in manifest.models.items():
        before = models.get(name, ModelAccount())
        rejected = dict(before.rejected)
        for reason, rows in count.rejected.items():
            rejected[reason] = rejected.get(reason, 0) + rows
        models[name] = ModelAccount(
            before.accepted + count.rows_accepted,
            rejected,
            before.waiting + count.waiting,
            before.thinned + count.thinned,
        )


def _source(blocks: Mapping[int, Manifest], log: tuple[int, int] | None) -> SourceAccount:
    ordered = [blocks[block] for block in sorted(blocks)]
    if not ordered:
        first, end = log or (0, 0)
        return SourceAccount(start=first, upto=first, covered=0, gaps=0, overlaps=0, end=end)
    gaps = overlaps = 0
    for left, right in pairwise(ordered):
        # Offsets of transaction markers and compacted records hold no row: where one owner
        # sealed a block and opened the next, it has seen that nothing lies between.
        if not (left.sealed and right.previous == left.block):
            gaps += max(0, right.block - left.upto)
        overlaps += max(0, left.upto - right.block)
    times = [
        count.event_time
        for manifest in ordered
        for count in manifest.models.values()
        if count.event_time is not None
    ]
    start, upto = ordered[0].block - ordered[0].lost, max(manifest.upto for manifest in ordered)
    first, end = log or (start, upto)
    return SourceAccount(
        start=start,
        upto=upto,
        covered=sum(manifest.upto - manifest.block for manifest in ordered),
        gaps=gaps + ordered[0].lost + (max(0, start - first) if end >= upto else 0),
        overlaps=overlaps,
        end=end,
        event_time=max(times, default=None),
    )


class AccountingReader:
    """Follows the manifests: ``async with AccountingReader(...) as reader: await reader.refresh()``.

    ``partition`` is the partition of the sketches topic to read. Every one holds all manifests, except
    one that was added after rows had already been counted. None takes the shortest: one without
    sketches, where there is one.
    """

    def __init__(
        self, connection: Connection, topics: Topics, *, partition: int | None = 0
    ) -> None:
        self._connection = connection
        self._topics = topics
        self._partition = None if partition is None else TopicPartition(topics.sketches, partition)
        self._partitions: list[TopicPartition] = []
        self._sources: list[TopicPartition] = []
        self._fold = ManifestFold()
        self._consumer: AIOKafkaConsumer | None = None

    @property
    def partition(self) -> int | None:
        """The partition that is read; None as long as none is chosen."""
        return None if self._partition is None else self._partition.partition

    async def __aenter__(self) -> AccountingReader:
        """Connect; BrokerError where the broker or a topic is missing."""
        self._sources, self._partitions = await self._find_partitions()
        consumer = AIOKafkaConsumer(
            **self._connection.client_arguments(),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=_FETCH_BYTES,
            fetch_max_wait_ms=20,  # a refresh waits for one answer
        )
        try:
            await consumer.start()
        except KafkaError as error:
            await close(consumer.stop())
            raise self._unreachable(error) from None
        self._consumer = consumer
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Disconnect."""
        if self._consumer is not None:
            await close(self._consumer.stop())

    def manifests(self) -> Iterator[Manifest]:
        """Yield what holds of every block that has been read."""
        return self._fold.manifests()

    async def refresh(self) -> Accounting:
        """Read on to the present end of the log and return the totals; BrokerError where it fails."""
        consumer = self._consumer
        if consumer is None:
            raise RuntimeError("use the reader as an async context manager")
        try:
            await self._assign(consumer)
            # The log's end first: manifests read afterwards can only cover more of it.
            log = await self._extents(consumer, self._sources)
            if self._partition is not None:
                await self._read(consumer, self._partition)
            found = self._fold.accounting(log)
            # Where they cover more than there was then, rows have come since, or the log has lost its end.
            if doubtful := [at for at in self._sources if tuple(at) in found.lost_ends]:
                log.update(await self._extents(consumer, doubtful))
                found = self._fold.accounting(log)
        except KafkaError as error:
            raise self._unreachable(error) from None
        return found

    async def _extents(
        self, consumer: AIOKafkaConsumer, sources: list[TopicPartition]
    ) -> dict[Source, tuple[int, int]]:
        """Return where the logs begin and end now."""
        first = await consumer.beginning_offsets(sources)
        consumer.resume(*sources)
        last = await log_ends(consumer, sources)
        consumer.pause(*sources)  # no row is wanted, only how many there are
        return {(at.topic, at.partition): (first[at], last[at]) for at in sources}

    async def _assign(self, consumer: AIOKafkaConsumer) -> None:
        if self._partition is None:
            ends = await consumer.end_offsets(self._partitions)
            if any(ends.values()):
                self._partition = min(ends, key=lambda at: (ends[at], at.partition))
        wanted = {*self._sources, *([] if self._partition is None else [self._partition])}
        if consumer.assignment() != wanted:
            consumer.assign(wanted)
            await consumer.seek_to_beginning(*wanted)

    async def _read(self, consumer: AIOKafkaConsumer, at: TopicPartition) -> None:
        """Fold the manifests up to the present end of their log."""
        fetched = Fetched(consumer, [at])
        while not fetched.all() or await consumer.position(at) < (consumer.highwater(at) or 0):
            polled = await consumer.getmany(at, timeout_ms=200)
            for record in polled.get(at, ()):
                if record.value is not None and (record.key or b"").startswith(MANIFEST_KEY):
                    self._fold.add(Manifest.from_bytes(record.value), record.timestamp)

    async def _find_partitions(self) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Return the partitions of rows and of sketches; BrokerError where a topic is missing."""
        rows, sketches = self._topics.rows, self._topics.sketches
        try:
            found = await topic_partitions(self._connection, [rows, sketches])
        except KafkaError as error:
            raise self._unreachable(error) from None
        return [p for p in found if p.topic == rows], [p for p in found if p.topic == sketches]

    def _unreachable(self, error: KafkaError) -> BrokerError:
        return BrokerError(
            f"cannot read from the broker at {self._connection.bootstrap}: {error}; is it running?"
        )


async def read_accounting(
    connection: Connection, topics: Topics, *, partition: int | None = 0
) -> Accounting:
    """Return what became of every offset of the rows topic so far; see AccountingReader."""
    async with AccountingReader(connection, topics, partition=partition) as reader:
        return await reader.refresh()
