"""A deterministic simulation of ingest and merge: the real cores on logs in memory, and what can go wrong.

Source partitions, a grids log and the partitions of a sketches log, driven by one seeded generator:
one schedule is the ``ACTIONS`` that it draws. ``simulation_check.check`` compares what is published
at the end with what was written; ``happened`` counts what befell the schedule.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from exact import ExactAccumulators, ExactWindow
from simulated_reading import remembered
from simulated_rows import EDGES, FIRST, LATENESS, PANE, WINDOW, Numbers, Source, Values

from attributary.schemas.attribution import LightAgreement, WindowAttribution, WindowDrift
from attributary.schemas.card import Baseline, Feature, Lifetime, ModelCard, Tumbling
from attributary.schemas.grid import GridRecord
from attributary.schemas.manifest import Manifest
from attributary.schemas.sketch import SketchHeader, decode_sketch, encode_sketch
from attributary.workers.stream.accumulators import SKETCHES, Accumulators
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.decode import Record
from attributary.workers.stream.ingest import Flush, PartitionIngest
from attributary.workers.stream.merge import MergePartition
from attributary.workers.stream.options import IngestOptions, MergeOptions

TOPIC = "rows"
#: Models that a schedule may have, and the partition of the sketches topic that theirs go to.
MODELS = (("a",), ("b",), ("a",), ("a", "b"))
HOME = {"a": 0, "b": 1}
#: One schedule in so many counts in real sketches instead of the small, exact accumulators.
SKETCHED = 1000
#: What a step may do, and how often it does: methods of ``Simulation``.
ACTIONS = {
    "append": 9.0,
    "poll": 9.0,
    "flush": 8.0,
    "read_grids": 4.0,
    "propose": 3.0,
    "crash": 1.0,
    "move": 1.0,
    "move_commit_back": 1.0,
    "truncate": 2.0,
    "merge": 5.0,
    "publish": 3.0,
    "restart_merge": 0.4,
}
_STEPS, _SHORT_STEPS = 20, 8
#: One schedule in so many is a long one: for the others few records and steps do, and many fit an hour.
LONG = 20
# Schedules whose owners sketch a fraction of the rows, each as it likes.
_SHARE_LIGHT = 0.4
# Else a schedule is mostly about waiting for a grid.
_SHARE_GRID_KNOWN = 0.7
_NAMES, _WEIGHTS = list(ACTIONS), list(ACTIONS.values())
_MERGE_OPTIONS = MergeOptions(idle_seconds=1e6, profile_features=0)


@dataclass(frozen=True)
class Faults:
    """Bugs to plant in the shell: the simulation must find them."""

    commit_before_acknowledgement: bool = False
    commit_what_is_unfinished: bool = False


class Sent(NamedTuple):
    """A record of the sketches log, as whoever reads it decodes it."""

    key: bytes
    content: Manifest | tuple[SketchHeader, bytes]
    clock: int


@dataclass
class Owner:
    """One ingest process: its catalogue, how far it has read the grids, and its cores."""

    catalogue: _Catalogue
    options: IngestOptions
    grids_read: int = 0
    cores: dict[int, PartitionIngest] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)


class Published(NamedTuple):
    """A message, and the window that it speaks of where that is an exact one."""

    message: WindowAttribution
    window: ExactWindow | None


class Merger:
    """One merge process that owns all partitions of the sketches topic."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.catalogue, self.grids_read = simulation.new_catalogue(), len(simulation.grids)
        self.accumulators = simulation.new_accumulators()
        self._read = [0] * len(simulation.sketches)
        self.cores = [
            MergePartition(
                self.catalogue,
                simulation.merge_options,
                lambda model, home=home: len(self._read) == 1 or HOME.get(model) == home,
                self.accumulators,
            )
            for home in range(len(simulation.sketches))
        ]
        #: The newest message of every (model, window's kind, its start).
        self.published: dict[tuple[str, str, int | None], Published] = {}

    def read(self, partition: int, most: int, log: Sequence[Sent] | None = None) -> None:
        """Take the next records of one partition."""
        log = self._simulation.sketches[partition] if log is None else log
        core = self.cores[partition]
        start = self._read[partition]
        for sent in log[start : start + most]:
            if isinstance(sent.content, Manifest):
                core.add_manifest(sent.content, sent.clock)
            else:
                core.add_sketch(*sent.content, sent.clock)
        self._read[partition] = min(len(log), start + most)

    def publish(self, now: int = 0) -> list[WindowAttribution | WindowDrift]:
        """Publish what has changed."""
        found = [message for core in self.cores for message in core.publish(now)]
        evaluated: list[ExactWindow] = []
        if isinstance(self.accumulators, ExactAccumulators):
            evaluated, self.accumulators.evaluated[:] = self.accumulators.evaluated[:], []
        windows = iter(evaluated)
        for message in found:
            if isinstance(message, WindowAttribution):
                self._note(message, next(windows) if evaluated else None)
                if evaluated and message.light_agreement is not None:
                    self._note_compared(message.light_agreement, next(windows), next(windows))
        assert next(windows, None) is None
        return found

    def _note(self, message: WindowAttribution, window: ExactWindow | None) -> None:
        rows = message.accounting.rows
        if window is not None:
            held = rows - message.accounting.rows_thinned
            assert len(window.rows) == held, f"{held} rows said, {len(window.rows)} counted"
            assert len(set(window.rows)) == held, "a row counts twice"
            self._simulation.happened["thinned"] += held < rows
        start = message.window.start if message.window.kind == "tumbling" else None
        key = message.model, message.window.kind, start
        before = self.published.get(key)
        if before is not None:
            assert message.revision >= before.message.revision, "a revision goes back"
        if before is not None and start is not None and not self._simulation.may_lose:
            known = before.message.accounting
            changed = rows, message.accounting.rows_thinned
            assert rows >= known.rows, "a window lost rows"
            assert changed != (known.rows, known.rows_thinned), "a window without news"
        self.published[key] = Published(message, window)

    def _note_compared(self, said: LightAgreement, full: ExactWindow, light: ExactWindow) -> None:
        assert (said.rows, said.rows_light) == (len(full.rows), len(light.rows))
        assert set(light.rows) <= set(full.rows), "light scores of rows that the full ones lack"
        assert not full.weights, "full scores of light sketches"
        assert light.weights.keys() == set(light.rows)
        self._simulation.happened["compared"] += 1


