"""How a live run counted each block, as its manifests tell: the grid's epoch, and the fraction sketched."""

from __future__ import annotations

from attributary.schemas.manifest import Manifest
from attributary.workers.stream.lightweight import FULL, Counting, Variants

Place = tuple[str, int, int]
"""Model, source partition, block."""


class LiveCounts:
    """Takes manifests in the order of their log, as merge does: of two for one block the one that covers more
    offsets tells the epoch, and of two variants the one whose sketches merge takes tells the fraction."""

    def __init__(self) -> None:
        self.epochs: dict[Place, int] = {}
        self._upto: dict[tuple[int, int], int] = {}
        self._variants: dict[Place, Variants] = {}
        self._twins: dict[Place, Variants] = {}
        self._closed: set[tuple[int, int]] = set()

    def add(self, manifest: Manifest) -> None:
        """Take the next manifest of the log."""
        at = (manifest.partition, manifest.block)
        if manifest.upto > self._upto.get(at, -1):
            self._upto[at] = manifest.upto
            for name, count in manifest.models.items():
                if count.epoch is not None:
                    self.epochs[name, manifest.partition, manifest.block] = count.epoch
        if at in self._closed:
            return
        for name, count in manifest.models.items():
            place = name, manifest.partition, manifest.block
            variants = self._variants.setdefault(place, Variants())
            variants.add(count.fraction, count.accepted, final=manifest.sealed)
            if count.calibration is not None:
                twins = self._twins.setdefault(place, Variants())
                twins.add(count.calibration, count.accepted, final=manifest.sealed)
        if manifest.sealed:
            self._closed.add(at)

    def counting(self, place: Place) -> Counting:
        """Return how the block's rows were sketched: in full where no manifest tells."""
        variants = self._variants.get(place)
        if variants is None or variants.chosen is None:
            return FULL
        if variants.chosen < 1:
            return Counting(variants.chosen)
        twins = self._twins.get(place)
        return Counting(1.0, None if twins is None else twins.chosen)
