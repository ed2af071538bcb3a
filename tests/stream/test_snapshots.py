"""Snapshots: a merge that is loaded goes on as the one that was, to the last bit, whatever was cut short."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from merge_stream import Part, Stream, the_card
from snapshots import load, snapshot

from attributary.schemas.card import Decayed, Hopping, Lifetime, ModelCard, Tumbling
from attributary.schemas.manifest import Manifest
from attributary.workers.stream.merge import MergePartition
from attributary.workers.stream.snapshot_log import SnapshotRecord, SnapshotWriter

ALL_WINDOWS = [
    Tumbling(seconds=20),
    Hopping(seconds=60, hop_seconds=20),
    Lifetime(),
    Decayed(half_life_seconds=30),
]


def _card(**fields: Any) -> ModelCard:
    return the_card(windows=ALL_WINDOWS, allowed_lateness_seconds=20.0, samples=3, **fields)


def _stream(seed: int, steps: int = 90) -> Stream:
    """Return three partitions' rows, some late, some ages late, one partition quiet for a while."""
    rng = random.Random(seed)
    stream = Stream(_card(), partitions=3, size=12)
    for index in range(steps):
        partition = rng.choice((0, 1) if 30 < index < 60 else (0, 1, 2))
        late = rng.choice((0, 0, 0, 0, 0, 3, 25, 300))
        stream.row(partition, index - late, rows=rng.choice((1, 4)))
        if rng.random() < 0.05:
            stream.add(partition, b'{"model": "m", "features": {"a": "x"}, "outputs": 1}')
        if rng.random() < 0.3:
            stream.flush(rng.randrange(3))
    stream.flush()
    return stream


class Reader:
    """A merge that reads a log by position and may be loaded from snapshots."""

    def __init__(
        self, stream: Stream, log: Sequence[Part], snapshots: list[SnapshotRecord]
    ) -> None:
        self.log = log
        self.stream = stream
        self.snapshots = snapshots
        self.position = 0
        self.core = stream.merge(profile_features=2)
        self.writer = SnapshotWriter(0, "first")
        self.lost = 0

    def restart(self, owner: str, beginning: int = 0) -> list[str]:
        """Die, and begin again from what there is; the log's retention is at ``beginning``."""
        self.writer = SnapshotWriter(0, owner)
        self.core, resume, troubles = load(
            self.snapshots, 0, lambda: self.stream.merge(profile_features=2)
        )
        self.position = beginning
        if resume is None:
            return troubles
        for offset in range(max(beginning, resume.start), len(self.log)):
            part = self.log[offset]
            if resume.complete:
                break
            if not isinstance(part, Manifest):
                resume.take(*part, offset, 0)
        self.lost = resume.finish()
        self.position = max(beginning, resume.position)
        return troubles

    def read(self, upto: int) -> None:
        """Read on."""
        for offset in range(self.position, upto):
            part = self.log[offset]
            if isinstance(part, Manifest):
                self.core.add_manifest(part, 1000 + offset)
            else:
                self.core.add_sketch(*part, 1000 + offset, offset)
        self.position = max(self.position, upto)

    def snapshot(self, rng: random.Random | None = None) -> None:
        """Write a snapshot; with ``rng`` it may be cut short anywhere."""
        groups = snapshot(self.writer, self.core, self.position)
        records = [record for group in groups for record in group]
        if rng is not None and rng.random() < 0.4:
            self.snapshots += records[: rng.randrange(len(records))]
            return
        self.snapshots += records
        self.snapshots += self.writer.acknowledged()


def _published(core: MergePartition) -> list[bytes]:
    return [message.to_bytes() for message in core.publish(now=7)]


def _undisturbed(stream: Stream, points: Sequence[int]) -> dict[int, list[bytes]]:
    reader = Reader(stream, stream.log, [])
    found = {}
    for point in points:
        reader.read(point)
        found[point] = _published(reader.core)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_what_is_published_after_restarts_is_what_an_undisturbed_merge_publishes(seed: int) -> None:
    stream = _stream(seed)
    rng = random.Random(seed)
    points = sorted({*rng.sample(range(len(stream.log)), 12), len(stream.log)})
    expected = _undisturbed(stream, points)
    assert sum(map(len, expected.values())) > 12
    reader = Reader(stream, stream.log, [])
    restarts = 0
    index = 0
    while index < len(points):
        reader.read(points[index])
        assert _published(reader.core) == expected[points[index]], f"at {points[index]}"
        index += 1
        if rng.random() < 0.5:
            reader.snapshot(rng)
        if rng.random() < 0.3:
            restarts += 1
            assert reader.restart(f"owner{restarts}") == []
            assert reader.lost == 0
            # What was published after the snapshot is published again, the same.
            index = sum(point <= reader.position for point in points)
    assert restarts > 0
