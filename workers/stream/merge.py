"""Sketches of one partition of the sketches topic to windows: a pure state machine over its log.

A model's sketches all lie in one partition, and every block's manifest comes to each, so one owner sees
all that it needs: what to merge, in which order, what is missing, and how far event time has come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple
from zlib import crc32

from attributary.schemas.attribution import Accounting, WindowAttribution, WindowDrift
from attributary.schemas.card import ModelCard
from attributary.schemas.errors import RejectedError
from attributary.schemas.manifest import Manifest, ModelCount
from attributary.schemas.sketch import SketchHeader
from attributary.workers.maths.window import WindowState
from attributary.workers.maths.wire import IncompatibleStateError
from attributary.workers.stream.accumulators import SKETCHES, Accumulators
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.drift import DriftBook
from attributary.workers.stream.epoch import Epoch
from attributary.workers.stream.held import SourceKey
from attributary.workers.stream.ledger import SourceLedger
from attributary.workers.stream.light_agreement import light_agreement
from attributary.workers.stream.lightweight import Tally
from attributary.workers.stream.messages import attribution_messages
from attributary.workers.stream.model_merge import Due, ModelMerge
from attributary.workers.stream.options import MergeOptions
from attributary.workers.stream.resume import Resume
from attributary.workers.stream.snapshot_state import (
    DriftState,
    ModelShares,
    ModelState,
    PartitionState,
    Piece,
    decode_state,
    encode_state,
    part_name,
)
from attributary.workers.stream.training import TrainingSamples

# Sketches whose grid is not known: a grid is sent before the first of them, so few wait, and not for long.
_MOST_UNKNOWN_BYTES = 256 * 2**20
# Names that books are kept of, for each model: of rows that were rejected, say, and never had a model.
_NAMES_PER_MODEL = 2


class Draft(NamedTuple):
    """One part of a snapshot. ``make`` None: it is as it was at the same ``version``; ``needs`` as a
    model's draft has it."""

    name: str
    version: tuple[int, ...]
    make: Callable[[], bytes] | None
    needs: int | None = None


class Waiting(NamedTuple):
    """A sketch whose grid is not known yet."""

    header: SketchHeader
    body: bytes
    offset: int
    clock: int