class Simulation:
    """One schedule. ``sketched``: count in the real accumulators. ``width``: at most so many rows in a
    record; ``learn``: no grid before rows; ``long``: many records and steps, by default one of ``LONG``.
    """

    def __init__(
        self,
        seed: int,
        *,
        sketched: bool | None = None,
        faults: Faults | None = None,
        partitions: int | None = None,
        records: int | None = None,
        width: int = 3,
        block_offsets: int | None = None,
        values: Values | None = None,
        learn: bool | None = None,
        models: tuple[str, ...] | None = None,
        long: bool | None = None,
    ) -> None:
        self.rng = rng = random.Random(seed)
        self._faults = faults or Faults()
        self.sketched = seed % SKETCHED == 0 if sketched is None else sketched
        values = values or ("few" if self.sketched else "numbered")
        self.learn = rng.random() < 0.3 if learn is None else learn
        self.models = models or rng.choice(MODELS)
        # Drawn apart, so that a schedule is the same with it and without.
        self.light = _share_of(seed) < _SHARE_LIGHT
        self._light = random.Random(seed ^ 0x5DEECE66D) if self.light else rng
        self.merge_options = _MERGE_OPTIONS
        #: What knows all of the control topics.
        self._values: Values = values
        self._informed = _informed(self.models, self.learn, values).copy()
        numbers = Numbers(rng, values)
        self._long = seed % LONG == 0 if long is None else long
        # What others pass on as it is these encode and decode.
        self._wire = self._long or self.sketched
        count = partitions or rng.choice((1, 2, 2, 2, 3) if self._long else (1, 1, 2))
        self.sources = [Source(p, rng, numbers, width) for p in range(count)]
        self._records = records or (6 if self._long else 4)
        # So small that in short schedules too most blocks are sealed before the end.
        self._block_offsets = block_offsets or (3 if self._long else 2)
        self.grids: list[bytes] = []
        self.sketches: list[list[Sent]] = [[] for _ in range(len(self.models))]
        self.letters: set[tuple[int, int]] = set()
        self.happened: Counter[str] = Counter()
        #: Retention has taken records that were not committed: what it took may be missing.
        self.may_lose = False
        self.committed: dict[int, int] = {}
        self._starts: dict[int, list[int]] = {p: [] for p in range(count)}
        self._sent_clock = [0] * count
        self.now = 0.0
        self.owners = [self.new_owner()]
        self._owner_of = dict.fromkeys(range(count), self.owners[0])
        self.merger = Merger(self)

    def new_catalogue(self) -> _Catalogue:
        """Return a catalogue that has read the control topics to their end."""
        return self._informed.copy()

    def new_accumulators(self) -> Accumulators:
        """Return what a process counts in."""
        return SKETCHES if self.sketched else ExactAccumulators()

    def new_owner(self) -> Owner:
        """Return an ingest process that has read the control topics to their end."""
        return Owner(self.new_catalogue(), self._options(), len(self.grids))

    def _options(self) -> IngestOptions:
        """Return an owner's options, in a light schedule with a mode of its own."""
        if not self.light:
            return _options(block_offsets=self._block_offsets)
        return _options(
            block_offsets=self._block_offsets,
            lightweight=self._light.choice(("never", "behind", "behind", "always")),
            lightweight_fraction=self._light.choice((0.25, 0.5)),
            lightweight_above_lag=self._light.choice((1, 2, 4)),
            calibration_every=3,
        )

    def run(self, steps: int | None = None) -> Simulation:
        """Let the schedule run, then drain it with one last owner."""
        with nullcontext() if self._wire else remembered():
            self._begin()
            steps = steps or (_STEPS if self._long else _SHORT_STEPS)
            for action in self.rng.choices(_NAMES, _WEIGHTS, k=steps):
                self.now += self.rng.choice((0.0, 0.3, 2.0))
                getattr(self, action)()
            self.drain()
        return self

    # What can happen: a method for each of ACTIONS.

    def append(self) -> None:
        """Records arrive."""
        for _ in range(self.rng.randint(1, 6)):
            source = self.rng.choice(self.sources)
            if len(source.written) < self._records:
                source.append(self.rng.choice(self.models))

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
                self.happened["grid proposed"] += 1
                if self.rng.random() < 0.8:
                    self._add_grid(grid)

    def crash(self) -> None:
        """An owner dies; a new one takes its partitions."""
        self._kill(self.rng.choice(self.owners))
        self.happened["crash"] += 1

    def move(self) -> None:
        """A partition moves: handed over in order, or its old owner does not notice yet."""
        partition = self.rng.randrange(len(self.sources))
        old = self._owner_of[partition]
        new = self.new_owner()
        self.owners.append(new)
        if self.rng.random() < 0.4:
            self._flush(old, partition, lost=False)
            old.cores.pop(partition, None)
            self.happened["handed over"] += 1
        else:
            self.happened["two owners"] += 1
        self._owner_of[partition] = new
        self._assign(partition, new)

    def move_commit_back(self) -> None:
        """A committed offset is set back to the start of an earlier block."""
        partition = self.rng.randrange(len(self.sources))
        if self._starts[partition]:
            earlier = self.rng.choice(self._starts[partition])
            self.happened["commit moved back"] += earlier < self.committed[partition]
            self.committed[partition] = earlier

    def truncate(self) -> None:
        """Retention takes the oldest records: committed ones, seldom also some that nobody has counted."""
        source = self.rng.choice(self.sources)
        committed = self.committed.get(source.partition, source.beginning)
        most = source.end if self.rng.random() < 0.25 else committed
        offset = self.rng.randint(source.beginning, max(source.beginning, most))
        if offset > source.beginning:
            source.truncate(offset)
            self.happened["truncated"] += 1
            # An older commit moved back does not make them uncommitted: all before is in the log.
            if offset > max(self._starts[source.partition], default=0):
                self.may_lose = True
                self.happened["truncated before it was counted"] += 1

    def merge(self) -> None:
        """Merge reads on in one of its partitions."""
        self.merger.read(self.rng.randrange(len(self.sketches)), self.rng.choice((1, 3, 10, 40)))

    def publish(self) -> None:
        """Merge publishes."""
        self.happened["published"] += len(self.merger.publish())

    def restart_merge(self) -> None:
        """Merge dies; another one reads from the beginning."""
        self.merger = Merger(self)
        self.happened["merge restarted"] += 1

    # The end.

    def drain(self) -> None:
        """All old owners die, and one last owner and the merge get to the end undisturbed."""
        for source in self.sources:
            while len(source.written) < self._records:
                source.append(self.rng.choice(self.models))
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
                    for grid in core.proposals(self.now):
                        self._add_grid(grid)
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
        for partition in range(len(self.sketches)):
            merger.read(partition, 10**6, None if logs is None else logs[partition])
        merger.publish()

    # How it happens.

    def _begin(self) -> None:
        """Show every model on every partition once: before, a partition holds no watermark back."""
        for partition, source in enumerate(self.sources):
            for model in self.models:
                source.append(model, plain=True)
            self._assign(partition, self.owners[0])
            self._poll(self.owners[0], partition, 10)
            if self.rng.random() < _SHARE_GRID_KNOWN:
                if self.learn:
                    for grid in self.owners[0].cores[partition].proposals(self.now):
                        self._add_grid(grid)
                elif not self.grids:
                    for model in self.models:
                        self._add_grid(_baseline_grid(self.models, self._values, model))
                self._learn_grids(self.owners[0], len(self.grids))
                self._learn_grids(self.merger, len(self.grids))
            self._flush(self.owners[0], partition, lost=False)

    def _assign(self, partition: int, owner: Owner) -> None:
        beginning = self.sources[partition].beginning
        committed = self.committed.get(partition)
        start = max(committed or 0, beginning)
        owner.positions[partition] = start
        owner.cores[partition] = PartitionIngest(
            TOPIC,
            partition,
            start,
            owner.catalogue,
            owner.options,
            partitions=len(self.sources),
            accumulators=self.new_accumulators(),
            lost=0 if committed is None else start - committed,
        )

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
        source, core = self.sources[partition], owner.cores[partition]
        records = source.read(owner.positions[partition], most)
        if records:
            owner.positions[partition] = records[-1].offset + 1
            lost = core.add(records, self.now, source.beginning, end_offset=source.end)
        else:
            owner.positions[partition] = max(owner.positions[partition], source.beginning)
            lost = core.skip(owner.positions[partition], source.beginning)
        self.happened["lost before it was read"] += lost > 0

    def _add_grid(self, grid: GridRecord | bytes) -> None:
        value = grid if isinstance(grid, bytes) else grid.to_bytes()
        self.grids.append(value)
        self._informed.add_grid(value)

    def _learn_grids(self, process: Owner | Merger, most: int) -> None:
        new = self.grids[process.grids_read : process.grids_read + most]
        process.grids_read += len(new)
        if not new:
            return
        if process.grids_read == len(self.grids):
            process.catalogue.become(self._informed)
        else:
            for value in new:
                process.catalogue.add_grid(value)
        if isinstance(process, Owner):
            for core in process.cores.values():
                core.count(self.now)

    def _flush(self, owner: Owner, partition: int, *, lost: bool | None = None) -> None:
        core = owner.cores[partition]
        flush = core.flush(self.sources[partition].end)
        rightful = self._owner_of[partition] is owner
        self.happened["flush" if rightful else "flush by an old owner"] += 1
        if self._faults.commit_before_acknowledgement and rightful:
            self._commit(partition, flush)
        outcome = self.rng.random()
        if lost is False or outcome < 0.6:
            self._send(partition, flush, everything=True)
            if lost is None and outcome < 0.05:
                self.happened["crash before the commit"] += 1
                self._kill(owner)
                return
            core.acknowledged(flush)
            if rightful:
                self._commit(partition, flush)
            return
        self.happened["acknowledgement lost"] += 1
        self._send(partition, flush, everything=False)
        if outcome > 0.9:
            self.happened["crash in a flush"] += 1
            self._kill(owner)

    def _commit(self, partition: int, flush: Flush) -> None:
        commit = flush.commit
        if self._faults.commit_what_is_unfinished and flush.manifests[-1].upto:
            commit = flush.manifests[-1].block
        if commit is not None:
            self.committed[partition] = commit
            self._starts[partition].append(commit)

    def _send(self, partition: int, flush: Flush, *, everything: bool) -> None:
        rng = self.rng
        for rejection in flush.rejections:
            if everything or rng.random() < 0.5:
                self.letters.add((partition, rejection.letter.offset))
        clock = FIRST + round(self.now * 1000)
        sent: list[tuple[int, Sent]] = []
        homes = range(len(self.sketches))
        for header, body in flush.sketches:
            home = HOME[header.model] if len(homes) > 1 else 0
            content = decode_sketch(encode_sketch(header, body)) if self._wire else (header, body)
            sent.append((home, Sent(header.key, content, clock)))
        for manifest in flush.manifests:
            found = Manifest.from_bytes(manifest.to_bytes()) if self._wire else manifest
            record = Sent(manifest.key, found, clock)
            sent += [(home, record) for home in homes]
        self._note_order(partition, flush)
        if not everything:
            kind = rng.random()
            if kind < 0.4:
                sent = sent[: rng.randint(0, len(sent))]
            elif kind < 0.8:
                sent = [entry for entry in sent if rng.random() < 0.5]
        if rng.random() < 0.15:
            self.happened["sent again"] += 1
            sent += rng.sample(sent, rng.randint(0, len(sent)))
        if rng.random() < 0.2:
            self.happened["out of order in a flush"] += 1
            rng.shuffle(sent)
        for home, record in sent:
            self.sketches[home].append(record)

    def _note_order(self, partition: int, flush: Flush) -> None:
        """Count flushes that come after one of another partition which holds later rows."""
        times = [c.event_time for m in flush.manifests for c in m.models.values() if c.event_time]
        if times:
            others = self._sent_clock[:partition] + self._sent_clock[partition + 1 :]
            self.happened["partitions out of order"] += max(times) < max(others, default=0)
            self._sent_clock[partition] = max(times)


