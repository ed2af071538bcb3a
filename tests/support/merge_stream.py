"""Rows of chosen event times to sketches and manifests, as the sketches topic would hold them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from streams import NOW, card, record

from attributary.schemas.card import Lifetime, ModelCard, Tumbling
from attributary.schemas.manifest import Manifest
from attributary.schemas.sketch import SketchHeader
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.decode import Record
from attributary.workers.stream.ingest import PartitionIngest
from attributary.workers.stream.merge import MergePartition
from attributary.workers.stream.options import IngestOptions, MergeOptions

START = NOW // 60_000 * 60_000
WINDOWS = [Tumbling(seconds=20), Lifetime()]
Part = Manifest | tuple[SketchHeader, bytes]


def the_card(**fields: Any) -> ModelCard:
    """Return a card of model ``m`` with the features a and b."""
    fields = {"windows": WINDOWS, "allowed_lateness_seconds": 10.0, **fields}
    return card("a", "b", **fields)


class Stream:
    """Source partitions that make real sketches; ``log`` is what the sketches topic would hold."""

    def __init__(
        self, of: ModelCard | None = None, partitions: int = 1, size: int = 16, **options: Any
    ) -> None:
        self.catalogue = ControlCatalogue()
        self.card = of or the_card()
        self.catalogue.add_card(b"m", self.card.to_bytes())
        self.options = IngestOptions(
            block_offsets=size, grid_rows=40, grid_wait_seconds=1, **options
        )
        self._partitions = partitions
        self.log: list[Part] = []
        self.rows: list[tuple[float, float, float]] = []
        self._rng = np.random.default_rng(partitions)
        self._offsets = [0] * partitions
        self.cores = [self._core(p) for p in range(partitions)]

    def _core(self, partition: int, position: int = 0) -> PartitionIngest:
        return PartitionIngest(
            "rows",
            partition,
            position,
            self.catalogue,
            self.options,
            partitions=self._partitions,
        )

    def again(self, partition: int, position: int) -> None:
        """A new owner takes over."""
        self.cores[partition] = self._core(partition, position)
        self._offsets[partition] = position

    def lose(self, partition: int, offsets: int) -> None:
        """The log drops offsets before they are read."""
        self._offsets[partition] += offsets
        place = self._offsets[partition]
        assert self.cores[partition].skip(place, log_start=place) == offsets

    def row(self, partition: int, seconds: float, rows: int = 1, model: str = "m") -> None:
        """Count rows of an event time, in one message."""
        found = []
        for _ in range(rows):
            a, b = self._rng.standard_normal(2).tolist()
            y = a - b + float(self._rng.standard_normal())
            self.rows.append((a, b, y))
            found.append(
                {
                    "model": model,
                    "features": {"a": a, "b": b},
                    "outputs": [y],
                    "time": START / 1000 + seconds,
                }
            )
        self.add(partition, json.dumps(found).encode())

    def add(self, partition: int, value: bytes) -> None:
        """Count a message."""
        offset = self._offsets[partition]
        self._offsets[partition] += 1
        taken: Record = record(value, offset, timestamp=START)
        self.cores[partition].add([taken], now=0.0)

    def flush(self, *partitions: int) -> list[Part]:
        """Flush partitions (none: all) and return what they send."""
        sent: list[Part] = []
        for partition in partitions or range(self._partitions):
            core = self.cores[partition]
            for proposal in core.proposals(now=1e6):
                self.catalogue.add_grid(proposal.to_bytes())
            core.count(now=1e6)
            flush = core.flush(self._offsets[partition])
            sent += [*flush.sketches, *flush.manifests]
            core.acknowledged(flush)
        self.log += sent
        return sent

    def merge(self, **options: Any) -> MergePartition:
        """Return a merge that has read nothing."""
        return MergePartition(
            self.catalogue, MergeOptions(idle_seconds=options.pop("idle", 1e6), **options)
        )


def feed(merge: MergePartition, parts: Iterable[Part], clock: int = START) -> None:
    """Let a merge read records of the log."""
    for part in parts:
        if isinstance(part, Manifest):
            merge.add_manifest(part, clock)
        else:
            merge.add_sketch(*part, clock)
