"""The newest sketches of blocks that are still open."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attributary.workers.stream.views import Held, SourceKey


class OpenSketches:
    """One model's open sketches by source, block and pane."""

    def __init__(self) -> None:
        self._by_source: dict[SourceKey, dict[int, dict[int, Held]]] = {}

    def add(self, held: Held) -> bool:
        """Keep the sketch; False where one that counts up to the same offset or more is held."""
        header = held.header
        blocks = self._by_source.setdefault((header.topic, header.partition), {})
        panes = blocks.setdefault(header.block, {})
        known = panes.get(header.pane)
        if known is not None:
            if known.version >= held.version:
                return False
            held.on_time = max(held.on_time, known.on_time)
        panes[header.pane] = held
        return True

    def drop(self, held: Held) -> None:
        """Forget one sketch, where it is held still."""
        header = held.header
        panes = self._by_source.get((header.topic, header.partition), {}).get(header.block, {})
        if panes.get(header.pane) is held:
            del panes[header.pane]

    def take(self, source: SourceKey, block: int) -> list[Held]:
        """Return the block's sketches by pane, and forget them."""
        panes = self._by_source.get(source, {}).pop(block, {})
        return [panes[pane] for pane in sorted(panes)]

    def reaches(self, source: SourceKey) -> dict[int, int]:
        """Return the highest offset that a sketch of each of the source's blocks counts up to."""
        return {
            block: max(held.header.upto for held in panes.values())
            for block, panes in self._by_source.get(source, {}).items()
            if panes
        }

    def block(self, source: SourceKey, block: int) -> dict[int, Held]:
        """Return the block's sketches by pane."""
        return self._by_source.get(source, {}).get(block, {})

    def __iter__(self) -> Iterator[tuple[SourceKey, Held]]:
        """Yield all in the order (source, block, pane)."""
        for source in sorted(self._by_source):
            blocks = self._by_source[source]
            for block in sorted(blocks):
                for pane in sorted(blocks[block]):
                    yield source, blocks[block][pane]

    def where(self, chosen: Callable[[Held], bool]) -> dict[SourceKey, list[Held]]:
        """Return the chosen ones by source, in order."""
        found: dict[SourceKey, list[Held]] = {}
        for source, held in self:
            if chosen(held):
                found.setdefault(source, []).append(held)
        return found
