"""The books of one source partition as its manifests tell them: what is covered, counted, missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from attributary.schemas.manifest import Manifest
from attributary.workers.stream.snapshot_state import LedgerState


@dataclass
class Totals:
    """Rows of one model on one source partition, blocks that are closed."""

    accepted: int = 0
    rejected: Counter[str] = field(default_factory=Counter)


class SourceLedger:
    """Manifests of one source partition, in any order. Times are the broker's, in milliseconds."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.upto = 0
        self.end_offset = 0
        self._told_end = 0
        self._acknowledged = 0
        self.event_time: dict[str, int] = {}
        self._moved_at: dict[str, int] = {}
        self._expected: set[str] = set()
        self._closed: dict[str, Totals] = {}
        self._open: dict[int, Manifest] = {}
        #: Ends of blocks that will not be sealed any more, whose rows so far are held.
        self._held: dict[int, int] = {}
        #: Whether sketches of blocks that should be whole by now wait for their grid.
        self.waits = False
        #: Closed offsets, [start, end) in order; one span unless something is missing.
        self._spans: list[tuple[int, int]] = []

    def state(self, source: tuple[str, int]) -> LedgerState:
        """Return the books of ``source`` as a snapshot holds them."""
        return LedgerState(
            source=source,
            first=self.first,
            upto=self.upto,
            end_offset=self.end_offset,
            acknowledged=self._acknowledged,
            event_time=dict(self.event_time),
            moved_at=dict(self._moved_at),
            expected=sorted(self._expected),
            closed={n: (t.accepted, dict(t.rejected)) for n, t in self._closed.items()},
            open=[manifest.to_bytes() for manifest in self._open.values()],
            held=dict(self._held),
            spans=list(self._spans),
        )

    @classmethod
    def from_state(cls, state: LedgerState) -> SourceLedger:
        """Return the books that ``state`` gave; RejectedError where a manifest cannot be read."""
        ledger = cls()
        ledger.first, ledger.upto, ledger.end_offset = state.first, state.upto, state.end_offset
        ledger._told_end, ledger._acknowledged = state.end_offset, state.acknowledged
        ledger.event_time, ledger._moved_at = dict(state.event_time), dict(state.moved_at)
        ledger._expected = set(state.expected)
        ledger._closed = {n: Totals(a, Counter(r)) for n, (a, r) in state.closed.items()}
        manifests = map(Manifest.from_bytes, state.open)
        ledger._open = {manifest.block: manifest for manifest in manifests}
        ledger._held, ledger._spans = dict(state.held), list(state.spans)
        return ledger

    def add(self, manifest: Manifest, clock: int) -> None:
        """Take a manifest; of two for one block the one that covers more holds."""
        self.end_offset = max(self.end_offset, manifest.end_offset)
        self._told_end = manifest.end_offset
        self._acknowledged = max(self._acknowledged, manifest.acknowledged)
        self.upto = max(self.upto, manifest.upto)
        if manifest.upto == manifest.block or self.is_closed(manifest.block):
            return  # a heartbeat, which covers no offset, or a repetition
        held = self._open.get(manifest.block)
        if held is not None and _coverage(held) > _coverage(manifest):
            return
        self._open[manifest.block] = manifest
        first = manifest.block - manifest.lost
        self.first = first if self.first is None else min(first, self.first)
        for name, count in manifest.models.items():
            if count.waiting or count.accepted:
                self._expected.add(name)
            before = None if held is None else held.models.get(name)
            if before is None or count.rows_accepted > before.rows_accepted:
                self._moved_at[name] = clock

    def reach(self, model: str, time: int | None) -> None:
        """Note that the model's rows up to this event time are held, and all rows before them."""
        if time is not None:
            self.event_time[model] = max(time, self.event_time.get(model, time))

    def is_closed(self, block: int) -> bool:
        """Say whether the block's books are closed; what comes again for it is a duplicate."""
        return any(start <= block < end for start, end in self._spans)

    def in_order(self) -> Iterator[tuple[Manifest, bool]]:
        """Yield open blocks in order, as far as nothing before them may still come.

        With each: whether all of it must be in the log already, so that what it lacks is lost.
        """
        ends = {end for _, end in self._spans}
        for block in sorted(self._open):
            manifest = self._open[block]
            if self.counts(block, manifest.upto):
                continue
            if block > self._acknowledged and block not in ends:
                return
            overdue = block < self._acknowledged
            yield manifest, overdue
            if manifest.sealed:
                ends.add(manifest.upto)
            elif not overdue:
                return

    def close(self, manifest: Manifest) -> None:
        """Book a block for good."""
        for name, count in manifest.models.items():
            totals = self._closed.setdefault(name, Totals())
            totals.accepted += count.rows_accepted
            totals.rejected.update(count.rejected)
        self._forget(manifest.block)
        spans: list[tuple[int, int]] = []
        for start, end in sorted([*self._spans, (manifest.block, manifest.upto)]):
            if spans and spans[-1][1] >= start:
                spans[-1] = spans[-1][0], max(end, spans[-1][1])
            else:
                spans.append((start, end))
        self._spans = spans

    def hold(self, manifest: Manifest) -> None:
        """Note that all rows are held of a block that nobody goes on with: it is covered so far.

        Its owner read it to this offset, and the log was truncated there before it could be sealed.
        """
        self._held[manifest.block] = manifest.upto

    def release(self, block: int) -> None:
        """Note that rows of such a block are held no more: another owner's block has taken their place."""
        self._held.pop(block, None)

    def drop_truncated(self) -> list[int]:
        """Forget blocks that the log's truncation has cut through, and return them.

        An owner begins behind their start: it counts the rest of their rows again, in a block of its own.
        What was before is a gap. Of two owners' blocks that overlap for this reason the first closed counts.
        """
        cut = [
            block
            for block, manifest in self._open.items()
            if self.cuts(block, manifest.upto) or self.counts(block, manifest.upto)
        ]
        for block in cut:
            self._forget(block)
        return cut

    def cuts(self, block: int, upto: int) -> bool:
        """Say whether a later owner began inside what an unsealed block counts, up to this offset.

        It was told to, by what is committed, or found the log to begin there.
        """
        manifest = self._open.get(block)
        return (manifest is None or not manifest.sealed) and self._begun_in(block, upto)

    def _begun_in(self, block: int, upto: int) -> bool:
        begun = [self._acknowledged, *(m.block for m in self._open.values() if m.lost)]
        return any(block < start < upto for start in begun)

    def drop_overtaken(self, manifest: Manifest) -> bool:
        """Forget a block that will not be whole any more, if a later owner counts the rest of it; say so."""
        if not self._begun_in(manifest.block, manifest.upto):
            return False
        self._forget(manifest.block)
        return True

    def _forget(self, block: int) -> None:
        del self._open[block]
        self.release(block)

    @property
    def gap_offsets(self) -> int:
        """Offsets that no manifest covers though all before is in the log, or whose sketches are missing."""
        behind = [
            (block, block)
            for block, manifest in self._open.items()
            if manifest.lost and block <= self._acknowledged
        ]
        if not self.waits:
            behind.append((self._acknowledged, self._acknowledged))
        if self.first is None or not (self._spans or behind):
            return 0
        last = max(end for _, end in [*self._spans, *behind])
        held = [span for span in self._held.items() if span[1] <= last]
        covered = sorted([*self._spans, *held, *behind])
        pairs = pairwise([(0, self.first), *covered])
        return sum(max(0, right[0] - left[1]) for left, right in pairs)

    @property
    def beyond_end(self) -> int:
        """Offsets counted that lie behind where the log ended when it was told last."""
        return max(0, self.upto - self._told_end)

    def counts(self, block: int, upto: int) -> bool:
        """Say whether some of the offsets [block, upto) are in closed blocks, and not to be added again."""
        return any(start < upto and block < end for start, end in self._spans)

    def totals(self, model: str) -> Totals:
        """Return the model's rows over all blocks, open ones as far as they are known."""
        closed = self._closed.get(model, Totals())
        total = Totals(closed.accepted, Counter(closed.rejected))
        for manifest in self._open.values():
            if (count := manifest.models.get(model)) is not None:
                total.accepted += count.rows_accepted
                total.rejected.update(count.rejected)
        return total

    @property
    def behind(self) -> bool:
        """Whether records of the partition are still to be read."""
        return self.upto < self.end_offset

    def expects(self, model: str) -> bool:
        """Say whether rows of the model may still come from offsets that exist already."""
        return self.behind or (model in self._expected and model not in self.event_time)

    def idle(self, model: str, clock: int, idle_ms: int) -> bool:
        """Say whether the partition is read to its end and has had no row of the model for a while."""
        return not self.behind and clock - self._moved_at.get(model, clock) >= idle_ms


def _coverage(manifest: Manifest) -> tuple[int, bool, int]:
    """Order manifests of one block. With equal offsets fewer waiting rows and a seal are news."""
    waiting = sum(count.waiting for count in manifest.models.values())
    return manifest.upto, manifest.sealed, -waiting