class MergePartition:
    """One partition of the sketches topic, from its beginning or a snapshot. Times are the broker's, in ms.

    ``owns`` says whether the sketches of a model come to this partition: manifests come to all.
    """

    def __init__(
        self,
        catalogue: ControlCatalogue,
        options: MergeOptions,
        owns: Callable[[str], bool] = lambda model: True,
        accumulators: Accumulators = SKETCHES,
    ) -> None:
        self._catalogue = catalogue
        self._options = options
        self._owns = owns
        self._accumulators = accumulators
        self._sources: dict[SourceKey, SourceLedger] = {}
        self._partitions: dict[str, int] = {}
        #: When a model was first heard of.
        self._began: dict[str, int] = {}
        self._models: dict[str, ModelMerge] = {}
        self._cards: dict[str, ModelCard] = {}
        self._drift: dict[str, DriftBook] = {}
        self._training = TrainingSamples()
        self._unknown: list[Waiting] = []
        self._superseded: Counter[str] = Counter()
        #: Models beyond the limit, whose sketches are left out.
        self._refused: set[str] = set()
        #: Windows settled early so far, of merges that newer layouts have replaced.
        self._settled_early = 0
        self._told: set[str] = set()
        self._unknown_bytes = 0
        #: Layouts begun, in all: a model's newer merge has other versions.
        self._begun = 0
        self._layouts: dict[str, int] = {}
        #: Open windows by model.
        self._windows: Counter[str] = Counter()
        self._ages_at: dict[str, int | None] = {}
        self._clock = 0
        #: What was wrong with sketches that could not be used, and which models were refused, to be told.
        self.troubles: list[str] = []
        self.refusals: list[str] = []

    def add_sketch(self, header: SketchHeader, body: bytes, clock: int, offset: int = 0) -> None:
        """Take a sketch; one whose grid is not known here yet waits for it. ``offset`` in the log."""
        self._clock = max(self._clock, clock)
        waiting = Waiting(header, body, offset, clock)
        if not self._take(waiting):
            self._wait(waiting)

    def add_manifest(self, manifest: Manifest, clock: int) -> None:
        """Take a manifest, and merge the blocks that it completes."""
        self._clock = max(self._clock, clock)
        source = (manifest.topic, manifest.partition)
        ledger = self._sources.setdefault(source, SourceLedger())
        manifest = self._booked(manifest)
        for name in manifest.models:
            self._began.setdefault(name, clock)
        self._partitions[manifest.topic] = manifest.partitions
        ledger.add(manifest, clock)
        self._close_blocks(source, ledger)
        for name in manifest.models:
            if name in self._models:
                self._models[name].advance(self._watermark(name))

    def inherit(self, older: MergePartition) -> None:
        """Take over from a merge that has read the same records, on cards with other windows.

        Its books and its endless views may reach further back than the log does now.
        """
        self._sources, self._partitions = older._sources, older._partitions
        self._began, self._superseded = older._began, older._superseded
        self._clock = max(self._clock, older._clock)
        for name, theirs in older._models.items():
            mine = self._models.get(name)
            card = self._catalogue.card(name)
            same = card is None or _windows(card) == _windows(theirs.card)
            if mine is not None and mine.layout > theirs.layout:
                continue
            if same or mine is None or mine.layout < theirs.layout:
                mine = self._begin(name, theirs.epoch, None)
            if same:
                self._models[name], self._drift[name] = theirs, older._drift[name]
                self._cards[name] = theirs.card
            else:
                mine.inherit(theirs)
            for source, ledger in self._sources.items():
                self._models[name].forget_where(source, ledger.counts)

    @property
    def stale(self) -> bool:
        """Whether a card has changed a model's windows: the sketches must be read again."""
        return any(
            (card := self._catalogue.card(name)) is not None and _windows(card) != _windows(known)
            for name, known in self._cards.items()
        )

    def publish(self, now: int) -> Iterator[WindowAttribution | WindowDrift]:
        """Yield what has changed since it was yielded last; ``now`` (ms) is only written down."""
        for messages in self.publish_in_parts(now):
            yield from messages

    def publish_in_parts(self, now: int) -> Iterator[list[WindowAttribution | WindowDrift]]:
        """Yield the same a window at a time, and now and then nothing: each part takes little time."""
        waiting, self._unknown, self._unknown_bytes = self._unknown, [], 0
        for entry in waiting:
            if not self._take(entry):
                self._wait(entry)
        for source, ledger in self._sources.items():
            self._close_blocks(source, ledger)
            yield []
        for name in sorted(self._models):
            merge = self._models[name]
            merge.advance(self._watermark(name))
            for due in merge.due(self._books(name)):
                yield list(self._messages(name, merge, due, now))
            merge.rest()
            yield []
        self._count_windows()

    def publish_settled(self, now: int) -> Iterator[WindowAttribution | WindowDrift]:
        """Yield the windows that no row can change any more: all that may be said while catching up."""
        for messages in self.publish_settled_in_parts(now):
            yield from messages

    def publish_settled_in_parts(self, now: int) -> Iterator[list[WindowAttribution | WindowDrift]]:
        """Yield the same a window at a time."""
        for name in sorted(self._models):
            merge = self._models[name]
            for due in merge.settled():
                yield list(self._messages(name, merge, due, now))

    @property
    def settled_windows(self) -> int:
        """How many settled windows wait to be published."""
        return sum(merge.settled_windows for merge in self._models.values())

    def gaps(self) -> dict[SourceKey, int]:
        """Return the offsets without a manifest, by source partition."""
        return {source: ledger.gap_offsets for source, ledger in self._sources.items()}

    def watermarks(self) -> dict[str, int]:
        """Return the watermark of every model that has one, in milliseconds."""
        return {
            name: merge.watermark
            for name, merge in self._models.items()
            if merge.watermark is not None
        }

    def drafts(self, known: Mapping[str, tuple[int, ...]]) -> Iterator[Draft]:
        """Yield the parts of a snapshot of what has been read and published, as it is now.

        ``known`` are the versions that an older snapshot holds: what has not changed since is not made
        again. ``make`` may be called later, from another thread.
        """
        for name, merge in self._models.items():
            begun = self._layouts[name]
            model = part_name("model", name)
            version = begun, merge.changes
            ages_at = self._ages_at.get(name)
            if known.get(model) == version and (ages_at is None or self._clock < ages_at):
                yield Draft(model, version, None)
            else:
                draft = merge.draft(self._clock)
                self._ages_at[name] = draft.ages_at
                yield Draft(model, version, draft.make, draft.needs)
            for source in merge.closed_sources:
                share = part_name("share", name, *source)
                version = begun, merge.closings[source]
                new = known.get(share) != version
                yield Draft(share, version, merge.draft_shares(source) if new else None)
            drift = part_name("drift", name)
            version = begun, self._drift[name].changes
            if known.get(drift) == version:
                yield Draft(drift, version, None)
            else:
                yield Draft(drift, version, _drift_encoder(self._drift[name].copy()))
        state = self._state()
        needs = min((piece.offset for piece in state.unknown), default=None)
        yield Draft(part_name("partition"), (), lambda: encode_state(state), needs)

    def restore(self, parts: Mapping[str, bytes], position: int) -> Resume:
        """Begin where a snapshot was taken, in a merge that has read nothing: before ``position``.

        The parts are those of ``drafts``. IncompatibleStateError where they are damaged, of another
        version, or of grids that are not known; this merge is of no use then.
        """
        try:
            return self._restore(parts, position)
        except (KeyError, ValueError, RejectedError) as error:
            raise IncompatibleStateError(f"a snapshot cannot be used: {error!r}") from error

    @property
    def superseded(self) -> int:
        """Sketches received again with nothing new."""
        return sum(self._superseded.values())

    @property
    def refused(self) -> int:
        """Models whose sketches are left out, because there are too many; at most as many are told apart."""
        return len(self._refused)

    @property
    def settled_early(self) -> int:
        """Windows settled before their time, because too many were open."""
        return self._settled_early + sum(merge.settled_early for merge in self._models.values())

    def _take(self, waiting: Waiting) -> bool:
        header, body, offset, clock = waiting
        if self._refuses(header.model):
            return True
        epoch = self._catalogue.epoch_of(header.model, header.epoch)
        if epoch is None:
            return False
        ledger = self._sources.get((header.topic, header.partition))
        if ledger is not None and (
            ledger.is_closed(header.block) or ledger.counts(header.block, header.upto)
        ):
            self._superseded[header.model] += 1
            return True
        merge = self._models.get(header.model)
        if merge is None or merge.layout < epoch.record.layout:
            merge = self._begin(header.model, epoch, merge)
        if merge.layout > epoch.record.layout:
            if not header.twin:
                merge.add_outdated(header)
        elif not merge.add(merge.held(header, body, self._read_of(header), offset, clock)):
            self._superseded[header.model] += 1
        else:
            self._limit_windows(header.model, merge)
        return True

    def _wait(self, waiting: Waiting) -> None:
        """Keep a sketch until its grid is known; the oldest is left out where there is no room."""
        self._unknown.append(waiting)
        self._unknown_bytes += len(waiting.body)
        while self._unknown_bytes > _MOST_UNKNOWN_BYTES and len(self._unknown) > 1:
            oldest = self._unknown.pop(0)
            self._unknown_bytes -= len(oldest.body)
            header = oldest.header
            self.troubles.append(
                f"the sketch of {header.model!r}, {header.topic}/{header.partition}, block "
                f"{header.block}, is left out: epoch {header.epoch} is not in the grids topic, and "
                f"{_MOST_UNKNOWN_BYTES >> 20} MiB of such sketches wait"
            )

    def _limit_windows(self, name: str, merge: ModelMerge) -> None:
        """Settle the oldest windows where rows of scattered event times have opened too many."""
        most, in_all = self._options.max_windows, self._options.max_windows_in_all
        if (mine := merge.open_windows) == self._windows.get(name, 0):
            return
        self._windows[name] = mine
        if mine > most:
            self._settle_early(name, most, mine - most)
        if self._windows.total() <= in_all:
            return
        self._count_windows()
        while (excess := self._windows.total() - in_all) > 0:
            widest = max(self._windows, key=lambda each: (self._windows[each], each))
            # A tenth of them at least, so that this is not asked for every sketch.
            self._settle_early(widest, in_all, max(excess, self._windows[widest] // 10))

    def _count_windows(self) -> None:
        for name, merge in self._models.items():
            self._windows[name] = merge.open_windows

    def _settle_early(self, name: str, most: int, windows: int) -> None:
        merge = self._models[name]
        merge.settle_early(windows)
        self._windows[name] = merge.open_windows
        if name not in self._told:
            self._told.add(name)
            self.refusals.append(
                f"rows of {name!r} lie in so many windows that more than {most} are open "
                "(merge.max_windows, merge.max_windows_in_all): the oldest are published before their "
                "time, and rows that still come for them count as late"
            )

    def _booked(self, manifest: Manifest) -> Manifest:
        """Return the manifest without models that this merge keeps no books of; names can be endless.

        Others' sketches come to other partitions. Models that have had no row yet are remembered as far as
        there is room.
        """
        models = {
            name: count for name, count in manifest.models.items() if self._books_of(name, count)
        }
        if len(models) == len(manifest.models):
            return manifest
        return manifest.model_copy(update={"models": models})

    def _books_of(self, name: str, count: ModelCount) -> bool:
        if name in self._models:
            return True
        if not self._owns(name) or len(self._models) >= self._options.max_models:
            return False
        room = len(self._began) < _NAMES_PER_MODEL * self._options.max_models
        return bool(count.accepted) or name in self._began or room

    def _state(self) -> PartitionState:
        return PartitionState(
            clock=self._clock,
            partitions=dict(self._partitions),
            began=dict(self._began),
            superseded=dict(self._superseded),
            ledgers=[ledger.state(source) for source, ledger in self._sources.items()],
            models=list(self._models),
            refused=sorted(self._refused),
            unknown=[
                Piece(entry.header, crc32(entry.body), entry.offset, entry.clock)
                for entry in self._unknown
            ],
        )

    def _restore(self, parts: Mapping[str, bytes], position: int) -> Resume:
        state = decode_state(PartitionState, parts[part_name("partition")])
        resume = Resume(position, self._read_of, self._wait_again)
        self._clock = state.clock
        self._partitions = dict(state.partitions)
        self._began = dict(state.began)
        self._superseded = Counter(state.superseded)
        if len(state.models) >= self._options.max_models:  # else the limit has been raised
            self._refused = set(state.refused)
        self._sources = {each.source: SourceLedger.from_state(each) for each in state.ledgers}
        shares: dict[str, dict[SourceKey, ModelShares]] = {}
        for part, data in parts.items():
            if part.startswith(part_name("share", "")):
                found = decode_state(ModelShares, data)
                shares.setdefault(found.model, {})[found.source] = found
        for name in state.models:
            self._restore_model(name, parts, shares.get(name, {}), resume)
        for piece in state.unknown:
            resume.expect_unknown(piece)
        return resume

    def _restore_model(
        self,
        name: str,
        parts: Mapping[str, bytes],
        shares: Mapping[SourceKey, ModelShares],
        resume: Resume,
    ) -> None:
        state = decode_state(ModelState, parts[part_name("model", name)])
        epoch = self._catalogue.epoch_of(name, state.epoch)
        if epoch is None:
            raise IncompatibleStateError(
                f"epoch {state.epoch} of {name!r} is not in the grids topic"
            )
        card = ModelCard.from_bytes(state.card)
        merge = self._merge(card, epoch)
        merge.restore(state, shares, self._read_of)
        self._drift[name] = self._accumulators.drift(epoch.layout)
        self._drift[name].restore(decode_state(DriftState, parts[part_name("drift", name)]))
        self._cards[name], self._models[name] = card, merge
        self._begun += 1
        self._layouts[name] = self._begun
        resume.expect(merge, state.open, state.pieces)

    def _wait_again(self, header: SketchHeader, body: bytes, offset: int, clock: int) -> None:
        self._wait(Waiting(header, body, offset, clock))

    def _refuses(self, model: str) -> bool:
        """Say whether the model is one too many; once it is, it stays so."""
        if model in self._models:
            return False
        most = self._options.max_models
        if len(self._models) < most and model not in self._refused:
            return False
        if not self._refused:
            self.refusals.append(
                f"model {model!r} is one too many: a merge of {most} models (merge.max_models) leaves its "
                "sketches out, and those of any other that is new"
            )
        if len(self._refused) < most:
            self._refused.add(model)
        return True

    def _read_of(self, header: SketchHeader) -> Callable[[bytes], WindowState]:
        """Return what reads the sketch's body, with an error where it is not what the header says."""
        epoch = self._catalogue.epoch_of(header.model, header.epoch)

        def read(body: bytes) -> WindowState:
            window = self._accumulators.window(body)
            if list(window.epochs) != [header.epoch]:
                raise IncompatibleStateError(f"the grids of the body are {list(window.epochs)}")
            if epoch is not None and not self._accumulators.fits(window, epoch):
                raise IncompatibleStateError(f"the body is not on the grid of epoch {header.epoch}")
            return window

        return read

    def _merge(self, card: ModelCard, epoch: Epoch) -> ModelMerge:
        def load(data: bytes) -> WindowState:
            window = self._accumulators.saved(data)
            if not self._accumulators.fits(window, epoch):
                raise IncompatibleStateError(f"a window of {card.model!r} has other columns")
            return window

        return ModelMerge(card, epoch, load, self.troubles.append)

    def _begin(self, model: str, epoch: Epoch, older: ModelMerge | None) -> ModelMerge:
        card = self._catalogue.card(model) or ModelCard(model=model)
        merge = self._merge(card, epoch)
        if older is not None:
            merge.replace(older)
            self._settled_early += older.settled_early
        self._cards[model] = card
        self._drift[model] = self._accumulators.drift(epoch.layout)
        self._models[model] = merge
        self._begun += 1
        self._layouts[model] = self._begun
        return merge

    def _holds(self, source: SourceKey, manifest: Manifest, model: str) -> bool:
        count = manifest.models[model]
        merge = self._models.get(model)
        if merge is None:
            return not count.accepted
        return merge.holds(source, manifest.block, count)

    def _close_blocks(self, source: SourceKey, ledger: SourceLedger) -> None:
        """Merge the blocks that are whole, in order, and note how far event time has come.

        Event time counts as reached once the rows that reach it are held, and all before them: else the
        others would seem late.
        """
        for block in ledger.drop_truncated():
            for merge in self._models.values():
                merge.forget(source, block)
        for merge in self._models.values():
            merge.forget_where(source, ledger.cuts)
        grids_awaited = {
            (entry.header.topic, entry.header.partition, entry.header.block)
            for entry in self._unknown
        }
        lacking: set[str] = set()
        in_order = True
        ledger.waits = False
        for manifest, in_log in ledger.in_order():
            waits = in_log and (*source, manifest.block) in grids_awaited
            ledger.waits = ledger.waits or waits
            lost = in_log and not waits
            mine = [name for name in manifest.models if self._merges(name)]
            held = {name for name in mine if self._holds(source, manifest, name)}
            for name in mine:
                count = manifest.models[name]
                if name in held and not count.waiting and name not in lacking:
                    ledger.reach(name, count.event_time)
                elif not lost:
                    lacking.add(name)
            waiting = any(manifest.models[name].waiting for name in mine)
            whole = in_order and manifest.sealed and len(held) == len(mine)
            if whole and self._readable(source, manifest.block, held):
                for name in held & self._models.keys():
                    self._models[name].close(source, manifest.block)
                ledger.close(manifest)
                # Sketches without a manifest of their own, of an owner that was cut off by truncation.
                for merge in self._models.values():
                    merge.forget_where(source, ledger.counts)
            elif not lost:
                in_order = False
            elif not manifest.sealed and len(held) == len(mine) and not waiting:
                ledger.hold(manifest)
            else:
                ledger.release(manifest.block)

    def _merges(self, name: str) -> bool:
        """Say whether the sketches of a model are merged here."""
        if name in self._models:
            return True
        full = len(self._models) >= self._options.max_models
        return self._owns(name) and not full and name not in self._refused

    def _readable(self, source: SourceKey, block: int, models: set[str]) -> bool:
        """Say whether the block's sketches can be used; those that cannot are dropped, of all models."""
        merges = [self._models[name] for name in sorted(models & self._models.keys())]
        return not [merge for merge in merges if not merge.readable(source, block)]

    def _watermark(self, model: str) -> int | None:
        """Return how far event time has come on every partition that may still bring rows.

        None while that is not known: a partition has not reported, or has shown no row of the model
        yet and is behind or has not been waited for long enough: its rows may be on their way, older
        than what the others brought. Without any active partition, the farthest event time.
        """
        waited = self._clock - self._began.get(model, self._clock)
        active: list[int] = []
        reached: list[int] = []
        for topic, ledgers in self._by_topic().items():
            if len(ledgers) < self._partitions[topic]:
                return None
            for ledger in ledgers:
                time = ledger.event_time.get(model)
                if time is not None:
                    reached.append(time)
                    if not ledger.idle(model, self._clock, self._idle_ms):
                        active.append(time)
                elif ledger.expects(model) or waited < self._idle_ms:
                    return None
        return min(active) if active else max(reached, default=None)

    def _by_topic(self) -> dict[str, list[SourceLedger]]:
        found: dict[str, list[SourceLedger]] = {}
        for (topic, _), ledger in self._sources.items():
            found.setdefault(topic, []).append(ledger)
        return found

    @property
    def _idle_ms(self) -> int:
        return round(self._options.idle_seconds * 1000)

    def _messages(
        self, name: str, merge: ModelMerge, due: Due, now: int
    ) -> Iterator[WindowAttribution | WindowDrift]:
        layout = merge.epoch.layout
        scores = due.state.evaluate(layout.groups)
        yield from attribution_messages(
            name,
            layout,
            scores,
            due.window,
            self._accounting(name, merge, due.tally),
            final=due.final,
            watermark=merge.watermark,
            computed_at=now,
            profiles=self._options.profile_features,
            agreements=light_agreement(due.compared, len(layout.outputs)),
        )
        if due.final and merge.oldest is not None:
            training = self._training.sample(self._catalogue.card(name), layout)
            yield from self._drift[name].compare(name, due, scores, merge.oldest, now, training)

    def _books(self, name: str) -> tuple[int, ...]:
        """Return the model's rows accepted and rejected on all sources, and the offsets missing."""
        rejected = sum(self._rejected(name).values())
        return self._accepted(name), rejected, sum(self.gaps().values())

    def _accepted(self, name: str) -> int:
        return sum(ledger.totals(name).accepted for ledger in self._sources.values())

    def _rejected(self, name: str) -> Counter[str]:
        rejected: Counter[str] = Counter()
        for ledger in self._sources.values():
            rejected.update(ledger.totals(name).rejected)
        return rejected

    def _accounting(self, name: str, merge: ModelMerge, tally: Tally) -> Accounting:
        return Accounting(
            rows=tally.total,
            rows_thinned=tally.rows_thinned,
            fractions=tally.fractions,
            rows_accepted=self._accepted(name),
            rows_rejected=dict(sorted(self._rejected(name).items())),
            rows_late=merge.late_rows,
            offsets={
                f"{topic}/{partition}": (ledger.first or 0, ledger.upto)
                for (topic, partition), ledger in sorted(self._sources.items())
            },
            duplicates=self._superseded[name],
            gaps=sum(self.gaps().values()),
        )


def _drift_encoder(book: DriftBook) -> Callable[[], bytes]:
    return lambda: encode_state(book.state())


def _windows(card: ModelCard) -> tuple[object, float]:
    return card.windows, card.allowed_lateness_seconds
