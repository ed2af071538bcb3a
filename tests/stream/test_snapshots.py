"""Snapshots: a merge that is loaded goes on as the one that was, to the last bit, whatever was cut short."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from merge_stream import Part, Stream, feed, the_card
from snapshots import load, snapshot

from attributary.schemas.attribution import WindowAttribution
from attributary.schemas.card import Decayed, Feature, Hopping, Lifetime, ModelCard, Tumbling
from attributary.schemas.manifest import Manifest
from attributary.workers.stream import snapshot_log
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


LIGHT = {"lightweight": "always", "lightweight_fraction": 0.5, "calibration_every": 2}


def _stream(seed: int, steps: int = 90, **options: Any) -> Stream:
    """Return three partitions' rows, some late, some ages late, one partition quiet for a while."""
    rng = random.Random(seed)
    stream = Stream(_card(), partitions=3, size=12, **options)
    stream.options = stream.options.model_copy(update={"lightweight": "never"})
    stream.again(1, 0)
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


@pytest.mark.parametrize(
    ("seed", "options"), [*((seed, {}) for seed in range(5)), (0, LIGHT), (1, LIGHT)]
)
def test_what_is_published_after_restarts_is_what_an_undisturbed_merge_publishes(
    seed: int, options: dict[str, Any]
) -> None:
    stream = _stream(seed, **options)
    rng = random.Random(seed)
    points = sorted({*rng.sample(range(len(stream.log)), 12), len(stream.log)})
    expected = _undisturbed(stream, points)
    assert sum(map(len, expected.values())) > 12
    compared = b"".join(b"".join(each) for each in expected.values()).count(b'"rows_light"')
    assert (compared > 5) == bool(options)
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


def _fed(stream: Stream, clock: int = 1000, **options: Any) -> MergePartition:
    core = stream.merge(**options)
    for offset, part in enumerate(stream.log):
        if isinstance(part, Manifest):
            core.add_manifest(part, clock + offset)
        else:
            core.add_sketch(*part, clock + offset, offset)
    return core


def _small(**fields: Any) -> Stream:
    """Two blocks and a half of rows five seconds apart, flushed three times."""
    stream = Stream(the_card(**fields), size=8)
    for index in range(20):
        stream.row(0, 5 * index, rows=2)
        if index % 7 == 6:
            stream.flush()
    stream.flush()
    return stream


def _records(core: MergePartition, position: int, owner: str = "o") -> list[SnapshotRecord]:
    return [r for group in snapshot(SnapshotWriter(0, owner), core, position) for r in group]


def test_a_crash_at_any_record_leaves_the_older_snapshot_or_the_newer_one_whole() -> None:
    stream = _small()
    half = len(stream.log) // 2
    reader = Reader(stream, stream.log, [])
    reader.read(half)
    _published(reader.core)
    reader.snapshot()
    first = len(reader.snapshots)
    reader.read(len(stream.log))
    _published(reader.core)
    reader.snapshot()
    positions = []
    for cut in range(first, len(reader.snapshots) + 1):
        _, resume, troubles = load(reader.snapshots[:cut], 0, stream.merge)
        assert resume is not None
        assert troubles == []
        positions.append(resume.position)
    assert positions == [half] * (len(positions) - 1) + [len(stream.log)]


def test_what_has_not_changed_is_not_written_again() -> None:
    stream = _small()
    core = _fed(stream)
    _published(core)
    writer = SnapshotWriter(0, "o")
    first = snapshot(writer, core, 10)
    writer.acknowledged()
    again = [r.key for group in snapshot(writer, core, 11) for r in group]
    assert (
        len([r for group in first for r in group]) >= 5
    )  # model, share, drift, books, directory, index
    assert [key.split(b"|")[0] for key in again] == [b"i"]


def test_a_part_beyond_one_record_is_cut_and_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_log, "CHUNK_BYTES", 100)
    stream = _small()
    core = _fed(stream)
    expected = _published(_fed(stream))
    assert _published(core) == expected
    records = _records(core, len(stream.log))
    assert max(len(r.value or b"") for r in records) <= 200
    _loaded, resume, troubles = load(records, 0, stream.merge)
    assert troubles == []
    assert resume is not None
    assert resume.position == len(stream.log)
    assert len(records) > 50


def _changed(records: list[SnapshotRecord], index: int, value: bytes) -> list[SnapshotRecord]:
    return [*records[:index], records[index]._replace(value=value), *records[index + 1 :]]


