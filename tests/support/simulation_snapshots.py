"""The simulation with snapshots of merge: crashes between their records, old owners, logs cut behind them.

What is published goes to one topic, whoever publishes it: of two messages for a window the higher revision
holds. Everything else is as in ``simulation``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simulation import ACTIONS, Merger, Published, Sent, Simulation

from attributary.schemas.attribution import WindowAttribution
from attributary.schemas.manifest import Manifest
from attributary.workers.maths.wire import IncompatibleStateError
from attributary.workers.stream.merge import MergePartition
from attributary.workers.stream.snapshot_log import SnapshotRecord, SnapshotShelf, SnapshotWriter

SNAPSHOT_ACTIONS = {
    **ACTIONS,
    "snapshot": 3.0,
    "restart_merge": 1.5,
    "old_owner": 1.0,
    "truncate_sketches": 1.5,
    "compact_snapshots": 0.5,
}


class SnapshotMerger(Merger):
    """A merge process that begins with the newest snapshots, and writes its own."""

    def __init__(self, simulation: SnapshotSimulation, owner: int) -> None:
        super().__init__(simulation)
        self._records = simulation
        self.published = simulation.published
        self._writers = [SnapshotWriter(home, f"owner{owner}") for home in range(len(self.cores))]
        self._old_keys: list[list[bytes]] = []
        for home in range(len(self.cores)):
            self._old_keys.append(self._load(home))

    def _load(self, home: int) -> list[bytes]:
        shelf = self._records.shelf(home)
        beginning = self._records.log_starts[home]
        self._read[home] = beginning
        for index, parts in shelf.newest_first():
            core = self._new_core(home)
            try:
                resume = core.restore(parts(), index.position)
            except IncompatibleStateError:
                self._records.happened["an incomplete snapshot passed over"] += 1
                continue
            log = self._records.sketches[home]
            for offset in range(max(beginning, resume.start), len(log)):
                if resume.complete:
                    break
                content = log[offset].content
                if not isinstance(content, Manifest):
                    resume.take(*content, offset, log[offset].clock)
            assert resume.finish() == 0, "a snapshot points to what is gone"
            self.cores[home] = core
            self._read[home] = resume.position
            self._records.happened["loaded a snapshot"] += 1
            break
        else:
            assert not beginning, "no snapshot of what the log has lost"
        return shelf.keys()

    def _new_core(self, home: int) -> MergePartition:
        old = self.cores[home]
        return MergePartition(
            self.catalogue, self._records.merge_options, old._admission.owns, self.accumulators
        )

    def read(self, partition: int, most: int, log: Sequence[Sent] | None = None) -> None:
        """Take the next records of one partition."""
        log = self._records.sketches[partition] if log is None else log
        core, start = self.cores[partition], self._read[partition]
        for offset, sent in enumerate(log[start : start + most], start):
            if isinstance(sent.content, Manifest):
                core.add_manifest(sent.content, sent.clock)
            else:
                core.add_sketch(*sent.content, sent.clock, offset)
        self._read[partition] = min(len(log), start + most)

    def snapshot(self, home: int) -> bool:
        """Publish, and write a snapshot of a partition; False where it was cut short by a crash."""
        self.publish()
        rng = self._records.rng
        writer, core = self._writers[home], self.cores[home]
        writer.begin()
        records: list[SnapshotRecord] = []
        for draft in core.drafts(writer.versions):
            if draft.make is None:
                writer.keep(draft.name)
            else:
                records += writer.put(draft.name, draft.version, draft.make(), draft.needs)
        records += writer.directory()
        records.append(writer.index(self._read[home]))
        log = self._records.snapshots[home]
        if rng.random() < 0.3:
            log += records[: rng.randint(0, len(records))]
            self._records.happened["crash in a snapshot"] += 1
            return False
        log += records
        log += writer.acknowledged()
        log += [SnapshotRecord(key, None) for key in self._old_keys[home]]
        self._old_keys[home] = []
        self._records.happened["snapshot"] += 1
        return True

    def _note(self, message: WindowAttribution, window: Any) -> None:
        if window is not None:
            held = message.accounting.rows - message.accounting.rows_thinned
            assert len(window.rows) == held, f"{held} rows said, {len(window.rows)} counted"
            assert len(set(window.rows)) == held, "a row counts twice"
        start = message.window.start if message.window.kind == "tumbling" else None
        key = message.model, message.window.kind, start
        before = self.published.get(key)
        if before is not None and before.message.revision > message.revision:
            return  # said again, on the way to where the one before was
        if (
            before is not None
            and not self._records.may_lose
            and _counted(before.message) == _counted(message)
            and window
            and start
        ):
            assert before.window is not None
            assert window.rows == before.window.rows, "a window's rows are others than before"
            assert message.features == before.message.features
        self.published[key] = Published(message, window)


def _counted(message: WindowAttribution) -> tuple[int, int, list[float]]:
    """Return how many rows are counted and sketched: a block's other variant keeps other rows."""
    books = message.accounting
    return books.rows, books.rows_thinned, books.fractions