class _Catalogue(ControlCatalogue):
    """A catalogue that others start from, so that they need not read the control topics again."""

    # A grid is a function of its bytes, and never changed: who reads it again need not make it again.
    _read = staticmethod(lru_cache(maxsize=512)(ControlCatalogue._read))

    def copy(self) -> _Catalogue:
        """Return an independent catalogue that knows the same."""
        other = _Catalogue()
        other.become(self)
        return other

    def become(self, informed: _Catalogue) -> None:
        """Know what another one knows that has read further."""
        for model in informed._epochs:
            informed.epoch(model)  # to be found out once
        self.version, self.cards_read = informed.version, informed.cards_read
        self._cards, self._unregistered = dict(informed._cards), None
        self._epochs = {model: dict(epochs) for model, epochs in informed._epochs.items()}
        self._current = dict(informed._current)


def _share_of(seed: int) -> float:
    """Return a number in [0, 1) that goes with the seed: its bits mixed."""
    return (seed * 0x9E3779B97F4A7C15 >> 13) % 2**32 / 2**32


@lru_cache(maxsize=8)
def _informed(models: tuple[str, ...], learn: bool, values: Values) -> _Catalogue:
    """Return a catalogue that knows the cards."""
    catalogue = _Catalogue()
    for model in models:
        catalogue.add_card(*_card(model, learn, values))
    return catalogue


