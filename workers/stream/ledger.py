"""The books of one source partition as its manifests tell them: what is covered, counted, missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from attributary.schemas.manifest import Manifest

# A block whose sketches or predecessor are still missing when this many later ones are complete is
# given up: what it lacks is reported as a gap.
_GRACE_BLOCKS = 2


@dataclass
class Totals:
    """Rows of one model on one source partition, blocks that are closed."""

    accepted: int = 0
    rejected: Counter[str] = field(default_factory=Counter)


class SourceLedger:
    """Manifests of one source partition. Times are the broker's, in milliseconds."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.closed_upto: int | None = None
        self.upto = 0
        self.end_offset = 0
        self.progressed_at = 0
        self.gap_offsets = 0
        self.duplicates = 0
        self.event_time: dict[str, int] = {}
        self._closed: dict[str, Totals] = {}
        self._open: dict[int, Manifest] = {}

    def add(self, manifest: Manifest, clock: int) -> None:
        """Take a manifest; of two for one block the one that covers more offsets holds."""
        self.end_offset = max(self.end_offset, manifest.end_offset)
        if manifest.upto == manifest.block:  # a heartbeat: no offset covered
            self.upto = max(self.upto, manifest.upto)
            return
        if self.is_closed(manifest.block):
            self.duplicates += 1
            return
        held = self._open.get(manifest.block)
        if held is not None and (held.upto, held.sealed) > (manifest.upto, manifest.sealed):
            self.duplicates += 1
            return
        self._open[manifest.block] = manifest
        if self.first is None or manifest.block < self.first:
            self.first = manifest.block
        if manifest.upto > self.upto:
            self.upto = manifest.upto
            self.progressed_at = clock
        for name, count in manifest.models.items():
            if count.event_time is not None:
                known = self.event_time.get(name, count.event_time)
                self.event_time[name] = max(known, count.event_time)

    def is_closed(self, block: int) -> bool:
        """Say whether the block's books are closed; what comes again for it is a duplicate."""
        return self.closed_upto is not None and block < self.closed_upto

    def closable(self) -> Iterator[tuple[Manifest, bool]]:
        """Yield sealed blocks in order, and whether to stop waiting for what they still lack."""
        sealed = 0
        blocks = sorted(self._open)
        after = [0] * len(blocks)
        for index in range(len(blocks) - 1, -1, -1):
            after[index] = sealed
            sealed += self._open[blocks[index]].sealed
        for index, block in enumerate(blocks):
            manifest = self._open[block]
            overdue = after[index] >= _GRACE_BLOCKS
            follows = self.closed_upto is None or block <= self.closed_upto
            if not manifest.sealed or not (follows or overdue):
                return
            yield manifest, overdue

    def close(self, manifest: Manifest) -> None:
        """Book a block for good."""
        if self.closed_upto is not None and manifest.block > self.closed_upto:
            self.gap_offsets += manifest.block - self.closed_upto
        self.closed_upto = manifest.upto
        for name, count in manifest.models.items():
            totals = self._closed.setdefault(name, Totals())
            totals.accepted += count.rows_accepted
            totals.rejected.update(count.rejected)
        del self._open[manifest.block]

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

    def idle(self, clock: int, idle_ms: int) -> bool:
        """Say whether the partition has been read to its end and has had no row for a while."""
        return not self.behind and clock - self.progressed_at >= idle_ms
