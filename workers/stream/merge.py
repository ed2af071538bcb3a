"""Sketches of one partition of the sketches topic to windows: a pure state machine over its log.

A model's sketches all lie in one partition, and every block's manifest comes to each, so one owner sees
all that it needs: what to merge, in which order, what is missing, and how far event time has come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from attributary.schemas.attribution import Accounting, WindowAttribution, WindowDrift
from attributary.schemas.card import ModelCard
from attributary.schemas.manifest import Manifest
from attributary.schemas.sketch import SketchHeader
from attributary.workers.stream.accumulators import SKETCHES, Accumulators
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.drift import DriftBook
from attributary.workers.stream.epoch import Epoch
from attributary.workers.stream.ledger import SourceLedger
from attributary.workers.stream.messages import attribution_messages
from attributary.workers.stream.model_merge import Due, ModelMerge
from attributary.workers.stream.options import MergeOptions
from attributary.workers.stream.views import SourceKey


class MergePartition:
    """One partition of the sketches topic, read from its beginning. Times are the broker's, in ms.

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
        self._unknown: list[tuple[SketchHeader, bytes]] = []
        self._superseded: Counter[str] = Counter()
        self._clock = 0

    def add_sketch(self, header: SketchHeader, body: bytes, clock: int) -> None:
        """Take a sketch; one whose grid is not known here yet waits for it."""
        self._clock = max(self._clock, clock)
        if not self._take(header, body):
            self._unknown.append((header, body))

    def add_manifest(self, manifest: Manifest, clock: int) -> None:
        """Take a manifest, and merge the blocks that it completes."""
        self._clock = max(self._clock, clock)
        source = (manifest.topic, manifest.partition)
        ledger = self._sources.setdefault(source, SourceLedger())
        for name in manifest.models:
            self._began.setdefault(name, clock)
        self._partitions[manifest.topic] = manifest.partitions
        ledger.add(manifest, clock)
        self._close_blocks(source, ledger)
        for name in manifest.models:
            if name in self._models:
                self._models[name].advance(self._watermark(name))

    @property
    def stale(self) -> bool:
        """Whether a card has changed a model's windows: the sketches must be read again."""
        return any(
            (card := self._catalogue.card(name)) is not None
            and (card.windows, card.allowed_lateness_seconds)
            != (known.windows, known.allowed_lateness_seconds)
            for name, known in self._cards.items()
        )

    def publish(self, now: int) -> Iterator[WindowAttribution | WindowDrift]:
        """Yield what has changed since it was yielded last; ``now`` (ms) is only written down."""
        waiting, self._unknown = self._unknown, []
        self._unknown = [entry for entry in waiting if not self._take(*entry)]
        for source, ledger in self._sources.items():
            self._close_blocks(source, ledger)
        for name in sorted(self._models):
            merge = self._models[name]
            merge.advance(self._watermark(name))
            gaps = sum(ledger.gap_offsets for ledger in self._sources.values())
            for due in merge.due(sum(self._rejected(name).values()), gaps):
                yield from self._messages(name, merge, due, now)

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

    @property
    def superseded(self) -> int:
        """Sketches received again with nothing new."""
        return sum(self._superseded.values())

    def _take(self, header: SketchHeader, body: bytes) -> bool:
        epoch = self._catalogue.epoch_of(header.model, header.epoch)
        if epoch is None:
            return False
        ledger = self._sources.get((header.topic, header.partition))
        if ledger is not None and ledger.is_closed(header.block):
            self._superseded[header.model] += 1
            return True
        merge = self._models.get(header.model)
        if merge is None or merge.layout < epoch.record.layout:
            merge = self._begin(header.model, epoch, merge)
        if merge.layout > epoch.record.layout:
            merge.add_outdated(header)
        elif not merge.add(header, body):
            self._superseded[header.model] += 1
        return True

    def _begin(self, model: str, epoch: Epoch, older: ModelMerge | None) -> ModelMerge:
        card = self._catalogue.card(model) or ModelCard(model=model)
        merge = ModelMerge(card, epoch, self._accumulators.window)
        if older is not None:
            merge.replace(older)
        self._cards[model] = card
        self._drift[model] = self._accumulators.drift(epoch.layout)
        self._models[model] = merge
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
        grids_awaited = {(h.topic, h.partition, h.block) for h, _ in self._unknown}
        lacking: set[str] = set()
        in_order = True
        for manifest, in_log in ledger.in_order():
            lost = in_log and (*source, manifest.block) not in grids_awaited
            mine = [name for name in manifest.models if self._owns(name)]
            held = {name for name in mine if self._holds(source, manifest, name)}
            for name in mine:
                count = manifest.models[name]
                if name in held and not count.waiting and name not in lacking:
                    ledger.reach(name, count.event_time)
                elif not lost:
                    lacking.add(name)
            if in_order and manifest.sealed and len(held) == len(mine):
                for name in held & self._models.keys():
                    self._models[name].close(source, manifest.block)
                ledger.close(manifest)
            elif not lost:
                in_order = False
            elif not manifest.sealed and len(held) == len(mine):
                ledger.hold(manifest)

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
            self._accounting(name, merge, due.rows),
            final=due.final,
            watermark=merge.watermark,
            computed_at=now,
            profiles=self._options.profile_features,
        )
        if due.final and merge.oldest is not None:
            yield from self._drift[name].compare(name, due, scores, merge.oldest, now)

    def _rejected(self, name: str) -> Counter[str]:
        rejected: Counter[str] = Counter()
        for ledger in self._sources.values():
            rejected.update(ledger.totals(name).rejected)
        return rejected

    def _accounting(self, name: str, merge: ModelMerge, rows: int) -> Accounting:
        return Accounting(
            rows=rows,
            rows_accepted=sum(ledger.totals(name).accepted for ledger in self._sources.values()),
            rows_rejected=dict(sorted(self._rejected(name).items())),
            rows_late=merge.late_rows,
            offsets={
                f"{topic}/{partition}": (ledger.first or 0, ledger.upto)
                for (topic, partition), ledger in sorted(self._sources.items())
            },
            duplicates=self._superseded[name],
            gaps=sum(ledger.gap_offsets for ledger in self._sources.values()),
        )
