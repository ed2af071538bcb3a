"""The newest sketches of blocks that are still open."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attributary.workers.stream.held import Held, SourceKey
from attributary.workers.stream.lightweight import Variants


class _Block:
    """The sketches of one block: of each variant by pane, and which variant holds."""

    def __init__(self) -> None:
        self._panes: dict[float, dict[int, Held]] = {}
        self._variants = Variants()
        #: The highest offset that a sketch counts up to.
        self.upto = 0

    @property
    def panes(self) -> dict[int, Held]:
        """The sketches of the variant that holds, by pane."""
        return {} if self._variants.chosen is None else self._panes[self._variants.chosen]

    def add(self, held: Held) -> bool:
        header = held.header
        panes = self._panes.setdefault(header.fraction, {})
        known = panes.get(header.pane)
        if known is not None and known.version >= held.version:
            return False
        for other in self._panes.values():
            if header.pane in other:
                held.on_time = min(header.rows, max(held.on_time, other[header.pane].on_time))
        panes[header.pane] = held
        self.upto = max(self.upto, header.upto)
        self._variants.add(header.fraction, {header.pane: header.rows}, final=header.final)
        return True

    def drop(self, held: Held) -> None:
        header = held.header
        panes = self._panes.get(header.fraction, {})
        if panes.get(header.pane) is held:
            del panes[header.pane]
            self._variants.drop(header.fraction, header.pane)
            self.upto = max((held.header.upto for held in self), default=0)

    def __iter__(self) -> Iterator[Held]:
        """Yield all variants' sketches, those first that hold: put back in this order, they hold again."""
        chosen = self._variants.chosen
        for fraction in sorted(self._panes, key=lambda each: (each != chosen, each)):
            panes = self._panes[fraction]
            yield from (panes[pane] for pane in sorted(panes))


class OpenSketches:
    """One model's open sketches by source, block and pane, of one variant of each block."""

    def __init__(self) -> None:
        self._by_source: dict[SourceKey, dict[int, _Block]] = {}

    def add(self, held: Held) -> bool:
        """Keep the sketch; False where one that counts up to the same offset or more is held."""
        header = held.header
        blocks = self._by_source.setdefault((header.topic, header.partition), {})
        return blocks.setdefault(header.block, _Block()).add(held)

    def drop(self, held: Held) -> None:
        """Forget one sketch, where it is held still."""
        header = held.header
        block = self._by_source.get((header.topic, header.partition), {}).get(header.block)
        if block is not None:
            block.drop(held)

    def take(self, source: SourceKey, block: int) -> list[Held]:
        """Return the block's sketches by pane, and forget all of the block."""
        found = self._by_source.get(source, {}).pop(block, None)
        return [] if found is None else [found.panes[pane] for pane in sorted(found.panes)]

    def reaches(self, source: SourceKey) -> dict[int, int]:
        """Return the highest offset that a sketch of each of the source's blocks counts up to."""
        blocks = self._by_source.get(source)
        return {block: each.upto for block, each in blocks.items()} if blocks else {}

    def block(self, source: SourceKey, block: int) -> dict[int, Held]:
        """Return the block's sketches by pane."""
        found = self._by_source.get(source, {}).get(block)
        return {} if found is None else found.panes

    def __iter__(self) -> Iterator[tuple[SourceKey, Held]]:
        """Yield all in the order (source, block, pane)."""
        for source in sorted(self._by_source):
            blocks = self._by_source[source]
            for block in sorted(blocks):
                panes = blocks[block].panes
                for pane in sorted(panes):
                    yield source, panes[pane]

    def variants(self) -> Iterator[Held]:
        """Yield the sketches of all variants of all blocks."""
        for blocks in self._by_source.values():
            for block in blocks.values():
                yield from block

    def where(self, chosen: Callable[[Held], bool]) -> dict[SourceKey, list[Held]]:
        """Return the chosen ones by source, in order.

        Of a block that begins inside another one none, until it is known which of them counts.
        """
        found: dict[SourceKey, list[Held]] = {}
        for source in sorted(self._by_source):
            blocks, reached = self._by_source[source], 0
            for block in sorted(blocks):
                if block < reached:
                    continue
                reached = blocks[block].upto
                panes = blocks[block].panes
                held = [panes[pane] for pane in sorted(panes) if chosen(panes[pane])]
                if held:
                    found.setdefault(source, []).extend(held)
        return found
