"""The shell around ingest: polls rows, flushes sketches, commits what is acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError, KafkaError
from mode import Service

from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.decode import record_of
from attributary.workers.stream.group_service import GroupService
from attributary.workers.stream.ingest import Flush, PartitionIngest
from attributary.workers.stream.label_limit import LabelLimit
from attributary.workers.stream.metrics import StreamMetrics
from attributary.workers.stream.options import IngestOptions
from attributary.workers.stream.outgoing import Outgoing, flush_records
from attributary.workers.stream.series import remove
from attributary.workers.stream.turn import Cadence

_log = logging.getLogger(__name__)

_POLL_MS = 200
_POLL_RECORDS = 4000
# Rows held back for a grid before polling pauses; only a broken grids topic gets that far.
_MOST_WAITING = 200_000
_MOST_WAITING_BYTES = 256 * 2**20


class IngestService(GroupService):
    """Reads its share of the rows topic."""

    def __init__(
        self,
        connection: Connection,
        topics: Topics,
        options: IngestOptions,
        catalogue: ControlCatalogue,
        metrics: StreamMetrics,
        **kwargs: Any,
    ) -> None:
        super().__init__(connection, [topics.rows], f"{topics.rows}-ingest", options, **kwargs)
        self._topics = topics
        self._options = options
        self._catalogue = catalogue
        self._metrics = metrics
        self._cores: dict[TopicPartition, PartitionIngest] = {}
        self._sketch_partitions = self._row_partitions = 1
        self._catalogue_version = -1
        self._proposed_at: dict[tuple[str, int], float] = {}
        self._labels = LabelLimit(2 * options.max_models)
        self._committed: dict[TopicPartition, int] = {}

    async def take_over(self, partitions: list[TopicPartition]) -> None:
        """Start at the committed offset: the start of an open block."""
        self._sketch_partitions = await self.producer.partitions(self._topics.sketches)
        self._row_partitions = await self.producer.partitions(self._topics.rows)
        beginnings = await self.consumer.beginning_offsets(partitions)
        for partition in partitions:
            committed = await self.consumer.committed(partition)
            start = max(committed or 0, beginnings[partition])
            self.consumer.seek(partition, start)
            lost = 0 if committed is None else start - committed
            self._cores[partition] = self._core(partition, start, lost)
            self._metrics.lost.labels(*partition)  # 0 from the beginning: a rise is news
            self._lost(partition, start, lost)

    def _core(self, partition: TopicPartition, position: int, lost: int = 0) -> PartitionIngest:
        return PartitionIngest(
            partition.topic,
            partition.partition,
            position,
            self._catalogue,
            self._options,
            partitions=self._row_partitions,
            lost=lost,
        )

    async def hand_over(self, partitions: list[TopicPartition]) -> None:
        """Send what is counted, commit, forget."""
        await self.finish()
        for partition in partitions:
            self._cores.pop(partition, None)
            self._committed.pop(partition, None)
            for gauge in (self._metrics.lag, self._metrics.sketched):
                remove(gauge, tuple(map(str, partition)))

    async def finish(self) -> None:
        """Send and commit what is counted."""
        try:
            await self._flush()
        except KafkaError as error:
            _log.warning("ended without a flush (its rows are read again): %s", error)

    @Service.task
    async def _read(self) -> None:
        cadence = Cadence(self._options.flush_seconds)
        while not self.should_stop:
            if self._has_room():
                await self._poll()
            else:
                await asyncio.sleep(_POLL_MS / 1000)
            await self._settle_grids()
            if cadence.due:
                with cadence:
                    await self._skip_holes()
                    await self._flush_until_acknowledged()

    def _has_room(self) -> bool:
        """Say whether more rows may be read: those that wait for a grid are held whole."""
        cores = self._cores.values()
        rows = sum(core.waiting_rows for core in cores)
        return rows < _MOST_WAITING and sum(c.waiting_bytes for c in cores) < _MOST_WAITING_BYTES

    async def _poll(self) -> None:
        batches = await self.consumer.getmany(timeout_ms=_POLL_MS, max_records=_POLL_RECORDS)
        # Without a hole nothing below waits: no rebalance comes between the poll and the cores. Where one
        # comes while the broker is asked about a hole, its new cores read these records again.
        cores = dict(self._cores)
        holes = [p for p, records in batches.items() if self._is_hole(p, records[0].offset)]
        starts = await self._log_starts(holes) if holes else {}
        moved = {p for p in batches if self._cores.get(p) is not cores.get(p)}
        moved |= set(holes) - set(starts)  # stopped without an answer
        now = time.monotonic()
        for partition, records in batches.items():
            core = self._cores.get(partition)
            if core is None or partition in moved:
                continue
            if records[0].offset < core.expected:
                core = self._cores[partition] = self._start_again(
                    core, partition, records[0].offset
                )
            taken = [record_of(record) for record in records]
            end = self.consumer.highwater(partition) or 0
            lost = core.add(taken, now, starts.get(partition, 0), end_offset=end)
            self._lost(partition, records[0].offset, lost)
            self._metrics.sketched.labels(*partition).set(core.sketched.fraction)
            self._metrics.messages.inc(len(records))
            self._metrics.message_bytes.inc(sum(len(record.value or b"") for record in records))

    def _is_hole(self, partition: TopicPartition, offset: int) -> bool:
        core = self._cores.get(partition)
        return core is not None and offset > core.expected

    async def _log_starts(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where logs begin, asked until the broker answers: without it a hole cannot be judged."""
        while True:
            try:
                return dict(await self.consumer.beginning_offsets(partitions))
            except KafkaError as error:
                _log.warning("the start of the log is not known, asked again soon: %s", error)
                await self.sleep(0.5)
                if self.should_stop:
                    return {}

    async def _skip_holes(self) -> None:
        """Pass over holes that no record has come behind: markers, or a log emptied before it was read."""
        cores, positions = dict(self._cores), {}
        for partition in cores:
            # While a position is being reset, asking for it waits; one that has moved away is not known.
            with contextlib.suppress(asyncio.TimeoutError, KafkaError):
                positions[partition] = await asyncio.wait_for(
                    self.consumer.position(partition), 0.1
                )
        holes = [p for p, position in positions.items() if self._is_hole(p, position)]
        starts = await self._log_starts(holes) if holes else {}
        for partition, start in starts.items():
            if (core := self._cores.get(partition)) is cores[partition] and core is not None:
                position = positions[partition]
                self._lost(partition, position, core.skip(position, start))

    def _lost(self, partition: TopicPartition, upto: int, offsets: int) -> None:
        if not offsets:
            return
        self._metrics.lost.labels(*partition).inc(offsets)
        _log.error(
            "%s/%d: up to %d, %d offsets were removed from the log before they were read and committed; rows "
            "that no sketch holds are a gap: keep rows longer than workers lag (layout.rows_retention_hours)",
            *partition, upto, offsets,
        )  # fmt: skip

    def _start_again(
        self, core: PartitionIngest, partition: TopicPartition, offset: int
    ) -> PartitionIngest:
        _log.error(
            "%s/%d was read up to %d and goes on at %d: the broker has lost the end of its log, or the topic "
            "is a new one of the same name. Offsets that were counted are not counted again, whatever they "
            "hold now: give a new topic a new name (topics.rows)",
            *partition, core.expected, offset,
        )  # fmt: skip
        self._committed.pop(partition, None)
        return self._core(partition, offset)

    async def _settle_grids(self) -> None:
        now = time.monotonic()
        if self._catalogue.version != self._catalogue_version:
            self._catalogue_version = self._catalogue.version
            for core in self._cores.values():
                core.count(now)
        wait = self._options.grid_wait_seconds
        self._proposed_at = {n: at for n, at in self._proposed_at.items() if now - at < wait}
        proposals: list[Outgoing] = []
        for core in self._cores.values():
            for grid in core.proposals(now):
                named = (grid.model, grid.epoch)
                if named in self._proposed_at:
                    continue
                self._proposed_at[named] = now
                # A key of its own: compaction keeps the last record of a key, and the first must hold.
                key = f"{grid.model}|{grid.epoch}|{uuid.uuid4()}".encode()
                proposals.append(Outgoing(self._topics.grids, key, grid.to_bytes()))
        if proposals:
            try:
                await self.producer.send(proposals)
            except KafkaError as error:
                _log.warning("a grid could not be proposed, tried again soon: %s", error)

    async def _flush_until_acknowledged(self) -> None:
        wait = 0.1
        while not self.should_stop:
            try:
                async with self.lock:
                    await self._flush()
            except KafkaError as error:
                _log.warning("a flush was not acknowledged, tried again in %.1f s: %s", wait, error)
                await asyncio.sleep(wait)
                wait = min(wait * 2, 5.0)
            else:
                return

    async def _flush(self) -> None:
        started = time.monotonic()
        # Where the partitions end now, not where they ended when they were last read: merge must know
        # that rows are on their way before it hears how far the other partitions have come.
        told = await self.consumer.end_offsets(list(self._cores)) if self._cores else {}
        flushes = {}
        for partition, core in self._cores.items():
            end = self._end(partition, told.get(partition, 0))
            self._metrics.lag.labels(*partition).set(max(0, end - core.expected))
            flushes[partition] = core.flush(end)
        records = [
            record
            for flush in flushes.values()
            for record in flush_records(flush, self._topics, self._sketch_partitions)
        ]
        await self.producer.send(records)
        commits: dict[TopicPartition, int] = {}
        for partition, flush in flushes.items():
            self._cores[partition].acknowledged(flush)
            self._count(flush)
            if flush.commit is not None and flush.commit != self._committed.get(partition):
                commits[partition] = flush.commit
        if commits:
            try:
                await self.consumer.commit(commits)
                self._committed.update(commits)
            except CommitFailedError as error:
                _log.info("not committed, the partitions have moved: %s", error)
        held_back = sum(core.renewals_held_back for core in self._cores.values())
        self._metrics.renewals_held_back.set(held_back)
        self._metrics.flush_seconds.observe(time.monotonic() - started)

    def _end(self, partition: TopicPartition, told: int) -> int:
        """Return where the log ends: the embedded broker's answer leaves out most of the last batch."""
        if partition not in self.consumer.assignment():
            return told
        return max(told, self.consumer.highwater(partition) or 0)

    def _count(self, flush: Flush) -> None:
        self._metrics.sketches_sent.inc(len(flush.sketches))
        self._metrics.sketch_bytes.inc(sum(len(body) for _, body in flush.sketches))
        for model, rows in flush.accepted.items():
            self._metrics.rows_accepted.labels(self._labels.of(model)).inc(rows)
        for model, rows in flush.thinned.items():
            self._metrics.rows_thinned.labels(self._labels.of(model)).inc(rows)
        for rejection in flush.rejections:
            labels = (self._labels.of(rejection.model), rejection.letter.reason)
            self._metrics.rows_rejected.labels(*labels).inc(rejection.rows)