@lru_cache(maxsize=16)
def _baseline_grid(models: tuple[str, ...], values: Values, model: str) -> bytes:
    """Return the grid that a core proposes for the first row of a model with a baseline."""
    row = f'{{"model":"{model}","features":{{"x0":1,"x1":1}},"outputs":[1]}}'.encode()
    core = PartitionIngest(TOPIC, 0, 0, _informed(models, False, values).copy(), _options())
    core.add([Record(0, FIRST, row)], 0.0)
    (grid,) = core.proposals(0.0)
    return grid.to_bytes()


@lru_cache(maxsize=64)
def _options(**changes: Any) -> IngestOptions:
    """Return the options of ingest processes."""
    defaults = {"block_offsets": 3, "block_seconds": 15, "grid_rows": 8, "grid_wait_seconds": 1}
    return IngestOptions(**{**defaults, **changes})


def _card(model: str, learn: bool, values: Values) -> tuple[bytes, bytes]:
    """Return the record of the models topic."""
    edges = EDGES[values]
    baseline = Baseline(x_edges=edges[:2], y_edges=edges[2:], rows=1000)
    card = ModelCard(
        model=model,
        features=[Feature(name="x0"), Feature(name="x1")],
        outputs=["y"],
        pane_seconds=PANE / 1000,
        allowed_lateness_seconds=LATENESS / 1000,
        windows=[Tumbling(seconds=WINDOW / 1000), Lifetime()],
        baseline=None if learn else baseline,
    )
    return model.encode(), card.to_bytes()


def compacted(log: list[Sent]) -> list[Sent]:
    """Return what a compaction leaves: the last record of every key."""
    last = {sent.key: index for index, sent in enumerate(log)}
    return [sent for index, sent in enumerate(log) if last[sent.key] == index]
