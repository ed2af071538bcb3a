"""The books of one source partition as its manifests tell them: what is covered, counted, missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from attributary.schemas.manifest import Manifest

# A block that still lacks its end, its sketches or its predecessor when this many later ones are sealed is
# no longer waited for. It counts as soon as it is whole after all; until then it is a gap.
_GRACE_BLOCKS = 2


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
        self.event_time: dict[str, int] = {}
        self._moved_at: dict[str, int] = {}
        self._expected: set[str] = set()
        self._closed: dict[str, Totals] = {}
        self._open: dict[int, Manifest] = {}
        #: Closed offsets, [start, end) in order; one span unless something is missing.
        self._spans: list[tuple[int, int]] = []

    def add(self, manifest: Manifest, clock: int) -> bool:
        """Take a manifest, of two for one block the one that covers more; False where that was known."""
        self.end_offset = max(self.end_offset, manifest.end_offset)
        self.upto = max(self.upto, manifest.upto)
        if manifest.upto == manifest.block:  # a heartbeat: no offset covered
            return False
        if self.is_closed(manifest.block):
            return False
        held = self._open.get(manifest.block)
        if held is not None and _coverage(held) > _coverage(manifest):
            return False
        self._open[manifest.block] = manifest
        if self.first is None or manifest.block < self.first:
            self.first = manifest.block
        for name, count in manifest.models.items():
            if count.waiting or count.accepted:
                self._expected.add(name)
            before = None if held is None else held.models.get(name)
            if before is None or count.rows_accepted > before.rows_accepted:
                self._moved_at[name] = clock
        return True

    def reach(self, model: str, time: int | None) -> None:
        """Note that the model's rows up to this event time are held."""
        if time is not None:
            self.event_time[model] = max(time, self.event_time.get(model, time))

    def is_closed(self, block: int) -> bool:
        """Say whether the block's books are closed; what comes again for it is a duplicate."""
        return any(start <= block < end for start, end in self._spans)

    def closable(self) -> Iterator[tuple[Manifest, bool]]:
        """Yield sealed blocks in order, and whether later ones need not wait for them."""
        sealed = 0
        blocks = sorted(self._open)
        after = [0] * len(blocks)
        for index in range(len(blocks) - 1, -1, -1):
            after[index] = sealed
            sealed += self._open[blocks[index]].sealed
        for index, block in enumerate(blocks):
            manifest = self._open[block]
            overdue = after[index] >= _GRACE_BLOCKS
            if manifest.sealed and (overdue or self._follows(manifest)):
                yield manifest, overdue
            elif not overdue:
                return

    def close(self, manifest: Manifest) -> None:
        """Book a block for good."""
        for name, count in manifest.models.items():
            totals = self._closed.setdefault(name, Totals())
            totals.accepted += count.rows_accepted
            totals.rejected.update(count.rejected)
        del self._open[manifest.block]
        spans: list[tuple[int, int]] = []
        for start, end in sorted([*self._spans, (manifest.block, manifest.upto)]):
            if spans and spans[-1][1] >= start:
                spans[-1] = spans[-1][0], max(end, spans[-1][1])
            else:
                spans.append((start, end))
        self._spans = spans

    @property
    def gap_offsets(self) -> int:
        """Offsets between closed blocks that no manifest covers, or whose sketches are missing."""
        gap = sum(right[0] - left[1] for left, right in pairwise(self._spans))
        if gap:
            last = self._spans[-1][0]
            gap -= sum(
                open_.upto - block
                for block, open_ in self._open.items()
                if block < last and not open_.sealed and block > self._spans[0][0]
            )
        return max(0, gap)

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

    def _follows(self, manifest: Manifest) -> bool:
        """Say whether all before the block is closed, as far as anything is known of it."""
        if any(end == manifest.block for _, end in self._spans):
            return True
        first = not self._spans or manifest.block < self._spans[0][0]
        return first and manifest.previous is None


def _coverage(manifest: Manifest) -> tuple[int, bool, int]:
    """Order manifests of one block. With equal offsets fewer waiting rows and a seal are news."""
    waiting = sum(count.waiting for count in manifest.models.values())
    return manifest.upto, manifest.sealed, -waiting