def test_a_damaged_foreign_or_newer_snapshot_is_reported_and_an_older_one_taken() -> None:
    stream = _small()
    core = _fed(stream)
    _published(core)
    old, new = _records(core, 5, "old"), _records(core, 9, "new")
    rng = random.Random(0)
    spoilt = []
    for index, record in enumerate(new):
        body = record.value or b""
        at = rng.randrange(len(body))
        flipped = body[:at] + bytes([body[at] ^ 0x55]) + body[at + 1 :]
        spoilt += [_changed(new, index, value) for value in (flipped, body[:-1], body + b"x", b"?")]
        spoilt.append(new[:index] + new[index + 1 :])
    index_record = new[-1].value or b""
    spoilt.append(_changed(new, len(new) - 1, index_record[:4] + b"\x02" + index_record[5:]))
    for records in spoilt:
        _, resume, troubles = load([*old, *records], 0, stream.merge)
        assert resume is not None
        # A flipped bit of the index may hit its position: any whole snapshot is a right one.
        assert resume.position == 5 or not troubles
        if resume.position == 5 and len(records) == len(new):
            assert len(troubles) == 1
        core, resume, _ = load(records, 0, stream.merge)
        assert resume is None or resume.position != 5
    assert "upgrade" in load([*old, *spoilt[-1]], 0, stream.merge)[2][0]
    _, resume, troubles = load([], 0, stream.merge)
    assert (resume, troubles) == (None, [])


def test_a_snapshot_whose_grid_is_not_known_is_not_taken() -> None:
    stream = _small()
    core = _fed(stream)
    _published(core)
    elsewhere = Stream(the_card())
    _, resume, troubles = load(_records(core, 5), 0, elsewhere.merge)
    assert resume is None
    assert "not in the grids topic" in troubles[0]


