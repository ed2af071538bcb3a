"""Counts a stretch of the rows topic again, into topics of its own, with the numbers of the live run.

Blocks are cut by the log; their grids, and the fraction of their rows that is sketched, are those that the
live run's manifests name; and records are taken in the order of (broker's time, partition). So what is
written is a function of the topics and of the bounds alone: two replays are byte-identical, and final windows
equal the live ones except for ``computed_at`` and the accounting of their run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial

from aiokafka import AIOKafkaConsumer, TopicPartition

from attributary.schemas.attribution import WindowAttribution, WindowDrift
from attributary.schemas.connection import Connection
from attributary.schemas.errors import ConfigurationError
from attributary.schemas.manifest import MANIFEST_KEY, Manifest
from attributary.schemas.topics import Topics
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.control import ControlReader
from attributary.workers.stream.decode import Record, record_of
from attributary.workers.stream.epoch import Epoch
from attributary.workers.stream.ingest import Flush, PartitionIngest
from attributary.workers.stream.lightweight import Counting
from attributary.workers.stream.live_counts import LiveCounts
from attributary.workers.stream.log_reader import topic_partitions
from attributary.workers.stream.merge import MergePartition
from attributary.workers.stream.options import IngestOptions, MergeOptions
from attributary.workers.stream.ordered_log import OrderedLog
from attributary.workers.stream.outgoing import flush_records, result_record
from attributary.workers.stream.producer import AcknowledgedProducer


@dataclass(frozen=True)
class Stretch:
    """What to replay: the broker's time in milliseconds, [start, end); None: all there is.

    A replay begins where a block does, so it may begin up to a block earlier.
    """

    start: int | None = None
    end: int | None = None

    def __post_init__(self) -> None:
        if self.start is not None and self.end is not None and self.start >= self.end:
            raise ConfigurationError("a replay's start must lie before its end")


@dataclass(frozen=True)
class Replayed:
    """What a replay did, so far: records read and to read, rows, and messages written."""

    records: int
    of_records: int
    accepted: int
    thinned: int
    rejected: int
    messages: int


class LiveBlocks:
    """The catalogue, with each block's rows on the epoch, and at the fraction, that the live run counted
    them on."""

    def __init__(self, catalogue: ControlCatalogue, counts: LiveCounts) -> None:
        self._catalogue = catalogue
        self._counts = counts
        self.card = catalogue.card
        self.epoch = catalogue.epoch
        self.next_epoch = catalogue.next_epoch
        self.cards_read = catalogue.cards_read
        self.unregistered = catalogue.unregistered

    def epoch_in(self, model: str, partition: int, block: int) -> Epoch | None:
        """Return the epoch of the block's manifest, else the newest."""
        number = self._counts.epochs.get((model, partition, block))
        if number is None:
            return self._catalogue.epoch(model)
        return self._catalogue.epoch_of(model, number)

    def counted_as(self, partition: int, model: str, block: int) -> Counting:
        """Return how the block's rows were sketched: in full where no manifest tells."""
        return self._counts.counting((model, partition, block))