class SnapshotSimulation(Simulation):
    """One schedule in which merge writes snapshots, dies, and goes on from them."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **options)
        self.published: dict[tuple[str, str, int | None], Published] = {}
        self.snapshots: list[list[SnapshotRecord]] = [[] for _ in self.sketches]
        #: Where the sketches' logs begin.
        self.log_starts = [0] * len(self.sketches)
        self._mergers = 1
        self._old: SnapshotMerger | None = None
        self.merger: SnapshotMerger = SnapshotMerger(self, 0)

    def run(self, steps: int = 30) -> SnapshotSimulation:
        """Let the schedule run, then drain it with one last owner."""
        self._begin()
        weights = list(SNAPSHOT_ACTIONS.values())
        for action in self.rng.choices(list(SNAPSHOT_ACTIONS), weights, k=steps):
            self.now += self.rng.choice((0.0, 0.3, 2.0))
            getattr(self, action)()
        self.drain()
        return self

    def shelf(self, home: int) -> SnapshotShelf:
        """Return the snapshots of a partition."""
        shelf = SnapshotShelf(home)
        for record in self.snapshots[home]:
            shelf.add(*record)
        return shelf

    def snapshot(self) -> None:
        """Merge writes a snapshot, or dies while it does."""
        if not self.merger.snapshot(self.rng.randrange(len(self.sketches))):
            self.restart_merge()

    def restart_merge(self) -> None:
        """Merge dies, or does not notice that it is replaced; another one goes on from the snapshots."""
        if self.rng.random() < 0.3:
            self._old = self.merger
        self.merger = SnapshotMerger(self, self._mergers)
        self._mergers += 1
        self.happened["merge restarted"] += 1

    def old_owner(self) -> None:
        """A merge that was replaced goes on for a while."""
        if self._old is not None:
            home = self.rng.randrange(len(self.sketches))
            self._old.read(home, self.rng.choice((0, 2, 20)))
            if not self._old.snapshot(home) or self.rng.random() < 0.5:
                self._old = None
            self.happened["snapshot by an old owner"] += 1

    def truncate_sketches(self) -> None:
        """Retention takes sketches that the newest snapshot does not need."""
        home = self.rng.randrange(len(self.sketches))
        for index, parts in self.shelf(home).newest_first():
            try:
                parts()
            except IncompatibleStateError:
                continue
            start = self.log_starts[home]
            self.log_starts[home] = self.rng.randint(start, max(start, index.start))
            self.happened["sketches truncated"] += self.log_starts[home] > start
            return

    def compact_snapshots(self) -> None:
        """Of every key the last record is left, and what was taken back is gone."""
        home = self.rng.randrange(len(self.sketches))
        last = {record.key: at for at, record in enumerate(self.snapshots[home])}
        self.snapshots[home] = [
            record
            for at, record in enumerate(self.snapshots[home])
            if last[record.key] == at and record.value is not None
        ]
