"""Sketches of one partition of the sketches topic to windows: a pure state machine over its log.

A model's sketches all lie in one partition, and every block's manifest comes to each, so one owner sees
all that it needs: what to merge, in which order, what is missing, and how far event time has come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from attributary.schemas.attribution import WindowAttribution, WindowDrift
from attributary.schemas.card import ModelCard
from attributary.schemas.errors import RejectedError
from attributary.schemas.manifest import Manifest
from attributary.schemas.sketch import SketchHeader
from attributary.workers.maths.wire import IncompatibleStateError
from attributary.workers.stream.accumulators import SKETCHES, Accumulators
from attributary.workers.stream.admission import Admission
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.closing_blocks import close_blocks
from attributary.workers.stream.drift import DriftBook
from attributary.workers.stream.due import Due
from attributary.workers.stream.epoch import Epoch
from attributary.workers.stream.event_time import watermark
from attributary.workers.stream.held import SourceKey
from attributary.workers.stream.ledger import SourceLedger
from attributary.workers.stream.light_agreement import light_agreement
from attributary.workers.stream.merge_drafts import Draft, ModelDrafts
from attributary.workers.stream.messages import attribution_messages
from attributary.workers.stream.model_books import ModelBooks
from attributary.workers.stream.model_merge import ModelMerge
from attributary.workers.stream.options import MergeOptions
from attributary.workers.stream.resume import Resume
from attributary.workers.stream.sketch_reader import SketchReader
from attributary.workers.stream.snapshot_state import (
    DriftState,
    ModelShares,
    ModelState,
    PartitionState,
    decode_state,
    encode_state,
    part_name,
)
from attributary.workers.stream.training import TrainingSamples
from attributary.workers.stream.waiting_sketches import Waiting, WaitingSketches
from attributary.workers.stream.window_limits import WindowLimits


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
        self._accumulators = accumulators
        self._reader = SketchReader(catalogue, accumulators)
        self._sources: dict[SourceKey, SourceLedger] = {}
        self._partitions: dict[str, int] = {}
        self._models: dict[str, ModelMerge] = {}
        self._cards: dict[str, ModelCard] = {}
        self._drift: dict[str, DriftBook] = {}
        self._training = TrainingSamples()
        self._superseded: Counter[str] = Counter()
        #: Windows settled early so far, of merges that newer layouts have replaced.
        self._settled_early = 0
        #: Layouts begun, in all: a model's newer merge has other versions.
        self._begun = 0
        self._layouts: dict[str, int] = {}
        self._drafts = ModelDrafts()
        self._clock = 0
        #: What was wrong with sketches that could not be used, and which models were refused, to be told.
        self.troubles: list[str] = []
        self.refusals: list[str] = []
        self._admission = Admission(options.max_models, owns, self.refusals.append)
        self._limits = WindowLimits(options, self.refusals.append)
        self._unknown = WaitingSketches(self.troubles.append)

    def add_sketch(self, header: SketchHeader, body: bytes, clock: int, offset: int = 0) -> None:
        """Take a sketch; one whose grid is not known here yet waits for it. ``offset`` in the log."""
        self._clock = max(self._clock, clock)
        waiting = Waiting(header, body, offset, clock)
        if not self._take(waiting):
            self._unknown.add(waiting)

    def add_manifest(self, manifest: Manifest, clock: int) -> None:
        """Take a manifest, and merge the blocks that it completes."""
        self._clock = max(self._clock, clock)
        source = (manifest.topic, manifest.partition)
        ledger = self._sources.setdefault(source, SourceLedger())
        manifest = self._admission.booked(manifest, self._models, clock)
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
        self._admission.began, self._superseded = older._admission.began, older._superseded
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
        for waiting in self._unknown.take():
            if not self._take(waiting):
                self._unknown.add(waiting)
        for source, ledger in self._sources.items():
            self._close_blocks(source, ledger)
            yield []
        for name in sorted(self._models):
            merge = self._models[name]
            merge.advance(self._watermark(name))
            books = ModelBooks(name, self._sources)
            for due in merge.due(books.key):
                yield list(self._messages(name, merge, due, books, now))
            merge.rest()
            yield []
        self._limits.count(self._models)

    def publish_settled(self, now: int) -> Iterator[WindowAttribution | WindowDrift]:
        """Yield the windows that no row can change any more: all that may be said while catching up."""
        for messages in self.publish_settled_in_parts(now):
            yield from messages

    def publish_settled_in_parts(self, now: int) -> Iterator[list[WindowAttribution | WindowDrift]]:
        """Yield the same a window at a time."""
        for name in sorted(self._models):
            merge = self._models[name]
            for due in merge.settled():
                books = ModelBooks(name, self._sources)
                yield list(self._messages(name, merge, due, books, now))

    @property
    def settled_windows(self) -> int:
        """How many settled windows wait to be published."""
        return sum(merge.settled_windows for merge in self._models.values())

    def gaps(self) -> dict[SourceKey, int]:
        """Return the offsets without a manifest, by source partition."""
        return {source: ledger.gap_offsets for source, ledger in self._sources.items()}

    def beyond_end(self) -> dict[SourceKey, int]:
        """Return the offsets counted behind the end of the log, by source partition."""
        return {source: ledger.beyond_end for source, ledger in self._sources.items()}

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
            drift, begun = self._drift[name], self._layouts[name]
            yield from self._drafts.of(name, merge, drift, begun, known, self._clock)
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
        return len(self._admission.refused)

    @property
    def settled_early(self) -> int:
        """Windows settled before their time, because too many were open."""
        return self._settled_early + sum(merge.settled_early for merge in self._models.values())

    def _take(self, waiting: Waiting) -> bool:
        header, body, offset, clock = waiting
        if self._admission.refuses(header.model, self._models):
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
        elif not merge.add(merge.held(header, body, self._reader.of(header), offset, clock)):
            self._superseded[header.model] += 1
        else:
            self._limits.check(header.model, self._models)
        return True

    def _state(self) -> PartitionState:
        return PartitionState(
            clock=self._clock,
            partitions=dict(self._partitions),
            began=dict(self._admission.began),
            superseded=dict(self._superseded),
            ledgers=[ledger.state(source) for source, ledger in self._sources.items()],
            models=list(self._models),
            refused=sorted(self._admission.refused),
            unknown=self._unknown.pieces(),
        )

    def _restore(self, parts: Mapping[str, bytes], position: int) -> Resume:
        state = decode_state(PartitionState, parts[part_name("partition")])
        resume = Resume(position, self._reader.of, self._wait_again)
        self._clock = state.clock
        self._partitions = dict(state.partitions)
        self._admission.restore(state.began, state.refused, len(state.models))
        self._superseded = Counter(state.superseded)
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
        merge.restore(state, shares, self._reader.of)
        self._drift[name] = self._accumulators.drift(epoch.layout)
        self._drift[name].restore(decode_state(DriftState, parts[part_name("drift", name)]))
        self._cards[name], self._models[name] = card, merge
        self._begun += 1
        self._layouts[name] = self._begun
        resume.expect(merge, state.open, state.pieces)

    def _wait_again(self, header: SketchHeader, body: bytes, offset: int, clock: int) -> None:
        self._unknown.add(Waiting(header, body, offset, clock))

    def _merge(self, card: ModelCard, epoch: Epoch) -> ModelMerge:
        load = self._reader.saved(card.model, epoch)
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

    def _close_blocks(self, source: SourceKey, ledger: SourceLedger) -> None:
        def merges(name: str) -> bool:
            return self._admission.merges(name, self._models)

        close_blocks(source, ledger, self._models, merges, self._unknown.blocks())

    def _watermark(self, model: str) -> int | None:
        return watermark(
            model,
            self._sources,
            self._partitions,
            began=self._admission.began.get(model, self._clock),
            clock=self._clock,
            idle_ms=round(self._options.idle_seconds * 1000),
        )

    def _messages(
        self, name: str, merge: ModelMerge, due: Due, books: ModelBooks, now: int
    ) -> Iterator[WindowAttribution | WindowDrift]:
        layout = merge.epoch.layout
        scores = due.state.evaluate(layout.groups)
        yield from attribution_messages(
            name,
            layout,
            scores,
            due.window,
            books.accounting(due.tally, late=merge.late_rows, duplicates=self._superseded[name]),
            revision=due.revision,
            final=due.final,
            watermark=merge.watermark,
            computed_at=now,
            profiles=self._options.profile_features,
            agreements=light_agreement(due.compared, len(layout.outputs)),
        )
        if due.final and merge.oldest is not None:
            training = self._training.sample(self._catalogue.card(name), layout)
            yield from self._drift[name].compare(name, due, scores, merge.oldest, now, training)


def _windows(card: ModelCard) -> tuple[object, float]:
    return card.windows, card.allowed_lateness_seconds
