"""The lightweight mode of ingest: which rows are sketched, and that all are counted as ever."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from streams import NOW, arrow, card, grid, record, some_rows

from attributary.schemas.manifest import Manifest
from attributary.schemas.sketch import SketchHeader
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.maths.sample import hash_ids, in_fraction
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.decode import Record
from attributary.workers.stream.ingest import PartitionIngest
from attributary.workers.stream.lightweight import FULL, Counting, Tally, Variants, counting
from attributary.workers.stream.options import IngestOptions
from attributary.workers.stream.row_hashes import row_hashes

CARD = card("a", "b")
Sent = tuple[dict[tuple[Any, ...], tuple[SketchHeader, bytes]], dict[int, Manifest]]


def _options(**fields: Any) -> IngestOptions:
    return IngestOptions(
        **{"lightweight": "always", "calibration_every": 0, "block_offsets": 64, **fields}
    )


def _catalogue() -> ControlCatalogue:
    catalogue = ControlCatalogue()
    catalogue.add_card(b"m", CARD.to_bytes())
    catalogue.add_grid(grid(CARD, some_rows(["a", "b"])).to_bytes())
    return catalogue


def _ingest(
    records: list[Record], options: IngestOptions, *, polls: int = 1, end_offset: int = 0
) -> Sent:
    """Return the last sketches by (block, pane, twin) and the last manifests by block."""
    core = PartitionIngest("rows", 3, 0, _catalogue(), options)
    sketches, manifests = {}, {}
    rng = random.Random(polls)
    cuts = sorted(rng.sample(range(1, len(records)), polls - 1))
    for start, stop in zip([0, *cuts], [*cuts, len(records)], strict=True):
        core.add(records[start:stop], 0.0, end_offset=end_offset)
        flush = core.flush(0)
        for header, body in flush.sketches:
            sketches[header.block, header.pane, header.twin] = header, body
        told = [manifest.model_copy(update={"acknowledged": 0}) for manifest in flush.manifests]
        manifests.update({manifest.block: manifest for manifest in told})
        core.acknowledged(flush)
    return sketches, manifests


def _records(count: int, *, bad: bool = True) -> list[Record]:
    """Return records of one row or some, with and without ids, in JSON and Arrow, and a few that are none."""
    rng = random.Random(count)
    found = []
    for offset in range(count):
        rows: list[Any] = []
        for index in range(rng.choice([1, 1, 30])):
            row = {
                "features": {"a": rng.gauss(0, 1), "b": rng.gauss(0, 1)},
                "outputs": rng.gauss(0, 1),
                "time": (NOW + 40 * offset - rng.choice([0, 30_000])) / 1000,
                "model": "m",
            }
            if rng.random() < 0.3:
                row["id"] = f"{offset}-{index}"
            if bad and rng.random() < 0.1:
                row["features"] = {"a": "text"}
            rows.append(row)
        value = json.dumps(rows).encode()
        if rng.random() < 0.2:
            size = rng.randint(1, 200)
            columns: dict[str, Any] = {n: [rng.gauss(0, 1) for _ in range(size)] for n in "aby"}
            columns["_id"] = [rng.choice([None, f"{offset}-{i}"]) for i in range(size)]
            columns["_time"] = [NOW / 1000 + offset / 25] * (size - 1) + [NOW / 1000 + 9000]
            value = arrow(columns)
        found.append(record(value, offset, timestamp=NOW + 40 * offset))
    return found


def _books(manifests: dict[int, Manifest]) -> Any:
    return {
        block: [(m.models[name].accepted, m.models[name].rejected) for name in sorted(m.models)]
        for block, m in manifests.items()
    }


def test_the_mode_is_off_on_or_follows_the_lag_when_a_block_begins() -> None:
    assert counting(IngestOptions(), 0, 10**9) == FULL
    behind = _options(lightweight="behind", lightweight_above_lag=1000, lightweight_fraction=0.4)
    assert counting(behind, 64, 1000) == FULL
    assert counting(behind, 64, 1001) == Counting(0.4)
    assert counting(_options(), 64, 0) == Counting(0.25)


def test_every_so_many_th_block_is_sketched_both_ways_whoever_counts_it() -> None:
    options = _options(calibration_every=4)
    chosen = [counting(options, block, 0) for block in range(0, 64 * 8, 64)]
    both, light = Counting(1.0, 0.25), Counting(0.25)
    assert chosen == [both, light, light, light] * 2
    assert counting(options, 4 * 64 + 17, 0) == both  # one that a time or a size began
    waiting = _options(calibration_every=4, lightweight="behind")
    assert [counting(waiting, block, 0) for block in (0, 64)] == [both, FULL]


@pytest.mark.parametrize("fraction", [0, 0.1, 0.26, 1, -1, float("nan")])
def test_other_fractions_are_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match=r"expected one of 0\.2, 0\.25"):
        IngestOptions(lightweight_fraction=fraction)


def test_every_row_is_checked_and_counted_and_a_fraction_sketched() -> None:
    records = _records(200)
    full, books = _ingest(records, IngestOptions(block_offsets=64))
    light, light_books = _ingest(records, _options())
    assert _books(light_books) == _books(books)
    assert {place[:2] for place in light} == {place[:2] for place in full}
    kept = total = 0
    for place, (header, body) in light.items():
        sketch = PaneSketch.from_bytes(body)
        assert (header.rows, header.fraction) == (full[place][0].rows, 0.25)
        assert header.rows - header.thinned == sketch.rows
        kept, total = kept + sketch.rows, total + header.rows
    assert total > 3000
    assert abs(kept / total - 0.25) < 5 * (0.25 * 0.75 / total) ** 0.5
    thinned = sum(manifest.models["m"].thinned for manifest in light_books.values())
    assert thinned == total - kept
    assert {manifest.models["m"].fraction for manifest in light_books.values()} == {0.25}
    assert {header.fraction for header, _ in full.values()} == {1.0}


def test_the_rows_that_are_kept_are_those_of_small_hashes_by_id_and_else_by_place() -> None:
    rows = [
        {"features": {"a": i, "b": 0}, "outputs": i, "model": "m", **({"id": i} if i % 2 else {})}
        for i in range(60)
    ]
    table = arrow(
        {"a": range(60), "b": [0] * 60, "y": range(60), "_id": [f"t{i}" for i in range(60)]}
    )
    records = [record(json.dumps(rows).encode(), 7), record(table, 8)]
    ((_, (header, body)),) = _ingest(records, _options(lightweight_fraction=0.5))[0].items()
    hashes = row_hashes("rows/3", [7] * 60, range(60), None)
    hashes[1::2] = hash_ids([str(i) for i in range(1, 60, 2)])
    tabled = hash_ids([f"t{i}" for i in range(60)])
    kept = np.concatenate([np.flatnonzero(in_fraction(h, 0.5)) for h in (hashes, tabled)])
    sketch = PaneSketch.from_bytes(body)
    assert (header.rows, header.thinned) == (120, 120 - kept.size)
    means, weights, _ = sketch.x_digests.centroids
    used = weights[0] > 0
    assert means[0][used] @ weights[0][used] == pytest.approx(kept.sum())


def test_hashes_of_places_are_uniform_and_differ_by_topic_partition_and_position() -> None:
    offsets, indices = np.meshgrid(np.arange(500), np.arange(200), indexing="ij")
    found = [row_hashes(p, offsets.ravel(), indices.ravel(), None) for p in ("rows/0", "rows/1")]
    both = np.concatenate(found)
    assert np.unique(both).size == both.size
    for hashes in found:
        counts = np.bincount((hashes >> np.uint64(56)).astype(np.int64), minlength=256)
        statistic = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
        assert 175 < statistic < 350  # chi-squared of 255 degrees, far tails


@pytest.mark.parametrize("calibration_every", [0, 2])
def test_light_sketches_do_not_depend_on_how_records_were_polled(calibration_every: int) -> None:
    records = _records(150)
    options = _options(calibration_every=calibration_every)

    def final(polls: int) -> Any:
        sketches, manifests = _ingest(records, options, polls=polls)
        return {place: sent for place, sent in sketches.items() if sent[0].final}, manifests

    whole = final(1)
    assert len(whole[0]) > 3
    assert final(9) == whole
    assert final(60) == whole


def test_a_calibration_block_is_the_full_one_and_its_twin_the_light_one() -> None:
    records = _records(130)
    full, _ = _ingest(records, IngestOptions(block_offsets=64))
    light, _ = _ingest(records, _options())
    both, books = _ingest(records, _options(calibration_every=2))
    for (block, pane, twin), (header, body) in both.items():
        if block == 64:
            assert not twin
            assert body == light[block, pane, False][1]
        elif twin:
            assert body == light[block, pane, False][1]
            assert (header.fraction, header.rows) == (0.25, full[block, pane, False][0].rows)
            assert header.thinned == light[block, pane, False][0].thinned
        else:
            assert body == full[block, pane, False][1]
            assert (header.fraction, header.thinned) == (1.0, 0)
    assert sum(twin for _, _, twin in both) == sum(block != 64 for block, _, _ in full)
    assert [books[block].models["m"].calibration for block in (0, 64, 128)] == [0.25, None, 0.25]


def test_the_lag_decides_for_each_block_when_it_begins() -> None:
    records = _records(200, bad=False)
    options = _options(lightweight="behind", lightweight_above_lag=100)
    _, books = _ingest(records, options, end_offset=200)
    assert [books[block].models["m"].fraction for block in sorted(books)] == [0.25, 0.25, 1, 1]


def test_a_pane_without_a_kept_row_is_sent_all_the_same() -> None:
    row_id = next(i for i in range(99) if not in_fraction(hash_ids([str(i)]), 0.25)[0])
    row = {"model": "m", "features": {"a": 1, "b": 1}, "outputs": 1, "id": row_id}
    sketches, books = _ingest([record(json.dumps(row).encode(), 0)], _options())
    ((header, body),) = sketches.values()
    assert (header.rows, header.thinned, PaneSketch.from_bytes(body).rows) == (1, 1, 0)
    assert books[0].models["m"].event_time == NOW


def test_of_variants_the_one_of_more_rows_holds_and_of_equals_the_larger_fraction() -> None:
    variants = Variants()
    variants.add(0.25, {0: 5}, final=False)
    variants.add(1.0, {0: 3}, final=False)
    assert variants.chosen == 0.25
    variants.add(1.0, {0: 5}, final=False)
    assert variants.chosen == 1.0
    variants.add(0.25, {0: 6, 10: 1}, final=False)
    assert variants.chosen == 0.25
    variants.add(1.0, {0: 7}, final=False)  # no window may lose a row: pane 10
    assert variants.chosen == 0.25
    variants.add(1.0, {10: 1}, final=True)
    assert variants.chosen == 1.0


def test_a_final_variant_gives_way_to_more_rows_only() -> None:
    variants = Variants()
    variants.add(0.25, {0: 5}, final=True)
    variants.add(1.0, {0: 5}, final=True)
    assert variants.chosen == 0.25
    variants.add(0.5, {0: 6}, final=True)
    assert variants.chosen == 0.5


def test_a_tally_tells_rows_and_their_effective_share() -> None:
    tally = Tally()
    assert (tally.total, tally.rows_thinned, tally.fractions, tally.effective_share) == (
        0,
        0,
        [],
        1,
    )
    header = SketchHeader("m", "rows", 0, 0, 0, 0, 0, 100, fraction=0.25, thinned=75)
    tally.add(header)
    assert tally.effective_share == 1
    tally.add(SketchHeader("m", "rows", 0, 64, 0, 0, 0, 100))
    assert (tally.total, tally.rows_thinned, tally.fractions) == (200, 75, [0.25, 1.0])
    weights = np.array([4.0] * 25 + [1.0] * 100)
    kish = weights.sum() ** 2 / (weights**2).sum()
    assert tally.effective_share == pytest.approx(kish / 125)