async def replay(
    connection: Connection,
    topics: Topics,
    into: Topics,
    ingest: IngestOptions,
    merge: MergeOptions,
    stretch: Stretch,
    progress: Callable[[Replayed], None],
) -> Replayed:
    """Count ``stretch`` of ``topics.rows`` again and write the results to the topics ``into``.

    ``into`` must differ from ``topics`` in everything that is written (ConfigurationError) and exist.
    """
    for role in ("sketches", "snapshots", "attributions", "drift", "dead_letters"):
        if getattr(into, role) == getattr(topics, role):
            raise ConfigurationError(
                f"a replay must not write to the live topic {getattr(topics, role)}"
            )
    control = ControlReader(connection, topics)
    producer = AcknowledgedProducer(connection)
    consumer = AIOKafkaConsumer(
        **connection.client_arguments(),
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=8 * 2**20,
    )
    await control.start()
    try:
        await producer.start()
        await consumer.start()
        catalogue = LiveBlocks(control.catalogue, await _live_counts(connection, consumer, topics))
        partitions = await topic_partitions(connection, [topics.rows])
        log = await OrderedLog.open(
            consumer, partitions, stretch.start, stretch.end, ingest.block_offsets
        )
        run = _Run(log, catalogue, ingest, MergePartition(control.catalogue, merge))
        count = await producer.partitions(into.sketches)
        async for flushes, results in run.steps(idle_ms=round(merge.idle_seconds * 1000)):
            records = [record for flush in flushes for record in flush_records(flush, into, count)]
            await producer.send([*records, *(result_record(result, into) for result in results)])
            progress(run.replayed)
        return run.replayed
    finally:
        await consumer.stop()
        await producer.stop()
        await control.stop()


class _Run:
    """The cores of ingest and merge, driven by an ordered log."""

    def __init__(
        self, log: OrderedLog, catalogue: LiveBlocks, options: IngestOptions, merge: MergePartition
    ) -> None:
        self._log = log
        self._options = options
        self._merge = merge
        self._cores = {
            partition: PartitionIngest(
                partition.topic,
                partition.partition,
                start,
                catalogue,
                options,
                partitions=len(log.starts),
                counted_as=partial(catalogue.counted_as, partition.partition),
            )
            for partition, start in log.starts.items()
        }
        self._read: dict[TopicPartition, list[Record]] = {p: [] for p in self._cores}
        self._clock = 0
        self.replayed = Replayed(0, log.records, 0, 0, 0, 0)

    async def steps(
        self, idle_ms: int
    ) -> AsyncIterator[tuple[list[Flush], list[WindowAttribution | WindowDrift]]]:
        """Yield what to write, every so many records; the last step closes what is open."""
        read = 0
        async for partition, record in self._log:
            self._clock = max(self._clock, record.timestamp)
            self._read[partition].append(record_of(record))
            read += 1
            if read % self._options.block_offsets == 0:
                yield self._step(read)
        yield self._step(read)
        # Nothing more will come: what no later row can change is closed as it is when a stream rests.
        self._clock += idle_ms
        yield self._step(read)

    def _step(self, read: int) -> tuple[list[Flush], list[WindowAttribution | WindowDrift]]:
        flushes = []
        for partition, core in self._cores.items():
            core.add(self._read[partition], now=0.0)
            self._read[partition] = []
            flush = core.flush(self._log.ends[partition])
            for header, body in flush.sketches:
                self._merge.add_sketch(header, body, self._clock)
            for manifest in flush.manifests:
                self._merge.add_manifest(manifest, self._clock)
            core.acknowledged(flush)
            flushes.append(flush)
        results = list(self._merge.publish(self._clock))
        before = self.replayed
        self.replayed = Replayed(
            records=read,
            of_records=before.of_records,
            accepted=before.accepted + sum(sum(f.accepted.values()) for f in flushes),
            thinned=before.thinned + sum(sum(f.thinned.values()) for f in flushes),
            rejected=before.rejected + sum(r.rows for f in flushes for r in f.rejections),
            messages=before.messages + len(results),
        )
        return flushes, results


async def _live_counts(
    connection: Connection, consumer: AIOKafkaConsumer, topics: Topics
) -> LiveCounts:
    """Return how the live run counted every block, from its manifests."""
    partitions = (await topic_partitions(connection, [topics.sketches]))[:1]
    log = await OrderedLog.open(consumer, partitions, None, None, align=1)
    counts = LiveCounts()
    async for _, record in log:
        if record.value is None or not (record.key or b"").startswith(MANIFEST_KEY):
            continue
        manifest = Manifest.from_bytes(record.value)
        if manifest.topic == topics.rows:
            counts.add(manifest)
    return counts
