"""A deterministic simulation of ingest and merge: the pure cores on logs in memory, and what can go wrong.

Several source partitions, a grids log and the partitions of a sketches log, driven by one seeded
generator: polls of any length, flushes of which any part reaches the log in any order, crashes
inside a flush, restarts from the committed offset, a second owner that goes on for a while, commits
moved back, merges that restart, compaction. ``Simulation.check`` compares what is published with what was
written.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from attributary.schemas.arrow import encode_arrow_rows
from attributary.schemas.attribution import WindowAttribution, WindowDrift
from attributary.schemas.card import Baseline, Feature, Lifetime, ModelCard, Tumbling
from attributary.schemas.manifest import MANIFEST_KEY, Manifest
from attributary.schemas.sketch import decode_sketch, encode_sketch
from attributary.workers.maths.cir import cir
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.decode import Record
from attributary.workers.stream.ingest import Flush, PartitionIngest
from attributary.workers.stream.merge import MergePartition
from attributary.workers.stream.options import IngestOptions, MergeOptions

TOPIC = "rows"
PANE, WINDOW, LATENESS = 4_000, 4_000, 4_000
FIRST = 1_700_000_000_000
SKETCH_PARTITIONS = 2
MODELS = ("a", "b")
#: The partition of the sketches topic that a model's sketches go to.
HOME = {"a": 0, "b": 1}


@dataclass(frozen=True)
class Faults:
    """Bugs to plant in the shell: the simulation must find them."""

    commit_before_acknowledgement: bool = False


@dataclass
class Written:
    """What the source logs hold: the truth that the books must agree with."""

    accepted: Counter[str] = field(default_factory=Counter)
    rejected: dict[str, Counter[str]] = field(default_factory=dict)
    rows: dict[str, list[tuple[float, float, float]]] = field(default_factory=dict)
    bad_records: set[tuple[int, int]] = field(default_factory=set)
    #: Rows of every window, by (model, start): all, and those that can never be late.
    windows: dict[tuple[str, int], list[int]] = field(default_factory=dict)


class Source:
    """One source partition: its records, and what of them is to be counted."""

    def __init__(self, partition: int, rng: random.Random, written: Written, width: int) -> None:
        self.partition = partition
        self.records: list[Record] = []
        self._rng = rng
        self._written = written
        self._width = width
        self._clock = FIRST + rng.randrange(5000)
        self._highest: dict[str, int] = {}
        self._plain = False
        self._offset = rng.choice((0, 0, 5, 8))

    def append(self, models: tuple[str, ...], *, plain: bool = False) -> None:
        """Write one record: rows of a model, or something that is none. ``plain``: rows in time."""
        rng = self._rng
        self._plain = plain
        self._clock += rng.choice((0, 1, 50, 300, 300, 2000))
        # An offset without a record, as a transaction's marker leaves it.
        self._offset += rng.random() < 0.03
        model = rng.choice(models)
        garbage = not plain and rng.random() < 0.12
        value = self._garbage(model) if garbage else self._rows(model)
        self.records.append(Record(self._offset, self._clock, value, b"k"))
        self._offset += 1

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self._offset

    def read(self, position: int, most: int) -> list[Record]:
        """Return records from an offset on."""
        found = [record for record in self.records if record.offset >= position]
        return found[:most]

    def _garbage(self, model: str) -> bytes:
        good = {"model": model, "features": {"x0": 1.0, "x1": 2.0}, "outputs": [3.0]}
        name, value, reason = self._rng.choice(
            [
                ("", b"", "empty"),
                ("", b"\x00\xff\xfe garbage", "not_decodable"),
                ("", b'{"model": "a"', "not_decodable"),
                ("", b"[]", "empty"),
                ("", b"\xff\xff\xff\xff\x10\x00\x00\x00", "not_decodable"),
                ("", b'{"model": "a", "features": [1], "outputs": 1}', "wrong_type"),
                ("", b'{"features": {"x0": 1}, "outputs": 1}', "no_model"),
                (model, json.dumps({**good, "outputs": [1.0, 2.0]}).encode(), "outputs_missing"),
                (
                    model,
                    json.dumps({**good, "features": {"x0": "1", "x1": 2}}).encode(),
                    "wrong_type",
                ),
                (model, json.dumps({**good, "features": {"z": 1}}).encode(), "features_missing"),
                (model, json.dumps({**good, "time": "yesterday"}).encode(), "bad_time"),
                (
                    model,
                    json.dumps({**good, "time": self._clock / 1000 + 4000}).encode(),
                    "far_future",
                ),
            ]
        )
        self._reject(name, reason)
        return value

    def _reject(self, name: str, reason: str) -> None:
        self._written.rejected.setdefault(name, Counter())[reason] += 1
        self._written.bad_records.add((self.partition, self._offset))

    def _rows(self, model: str) -> bytes:
        rng = self._rng
        rows = [self._row(model) for _ in range(rng.randint(1, self._width))]
        times = [time for time, _ in rows]
        values = [value for _, value in rows]
        if len(rows) > 1 and rng.random() < 0.3:
            columns = {name: [row[i] for row in values] for i, name in enumerate(("x0", "x1", "y"))}
            columns["_time"] = [time / 1000 for time in times]
            return encode_arrow_rows(model, columns, ["y"])
        found: list[object] = [
            {
                "model": model,
                "features": {"x0": x0, "x1": x1},
                "outputs": [y],
                **({} if time == self._clock else {"time": time / 1000}),
            }
            for time, (x0, x1, y) in rows
        ]
        if rng.random() < 0.1 and not self._plain:
            found.insert(rng.randint(0, len(found)), {"model": model, "outputs": 1})
            self._reject("", "wrong_type")
        return json.dumps(found if len(found) > 1 else found[0]).encode()

    def _row(self, model: str) -> tuple[int, tuple[float, float, float]]:
        rng = self._rng
        behind = 0 if self._plain else rng.choice((0,) * 12 + (500, 3_000, 15_000, 200_000))
        time = self._clock - behind
        x0, x1 = rng.gauss(0, 1), rng.lognormvariate(0, 1)
        value = (x0, x1, x0 - 0.5 * x1 + rng.gauss(0, 1))
        self._written.accepted[model] += 1
        self._written.rows.setdefault(model, []).append(value)
        start = time // WINDOW * WINDOW
        counts = self._written.windows.setdefault((model, start), [0, 0])
        counts[0] += 1
        highest = self._highest.get(model, time)
        counts[1] += start + WINDOW + LATENESS > highest
        self._highest[model] = max(highest, time)
        return time, value


@dataclass
class Owner:
    """One ingest process: its catalogue, how far it has read the grids, and its cores."""

    catalogue: ControlCatalogue
    grids_read: int = 0
    cores: dict[int, PartitionIngest] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)


class Merger:
    """One merge process that owns all partitions of the sketches topic."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.catalogue = simulation.new_catalogue()
        self.grids_read = 0
        self._read = [0] * SKETCH_PARTITIONS
        self.cores = [
            MergePartition(
                self.catalogue,
                simulation.merge_options,
                lambda model, home=home: HOME.get(model) == home,
            )
            for home in range(SKETCH_PARTITIONS)
        ]
        #: The newest message of every (model, window's kind, its start).
        self.published: dict[tuple[str, str, int | None], WindowAttribution] = {}

    def read(self, partition: int, most: int, log: list[Sent] | None = None) -> None:
        """Take the next records of one partition."""
        log = self._simulation.sketches[partition] if log is None else log
        core = self.cores[partition]
        start = self._read[partition]
        for sent in log[start : start + most]:
            if sent.key.startswith(MANIFEST_KEY):
                core.add_manifest(Manifest.from_bytes(sent.value), sent.clock)
            else:
                core.add_sketch(*decode_sketch(sent.value), sent.clock)
        self._read[partition] = min(len(log), start + most)

    def publish(self, now: int = 0) -> list[WindowAttribution | WindowDrift]:
        """Publish what has changed."""
        found: list[WindowAttribution | WindowDrift] = []
        for core in self.cores:
            found += core.publish(now)
        for message in found:
            if isinstance(message, WindowAttribution):
                kind = message.window.kind
                start = message.window.start if kind == "tumbling" else None
                before = self.published.get((message.model, kind, start))
                if before is not None and kind == "tumbling":
                    assert message.revision > before.revision, "a window lost rows"
                self.published[message.model, kind, start] = message
        return found


