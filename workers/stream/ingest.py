"""Rows of one source partition to pane sketches: a pure state machine over the partition's log.

Sketches and manifests are cumulative per block, and the offset to commit is always the start of the
oldest unfinished block, once all before it is acknowledged. So a crash, a rebalance or a second owner
replays at most the open blocks, and a replay overwrites instead of adding.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from attributary.schemas.card import ModelCard
from attributary.schemas.errors import Reason
from attributary.schemas.grid import GridRecord
from attributary.schemas.manifest import Manifest
from attributary.schemas.row_shape import RowShapes
from attributary.schemas.sketch import SketchHeader
from attributary.workers.stream.accumulators import SKETCHES, Accumulators
from attributary.workers.stream.block import UNKNOWN_MODEL, Block, PaneState, Rejection, staged_of
from attributary.workers.stream.decode import Record, Staged
from attributary.workers.stream.encode import Refusal, refuse_all
from attributary.workers.stream.epoch import Epoch
from attributary.workers.stream.lightweight import FULL, Counting, counting
from attributary.workers.stream.options import IngestOptions
from attributary.workers.stream.renewals import Renewals


class Catalogue(Protocol):
    """Cards and grids as the control topics give them."""

    @property
    def cards_read(self) -> int:
        """How far the models topic has been read."""

    @property
    def unregistered(self) -> int:
        """Models that have a grid and no card."""

    def card(self, model: str) -> ModelCard | None:
        """Return the model's card, or None."""

    def epoch(self, model: str) -> Epoch | None:
        """Return the model's newest grid epoch that its card can use, or None."""

    def next_epoch(self, model: str) -> int:
        """Return the number that a new epoch of the model takes."""

    def epoch_in(self, model: str, partition: int, block: int) -> Epoch | None:
        """Return the epoch that the model's rows in this block are counted on."""


@dataclass(frozen=True)
class Flush:
    """What must be acknowledged before ``commit`` may be committed."""

    rejections: list[Rejection]
    sketches: list[tuple[SketchHeader, bytes]]
    manifests: list[Manifest]
    commit: int | None
    #: Rows of each model that are in a sketch for the first time.
    accepted: Counter[str]
    #: Of these, rows that the sketch leaves out.
    thinned: Counter[str]
    sent: list[tuple[PaneState, int, int]]
    rejected: list[tuple[Block, int]]
    finished: int