def test_an_old_owner_that_goes_on_takes_nothing_from_the_next() -> None:
    stream = _small()
    reader = Reader(stream, stream.log, [])
    reader.read(len(stream.log) // 2)
    _published(reader.core)
    reader.snapshot()
    zombie = reader.core, reader.writer, reader.position
    reader.restart("next")
    reader.read(len(stream.log))
    expected = _published(reader.core)
    assert expected
    reader.snapshot()
    for group in snapshot(zombie[1], zombie[0], zombie[2]):
        reader.snapshots += group
        _core, resume, troubles = load(reader.snapshots, 0, stream.merge)
        assert resume is not None
        assert (resume.position, troubles) == (len(stream.log), [])


def test_what_has_waited_for_long_is_held_by_the_snapshot_itself() -> None:
    """A model that has stopped: retention may take all of its sketches, its last windows stay open."""
    stream = _small()
    core, same = _fed(stream), _fed(stream)
    _published(core)
    _published(same)
    heartbeat = stream.cores[0].flush(20).manifests[0].model_copy(update={"models": {}})
    for each in (core, same):
        each.add_manifest(heartbeat, 1000 + 10**7)
        _published(each)
    loaded, resume, _troubles = load(_records(core, len(stream.log)), 0, stream.merge)
    assert resume is not None
    assert resume.complete
    assert resume.start == resume.position
    assert resume.finish() == 0
    for second in range(100, 200, 10):
        stream.row(0, second)
    after = stream.flush()
    for each in (loaded, same):
        feed(each, after, clock=2 * 10**7)
    assert _published(loaded) == _published(same) != []
    # It does not know where the windows' sketches lie, so it goes on to hold them.
    _again, resume, _ = load(_records(loaded, 2 * len(stream.log)), 0, stream.merge)
    assert resume is not None


def test_sketches_that_retention_has_taken_are_counted_as_lost() -> None:
    stream = _small()
    core = _fed(stream)
    _published(core)
    reader = Reader(stream, stream.log, _records(core, len(stream.log)))
    reader.restart("next", beginning=len(stream.log))
    assert reader.lost > 0
    lifetime = [
        m for m in reader.core.publish(now=1) if getattr(m.window, "kind", "") == "lifetime"
    ]
    assert lifetime == [] or lifetime[0].revision <= 40


def test_a_sketch_that_cannot_be_read_is_reported_and_its_block_is_a_gap() -> None:
    stream = Stream(size=8)
    for index in range(40):
        stream.row(0, index)
        if index % 8 == 7:
            stream.flush()
    spoilt = [
        part if isinstance(part, Manifest) or part[0].block != 8 else (part[0], b"PANE\x01 noise")
        for part in stream.log
    ]
    merge = stream.merge()
    feed(merge, spoilt)
    (newest,) = [m for m in merge.publish(now=1) if getattr(m.window, "kind", "") == "lifetime"]
    assert isinstance(newest, WindowAttribution)
    for index in range(40, 64):
        stream.row(0, index)
    feed(merge, stream.flush())
    (newest,) = [m for m in merge.publish(now=1) if getattr(m.window, "kind", "") == "lifetime"]
    assert isinstance(newest, WindowAttribution)
    accounting = newest.accounting
    assert (accounting.rows, accounting.rows_accepted, accounting.gaps) == (56, 64, 8)
    assert any("block 8" in trouble for trouble in merge.troubles)


def test_a_sketch_of_another_grid_than_its_header_says_is_left_out() -> None:
    stream, other = Stream(), Stream(the_card(samples=3), partitions=2)
    for each in (stream, other):
        for index in range(10):
            each.row(0, index)
        each.flush()
    header = next(part[0] for part in stream.log if not isinstance(part, Manifest))
    body = next(part[1] for part in other.log if not isinstance(part, Manifest))
    merge = stream.merge()
    merge.add_sketch(header, body, 0)
    assert list(merge.publish(now=1)) == []
    assert "grid" in merge.troubles[0]


def test_models_beyond_the_limit_are_left_out_and_hold_nobody_up() -> None:
    stream = Stream(size=8)
    stream.catalogue.add_card(b"n", stream.card.model_copy(update={"model": "n"}).to_bytes())
    for index in range(30):
        stream.row(0, index, model="mn"[index % 2])
    stream.flush()
    merge = stream.merge(max_models=1)
    feed(merge, stream.log)
    found = [m for m in merge.publish(now=1) if m.window.kind == "lifetime"]
    assert {message.model for message in found} == {"m"} or {m.model for m in found} == {"n"}
    assert merge.refused == 1
    assert len(merge.refusals) == 1
    assert sum(merge.gaps().values()) == 0


def test_windows_are_published_while_catching_up_and_said_once() -> None:
    stream = _small()
    at_once = {(m.model, m.window): m.revision for m in _fed(stream).publish(now=1)}
    merge = stream.merge()
    drained: list[Any] = []
    for part in stream.log:
        feed(merge, [part])
        drained += merge.publish_settled(now=1)
        assert merge.settled_windows == 0
    drained += merge.publish(now=1)
    attributions = [m for m in drained if isinstance(m, WindowAttribution)]
    assert {(m.model, m.window): m.revision for m in attributions}.items() <= at_once.items()
    assert len(attributions) == len({m.window for m in attributions})
    assert len(attributions) > 3


def test_a_lifetime_outlives_a_change_of_the_windows_and_the_log() -> None:
    stream = _small()
    core = _fed(stream)
    _published(core)
    stream.catalogue.add_card(b"m", the_card(windows=[Lifetime(), Tumbling(seconds=40)]).to_bytes())
    assert core.stale
    kept = len(stream.log) // 2
    again = stream.merge()
    feed(again, stream.log[kept:])
    again.inherit(core)
    assert not again.stale
    found = {m.window.kind: m for m in again.publish(now=1) if isinstance(m, WindowAttribution)}
    assert found["tumbling"].window.seconds == 40
    stream.row(0, 101)
    feed(again, stream.flush())
    newest = [m for m in again.publish(now=1) if m.window.kind == "lifetime"]
    assert isinstance(newest[0], WindowAttribution)
    accounting = newest[0].accounting
    assert (accounting.rows, accounting.rows_accepted, accounting.gaps) == (41, 41, 0)


def test_a_revision_outlives_a_new_layout_and_a_restart() -> None:
    stream = Stream()
    for second in range(20):
        stream.row(0, second)
    stream.flush()
    wider = the_card().model_copy(update={"features": [*the_card().features, Feature(name="c")]})
    stream.catalogue.add_card(b"m", wider.to_bytes())
    for second in range(20, 36):
        stream.row(0, second)
    stream.flush()
    reader = Reader(stream, stream.log, [])
    reader.read(len(stream.log))
    reader.snapshot()
    reader.restart("second")
    stream.row(0, 36)
    stream.flush()
    reader.read(len(stream.log))
    (found,) = (m for m in reader.core.publish(now=7) if m.window.kind == "lifetime")
    assert isinstance(found, WindowAttribution)
    assert (found.accounting.rows, found.revision) == (5, 32)