@dataclass(frozen=True)
class Sent:
    """A record of the sketches log."""

    key: bytes
    value: bytes
    clock: int


class Simulation:
    """One schedule. ``width``: at most so many rows in a record; ``learn``: no grid before rows."""

    def __init__(
        self,
        seed: int,
        *,
        faults: Faults | None = None,
        partitions: int = 2,
        records: int = 20,
        width: int = 3,
        learn: bool | None = None,
        models: tuple[str, ...] | None = None,
    ) -> None:
        self.rng = rng = random.Random(seed)
        self._faults = faults or Faults()
        self.learn = rng.random() < 0.3 if learn is None else learn
        self.models = models or rng.choice((MODELS, MODELS[:1], MODELS[1:]))
        self.options = IngestOptions(
            block_offsets=8, block_seconds=15, grid_rows=8, grid_wait_seconds=1
        )
        self.merge_options = MergeOptions(idle_seconds=1e6, profile_features=0)
        self._cards = [self._card(name) for name in self.models]
        self.written = Written()
        self.sources = [Source(p, rng, self.written, width) for p in range(partitions)]
        self._records = records
        self.grids: list[bytes] = []
        self.sketches: list[list[Sent]] = [[] for _ in range(SKETCH_PARTITIONS)]
        self.letters: list[tuple[int, int, int]] = []
        self.committed: dict[int, int] = {}
        self._starts: dict[int, list[int]] = {p: [] for p in range(partitions)}
        self.now = 0.0
        self.owners = [self.new_owner()]
        self._owner_of = dict.fromkeys(range(partitions), self.owners[0])
        self.merger = Merger(self)

    def _card(self, model: str) -> ModelCard:
        edges = [-1.5, -0.7, -0.3, 0.0, 0.3, 0.7, 1.5]
        baseline = Baseline(
            x_edges=[edges, [0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.2]],
            y_edges=[[edge * 1.5 - 0.5 for edge in edges]],
            rows=1000,
        )
        return ModelCard(
            model=model,
            features=[Feature(name="x0"), Feature(name="x1")],
            outputs=["y"],
            pane_seconds=PANE / 1000,
            allowed_lateness_seconds=LATENESS / 1000,
            windows=[Tumbling(seconds=WINDOW / 1000), Lifetime()],
            baseline=None if self.learn else baseline,
        )

    def new_catalogue(self) -> ControlCatalogue:
        """Return a catalogue that knows the cards."""
        catalogue = ControlCatalogue()
        for card in self._cards:
            catalogue.add_card(card.model.encode(), card.to_bytes())
        return catalogue

    def new_owner(self) -> Owner:
        """Return an ingest process that has read the control topics to their end."""
        owner = Owner(self.new_catalogue())
        self._learn_grids(owner, len(self.grids))
        return owner

    # What can happen.

    def run(self, steps: int = 45) -> None:
        """Let the schedule run, then drain it with one last owner."""
        self._begin()
        actions = (
            (self.append, 9),
            (self.poll, 9),
            (self.flush, 8),
            (self.read_grids, 4),
            (self.propose, 3),
            (self.crash, 1),
            (self.move, 1),
            (self.move_commit_back, 0.4),
            (self.merge, 5),
            (self.publish, 2),
            (self.restart_merge, 0.4),
        )
        chosen = self.rng.choices(
            [action for action, _ in actions], [weight for _, weight in actions], k=steps
        )
        for action in chosen:
            self.now += self.rng.choice((0.0, 0.3, 2.0))
            action()
        self.drain()

    def append(self) -> None:
        """Records arrive."""
        for _ in range(self.rng.randint(1, 6)):
            source = self.rng.choice(self.sources)
            if len(source.records) < self._records:
                source.append(self.models)

    def poll(self) -> None:
        """An owner, the rightful one or a zombie, reads on."""
        owner = self.rng.choice(self.owners)
        for partition in list(owner.cores):
            self._poll(owner, partition, self.rng.choice((1, 2, 5, 9, 30)))

    def flush(self) -> None:
        """An owner sends what it has, and any part of that may get lost."""
        owner = self.rng.choice(self.owners)
        for partition in list(owner.cores):
            if self.rng.random() < 0.7:
                self._flush(owner, partition)
            if owner not in self.owners:
                return

    def read_grids(self) -> None:
        """A process learns of new grids."""
        for process in (self.rng.choice(self.owners), self.merger):
            self._learn_grids(process, self.rng.randint(0, 3))

    def propose(self) -> None:
        """An owner proposes grids, which may get lost."""
        owner = self.rng.choice(self.owners)
        for core in owner.cores.values():
            for grid in core.proposals(self.now):
                if self.rng.random() < 0.8:
                    self.grids.append(grid.to_bytes())

    def crash(self) -> None:
        """An owner dies; new ones take its partitions."""
        self._kill(self.rng.choice(self.owners))

    def move(self) -> None:
        """A partition moves: handed over in order, or its old owner does not notice yet."""
        partition = self.rng.randrange(len(self.sources))
        old = self._owner_of[partition]
        new = self.new_owner()
        self.owners.append(new)
        if self.rng.random() < 0.4:
            self._flush(old, partition, lost=False)
            old.cores.pop(partition, None)
        self._owner_of[partition] = new
        self._assign(partition, new)

    def move_commit_back(self) -> None:
        """A committed offset is set back to the start of an earlier block."""
        partition = self.rng.randrange(len(self.sources))
        if self._starts[partition]:
            self.committed[partition] = self.rng.choice(self._starts[partition])

    def merge(self) -> None:
        """Merge reads on in one of its partitions."""
        self.merger.read(self.rng.randrange(SKETCH_PARTITIONS), self.rng.choice((1, 3, 10, 40)))

    def publish(self) -> None:
        """Merge publishes."""
        self.merger.publish()

    def restart_merge(self) -> None:
        """Merge dies; another one reads from the beginning."""
        self.merger = Merger(self)
        self._learn_grids(self.merger, len(self.grids))

    def drain(self) -> None:
        """All old owners die, and one last owner and the merge get to the end undisturbed."""
        for source in self.sources:
            while len(source.records) < self._records:
                source.append(self.models)
        for owner in list(self.owners):
            self._kill(owner)
        self.owners = [owner for owner in self.owners if owner.cores]
        for _ in range(12):
            self.now += 5.0
            for owner in self.owners:
                self._learn_grids(owner, len(self.grids))
                for partition in list(owner.cores):
                    self._poll(owner, partition, 10_000)
                for core in owner.cores.values():
                    core.count(self.now)
                    self.grids += [grid.to_bytes() for grid in core.proposals(self.now)]
                    core.count(self.now)
            if not any(core.waiting_rows for o in self.owners for core in o.cores.values()):
                break
        for owner in self.owners:
            for partition in list(owner.cores):
                self._flush(owner, partition, lost=False)
        self.catch_up(self.merger)

    def catch_up(self, merger: Merger, logs: list[list[Sent]] | None = None) -> None:
        """Let a merge read everything and publish."""
        self._learn_grids(merger, len(self.grids))
        for partition in range(SKETCH_PARTITIONS):
            merger.read(partition, 10**6, None if logs is None else logs[partition])
        merger.publish()

    # How it happens.

    def _begin(self) -> None:
        """Show every model on every partition once: before, a partition holds no watermark back."""
        for partition, source in enumerate(self.sources):
            for model in self.models:
                source.append((model,), plain=True)
            self._assign(partition, self.owners[0])
            self._poll(self.owners[0], partition, 10)
            self._flush(self.owners[0], partition, lost=False)

    def _assign(self, partition: int, owner: Owner) -> None:
        start = self.committed.get(partition, self._beginning(partition))
        owner.positions[partition] = start
        owner.cores[partition] = PartitionIngest(
            TOPIC,
            partition,
            start,
            owner.catalogue,
            self.options,
            partitions=len(self.sources),
        )

    def _beginning(self, partition: int) -> int:
        records = self.sources[partition].records
        return records[0].offset if records else 0

    def _kill(self, owner: Owner) -> None:
        self.owners.remove(owner)
        orphans = [p for p, its in self._owner_of.items() if its is owner]
        owner.cores.clear()
        if orphans or not self.owners:
            heir = self.new_owner()
            self.owners.append(heir)
            for partition in orphans:
                self._owner_of[partition] = heir
                self._assign(partition, heir)

    def _poll(self, owner: Owner, partition: int, most: int) -> None:
        records = self.sources[partition].read(owner.positions[partition], most)
        if records:
            owner.positions[partition] = records[-1].offset + 1
            owner.cores[partition].add(records, self.now)

    def _learn_grids(self, process: Owner | Merger, most: int) -> None:
        new = self.grids[process.grids_read : process.grids_read + most]
        process.grids_read += len(new)
        for value in new:
            process.catalogue.add_grid(value)
        if new and isinstance(process, Owner):
            for core in process.cores.values():
                core.count(self.now)

    def _flush(self, owner: Owner, partition: int, *, lost: bool | None = None) -> None:
        core = owner.cores[partition]
        flush = core.flush(self.sources[partition].end)
        rightful = self._owner_of[partition] is owner
        if self._faults.commit_before_acknowledgement and rightful:
            self._commit(partition, flush)
        outcome = self.rng.random()
        if lost is False or outcome < 0.6:
            self._send(partition, flush, everything=True)
            if lost is None and outcome < 0.05:  # before it could commit
                self._kill(owner)
                return
            core.acknowledged(flush)
            if rightful:
                self._commit(partition, flush)
            return
        self._send(partition, flush, everything=False)
        if outcome > 0.9:
            self._kill(owner)

    def _commit(self, partition: int, flush: Flush) -> None:
        if flush.commit is not None:
            self.committed[partition] = flush.commit
            self._starts[partition].append(flush.commit)

    def _send(self, partition: int, flush: Flush, *, everything: bool) -> None:
        rng = self.rng
        for rejection in flush.rejections:
            if everything or rng.random() < 0.5:
                letter = rejection.letter
                self.letters.append((partition, letter.offset, rejection.rows))
        clock = FIRST + round(self.now * 1000)
        sent: list[tuple[int, Sent]] = []
        for header, body in flush.sketches:
            sent.append((HOME[header.model], Sent(header.key, encode_sketch(header, body), clock)))
        for manifest in flush.manifests:
            value = manifest.to_bytes()
            sent += [(p, Sent(manifest.key, value, clock)) for p in range(SKETCH_PARTITIONS)]
        if not everything:
            kind = rng.random()
            if kind < 0.4:
                sent = sent[: rng.randint(0, len(sent))]
            elif kind < 0.8:
                sent = [entry for entry in sent if rng.random() < 0.5]
        if rng.random() < 0.15:  # what came without an acknowledgement is sent again
            sent += rng.sample(sent, rng.randint(0, len(sent)))
        if rng.random() < 0.2:
            rng.shuffle(sent)
        for home, record in sent:
            self.sketches[home].append(record)

    # What must hold.

    def check(
        self,
        *,
        scores: bool = False,
        windows: bool = True,
        mergers: Iterable[Merger] | None = None,
    ) -> None:
        """Compare what was published with what was written; AssertionError where they differ."""
        for merger in mergers or [self.merger]:
            for model in self.models:
                self._check_lifetime(model, merger, scores=scores)
            if windows:
                self._check_windows(merger)
            for core in merger.cores:
                assert not any(core.gaps().values()), f"gaps {core.gaps()}"
        self._check_manifests()
        found = {(partition, offset) for partition, offset, _ in self.letters}
        assert found == self.written.bad_records, "dead letters"

    def _check_lifetime(self, model: str, merger: Merger, *, scores: bool) -> None:
        expected = self.written.accepted[model]
        if not expected:
            return
        message = merger.published[model, "lifetime", None]
        accounting = message.accounting
        assert accounting.rows == expected, f"lifetime {accounting.rows} of {expected} rows"
        assert accounting.rows_accepted == expected
        rejected = self.written.rejected.get(model, Counter())
        assert accounting.rows_rejected == dict(rejected), "rejected"
        assert accounting.gaps == 0
        if scores:
            rows = np.array(self.written.rows[model])
            batch = cir(rows[:, :2], rows[:, 2:])
            found = {feature.name: feature.score for feature in message.features}
            for index, name in enumerate(("x0", "x1")):
                assert abs(found[name] - batch.score[0, index]) < 1e-3, (
                    f"{name}: {found[name]} instead of {batch.score[0, index]}"
                )

    def _check_windows(self, merger: Merger) -> None:
        for (model, start), (rows, sure) in self.written.windows.items():
            message = merger.published.get((model, "tumbling", start))
            watermark = next(
                (w for core in merger.cores for m, w in core.watermarks().items() if m == model),
                None,
            )
            if message is None:
                closed = watermark is not None and start + WINDOW <= watermark
                assert not (closed and sure), f"window {start} of {sure} rows is missing"
                continue
            count = message.accounting.rows
            assert sure <= count <= rows, f"window {start}: {sure} <= {count} <= {rows}"

    def _check_manifests(self) -> None:
        for log in self.sketches:
            blocks: dict[tuple[int, int], Manifest] = {}
            for sent in log:
                if not sent.key.startswith(MANIFEST_KEY):
                    continue
                manifest = Manifest.from_bytes(sent.value)
                known = blocks.get((manifest.partition, manifest.block))
                if manifest.upto > manifest.block and (
                    known is None or _coverage(manifest) >= _coverage(known)
                ):
                    blocks[manifest.partition, manifest.block] = manifest
            accepted: Counter[str] = Counter()
            rejected: dict[str, Counter[str]] = {}
            for manifest in blocks.values():
                for name, count in manifest.models.items():
                    accepted[name] += count.rows_accepted
                    if count.rejected:
                        rejected.setdefault(name, Counter()).update(count.rejected)
            assert accepted == self.written.accepted, "accepted rows in the manifests"
            assert rejected == self.written.rejected, "rejected rows in the manifests"

    def final_sketches(self) -> Iterator[tuple[bytes, set[bytes]]]:
        """Yield (key, all different bodies) of the sketches that count a whole sealed block."""
        sealed: dict[tuple[int, int], int] = {}
        for log in self.sketches:
            for sent in log:
                if sent.key.startswith(MANIFEST_KEY):
                    manifest = Manifest.from_bytes(sent.value)
                    if manifest.sealed:
                        sealed[manifest.partition, manifest.block] = manifest.upto
        found: dict[bytes, set[bytes]] = {}
        for log in self.sketches:
            for sent in log:
                if not sent.key.startswith(MANIFEST_KEY):
                    header, body = decode_sketch(sent.value)
                    if sealed.get((header.partition, header.block)) == header.upto:
                        key = b"%s|%d" % (sent.key[1:], header.epoch)
                        found.setdefault(key, set()).add(body)
        yield from found.items()


def _coverage(manifest: Manifest) -> tuple[int, bool, int]:
    waiting = sum(count.waiting for count in manifest.models.values())
    return manifest.upto, manifest.sealed, -waiting


def compacted(log: list[Sent]) -> list[Sent]:
    """Return what a compaction leaves: the last record of every key."""
    last = {sent.key: index for index, sent in enumerate(log)}
    return [sent for index, sent in enumerate(log) if last[sent.key] == index]