class PartitionIngest:
    """One source partition, read from ``position``, the start of a block.

    ``now`` is monotonic seconds, used only to wait for first rows. ``lost``: how many offsets right before
    ``position`` the log has dropped before anybody read them. ``counted_as`` (model, block) says how the rows
    were sketched before; without it the options and the partition's lag decide.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        position: int,
        catalogue: Catalogue,
        options: IngestOptions,
        *,
        partitions: int = 1,
        accumulators: Accumulators = SKETCHES,
        lost: int = 0,
        counted_as: Callable[[str, int], Counting] | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self._partitions = partitions
        self._position = position
        self._lost = lost
        # Earlier owners committed it, so all before it is acknowledged.
        self._acknowledged = position
        self._catalogue = catalogue
        self._options = options
        self._accumulators = accumulators
        self._counted_as = counted_as
        #: How the newest block's rows are sketched.
        self.sketched = FULL
        self._blocks: deque[Block] = deque()
        self._shapes = RowShapes()
        self._waiting_since: dict[str, float] = {}
        self._renewals = Renewals(accumulators, options)

    def add(
        self, records: Sequence[Record], now: float, log_start: int = 0, *, end_offset: int = 0
    ) -> int:
        """Take the partition's next records, in offset order; return how many offsets before them are lost.

        ``log_start``: where the log began after these were read, needed where they do not begin at
        ``expected``. ``end_offset``: where it ended.
        """
        lost = self.skip(records[0].offset, log_start) if records else 0
        for record in records:
            block = self._blocks[-1] if self._blocks else None
            if block is None or block.sealed or not block.holds(record):
                self._open(record, end_offset)
            self._blocks[-1].add(record)
        self.count(now)
        return lost

    @property
    def expected(self) -> int:
        """The offset that comes next unless there is a hole in the log."""
        if self._blocks and not self._blocks[-1].sealed:
            return self._blocks[-1].upto
        return self._position

    def skip(self, upto: int, log_start: int) -> int:
        """Pass over offsets up to ``upto`` that bring no record; return how many of them are lost.

        Where the log begins no later than the hole, it holds markers or what compaction left, and no
        row: covered. Else the log was truncated: the block ends before the hole, which nothing covers.
        """
        expected = self.expected
        if upto <= expected:
            return 0
        lost = max(0, min(log_start, upto) - expected)
        if not lost and self._blocks and not self._blocks[-1].sealed:
            self._blocks[-1].upto = upto
            return 0
        if lost:
            self._lost += upto - expected
            if self._blocks and not self._blocks[-1].sealed:
                self._seal(self._blocks[-1])
        self._position = upto
        return lost

    def count(self, now: float) -> None:
        """Count staged rows; call it when grids have become known too."""
        waiting: dict[str, float] = {}
        for block in self._blocks:
            self._count_block(block)
            for name, model in block.models.items():
                if model.staged:
                    waiting[name] = self._waiting_since.get(name, now)
        self._waiting_since = waiting

    def proposals(self, now: float) -> list[GridRecord]:
        """Return grids to propose: for models that wait, and for data that left its grid."""
        proposed = self._renewals.take()
        room = self._options.max_models - self._catalogue.unregistered
        for name, since in list(self._waiting_since.items()):
            if self._catalogue.epoch(name) is not None:
                continue  # known since the last count: a second one would start a new layout
            staged = staged_of(self._blocks, name)
            card = self._catalogue.card(name)
            if card is None and self._catalogue.next_epoch(name) == 0:
                room -= (
                    1  # whoever proposes first; what is on its way is counted again with each call
                )
                if room < 0:
                    self._refuse_model(name, staged)
                    continue
            enough = sum(entry.rows for entry in staged) >= self._options.grid_rows
            enough = enough or (card is not None and card.baseline is not None)
            if enough or now - since >= self._options.grid_wait_seconds:
                found = self._propose(name, staged)
                if isinstance(found, GridRecord):
                    proposed.append(found)
                else:
                    self._refuse_waiting(name, found)
        return proposed

    @property
    def renewals_held_back(self) -> int:
        """Blocks whose rows have left their grid and got no new one: the model has had many already."""
        return self._renewals.held_back

    @property
    def waiting_rows(self) -> int:
        """Rows held back until their model's grid is known."""
        return sum(
            entry.rows for name in self._waiting_since for entry in staged_of(self._blocks, name)
        )

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the messages that hold them."""
        waiting = {
            entry.record.offset: len(entry.record.value or b"")
            for name in self._waiting_since
            for entry in staged_of(self._blocks, name)
        }
        return sum(waiting.values())

    def flush(self, end_offset: int) -> Flush:
        """Return all that is not acknowledged yet; pass it to ``acknowledged`` once it is."""
        sketches: list[tuple[SketchHeader, bytes]] = []
        sent: list[tuple[PaneState, int, int]] = []
        accepted: Counter[str] = Counter()
        thinned: Counter[str] = Counter()
        for block in self._blocks:
            for name, model in block.models.items():
                for pane, state in model.panes.items():
                    changed = state.rows > state.sent or block.finished
                    if changed and model.epoch is not None:
                        sketches += block.sketches(name, pane, state, model.epoch)
                        sent.append((state, state.rows, state.thinned))
                        accepted[name] += state.rows - state.sent
                        thinned[name] += state.thinned - state.sent_thinned
        finished = 0
        while finished < len(self._blocks) and self._blocks[finished].finished:
            finished += 1
        return Flush(
            rejections=[rejection for block in self._blocks for rejection in block.rejections],
            sketches=sketches,
            manifests=[
                block.manifest(self._partitions, self._acknowledged, end_offset)
                for block in self._blocks
            ]
            or [self._heartbeat(end_offset)],
            commit=self._commit(finished),
            accepted=accepted,
            thinned=thinned,
            sent=sent,
            rejected=[(block, len(block.rejections)) for block in self._blocks],
            finished=finished,
        )

    def acknowledged(self, flush: Flush) -> None:
        """Forget what ``flush`` carried: the broker holds it now."""
        if flush.commit is not None:
            self._acknowledged = flush.commit
        for state, rows, thinned in flush.sent:
            state.sent, state.sent_thinned = rows, thinned
        for block, count in flush.rejected:
            del block.rejections[:count]
        for _ in range(flush.finished):
            self._blocks.popleft()

    def _heartbeat(self, end_offset: int) -> Manifest:
        return Manifest(
            topic=self.topic,
            partition=self.partition,
            partitions=self._partitions,
            block=self._position,
            upto=self._position,
            previous=None,
            sealed=False,
            acknowledged=self._acknowledged,
            end_offset=end_offset,
        )

    def _open(self, record: Record, end_offset: int) -> None:
        previous = None
        if self._blocks and not self._blocks[-1].sealed:
            block = self._blocks[-1]
            # Offsets without a record (transaction markers) up to here hold no rows: covered.
            block.upto = record.offset
            self._seal(block)
            previous = block.first
        self._blocks.append(
            Block(
                topic=self.topic,
                partition=self.partition,
                options=self._options,
                first=record.offset,
                first_timestamp=record.timestamp,
                previous=previous,
                upto=record.offset,
                accumulators=self._accumulators,
                shapes=self._shapes,
                lost=self._lost,
                counting=self._counting(record.offset, end_offset),
            )
        )
        self._lost = 0

    def _seal(self, block: Block) -> None:
        block.sealed = True
        self._count_block(block)
        self._renew(block)

    def _commit(self, finished: int) -> int | None:
        if not self._blocks:
            return None
        return self._blocks[finished].first if finished < len(self._blocks) else self._position

    def _counting(self, block: int, end_offset: int) -> Callable[[str], Counting]:
        if (counted_as := self._counted_as) is not None:
            return lambda model: counted_as(model, block)
        chosen = self.sketched = counting(self._options, block, end_offset - block)
        return lambda model: chosen

    def _count_block(self, block: Block) -> None:
        for name, model in list(block.models.items()):
            if model.staged:
                block.count(name, self._catalogue.epoch_in(name, self.partition, block.first))

    def _propose(self, name: str, staged: list[Staged]) -> GridRecord | list[Refusal]:
        found = self._accumulators.first_grid(
            name,
            self._catalogue.card(name),
            self._catalogue.next_epoch(name),
            _first(staged, self._options.grid_rows),
            self._options,
        )
        if isinstance(found, GridRecord):
            return found.model_copy(update={"cards": self._catalogue.cards_read})
        return found

    def _refuse_model(self, name: str, staged: list[Staged]) -> None:
        """Refuse all rows of a model that is one too many; it leaves no trace, names can be endless."""
        text = (
            f"{self._options.max_models} models without a card are counted already "
            "(ingest.max_models): register this one, or raise the limit"
        )
        refused = list(refuse_all(staged, Reason.TOO_MANY_MODELS, text))
        self._refuse_waiting(name, refused, UNKNOWN_MODEL)
        for block in self._blocks:
            block.forget(name)

    def _refuse_waiting(self, name: str, refused: list[Refusal], booked: str | None = None) -> None:
        """Refuse the first rows that wait: those of these records, ``booked`` under another name."""
        offsets = {refusal.record.offset for refusal in refused}
        for block in self._blocks:
            if (model := block.models.get(name)) is not None:
                model.staged = [e for e in model.staged if e.record.offset not in offsets]
            for refusal in refused:
                if block.first <= refusal.record.offset < block.upto:
                    block.refuse(name if booked is None else booked, refusal)
        if not staged_of(self._blocks, name):
            del self._waiting_since[name]

    def _renew(self, block: Block) -> None:
        """Propose a new epoch for each model whose rows in the sealed block left their grid."""
        for name, model in block.models.items():
            epoch = model.epoch
            if epoch is None or epoch is not self._catalogue.epoch(name):
                continue
            panes = [model.panes[pane] for pane in sorted(model.panes)]
            rows = sum(pane.rows for pane in panes)
            self._renewals.add(epoch, [pane.sketch for pane in panes], rows)


def _first(staged: list[Staged], rows: int) -> list[Staged]:
    """Return the first records' rows, at least so many if there are; a record's rows stay together."""
    taken = 0
    for index, entry in enumerate(staged):
        if taken >= rows and entry.record.offset != staged[index - 1].record.offset:
            return staged[:index]
        taken += entry.rows
    return staged
