"""One source partition: blocks, what waits, what is refused, flushes, and independence of polling."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from streams import NOW, arrow, card, grid, record, row_record, some_rows

from attributary.schemas.card import Feature, ModelCard
from attributary.schemas.grid import GridRecord
from attributary.schemas.manifest import Manifest, ModelCount
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.decode import Record
from attributary.workers.stream.ingest import Flush, PartitionIngest
from attributary.workers.stream.options import IngestOptions

OPTIONS = IngestOptions(block_offsets=16, grid_rows=10, grid_wait_seconds=2, max_models=3)
CARD = card("a", "b")


def _catalogue(*cards: ModelCard, grids: tuple[GridRecord, ...] = ()) -> ControlCatalogue:
    made = ControlCatalogue()
    for each in cards:
        made.add_card(each.model.encode(), each.to_bytes())
    for found in grids:
        made.add_grid(found.to_bytes())
    return made


def _ready(of: ModelCard = CARD) -> ControlCatalogue:
    names = [feature.name for feature in of.features]
    return _catalogue(of, grids=(grid(of, some_rows(names)),))


def _core(
    catalogue: ControlCatalogue, position: int = 0, options: IngestOptions = OPTIONS
) -> PartitionIngest:
    return PartitionIngest("rows", 0, position, catalogue, options)


def _good(offset: int, model: str = "m", **fields: Any) -> Record:
    row = {"model": model, "features": {"a": offset, "b": -offset}, "outputs": offset / 2, **fields}
    return record(json.dumps(row).encode(), offset, timestamp=fields.pop("timestamp", NOW + offset))


def _count(flush: Flush, model: str = "m") -> ModelCount:
    (manifest,) = flush.manifests
    return manifest.models[model]


def _count_of(manifest: Manifest) -> ModelCount:
    return manifest.models["m"]


def _blocks(flush: Flush) -> list[tuple[int, int, bool]]:
    return [(m.block, m.upto, m.sealed) for m in flush.manifests]


def test_a_block_begins_at_every_multiple_of_its_size_and_is_named_by_its_first_offset() -> None:
    core = _core(_ready(), position=5)
    core.add([_good(offset) for offset in (5, 9, 15, 16, 40)], now=0)
    flush = core.flush(41)
    assert _blocks(flush) == [(5, 16, True), (16, 40, True), (40, 41, False)]
    assert [m.previous for m in flush.manifests] == [None, 5, 16]
    assert flush.commit == 40


def test_a_block_begins_where_the_brokers_clock_enters_a_later_bucket() -> None:
    core = _core(_ready())
    times = [0, 599_999, 600_000, 599_999, 1_200_000]
    core.add([_good(i, timestamp=time) for i, time in enumerate(times)], now=0)
    assert _blocks(core.flush(5)) == [(0, 2, True), (2, 4, True), (4, 5, False)]


def test_a_flush_is_repeated_until_it_is_acknowledged_and_then_only_what_is_new() -> None:
    core = _core(_ready())
    core.add([_good(0), record(b"", 1)], now=0)
    first = core.flush(2)
    assert [header.rows for header, _ in first.sketches] == [1]
    assert len(first.rejections) == 1
    core.add([_good(2)], now=0)
    second = core.flush(3)
    assert [(h.rows, h.upto) for h, _ in second.sketches] == [(2, 3)]
    assert second.rejections == first.rejections
    core.add([_good(3), record(b"", 4)], now=0)
    core.acknowledged(second)
    third = core.flush(5)
    assert [h.rows for h, _ in third.sketches] == [3]
    assert third.accepted == Counter(m=1)
    assert [r.letter.offset for r in third.rejections] == [4]
    core.acknowledged(third)
    idle = core.flush(5)
    assert (idle.sketches, idle.rejections) == ([], [])
    assert _blocks(idle) == [(0, 5, False)]  # the heartbeat


def test_the_final_sketches_of_a_block_are_sent_once_more_under_their_own_key() -> None:
    core = _core(_ready())
    core.add([_good(0)], now=0)
    before = core.flush(1)
    core.acknowledged(before)
    core.add([_good(16)], now=0)
    flush = core.flush(17)
    headers = [header for header, _ in flush.sketches]
    assert [(h.block, h.final, h.upto) for h in headers] == [(0, True, 16), (16, False, 17)]
    assert headers[0].key != before.sketches[0][0].key
    assert flush.sketches[0][1] == before.sketches[0][1]
    assert flush.accepted == Counter(m=1)
    core.acknowledged(flush)
    assert _blocks(core.flush(17)) == [(16, 17, False)]


def test_an_owner_says_how_far_everything_is_acknowledged() -> None:
    core = _core(_ready(), position=32)
    assert [m.acknowledged for m in core.flush(40).manifests] == [32]
    core.add([_good(offset) for offset in (32, 48, 64)], now=0)
    flush = core.flush(65)
    assert [m.acknowledged for m in flush.manifests] == [32, 32, 32]
    core.acknowledged(flush)
    assert [m.acknowledged for m in core.flush(65).manifests] == [64]


def test_a_hole_in_a_log_that_begins_before_it_is_covered() -> None:
    core = _core(_ready(), position=3)
    assert core.add([_good(3), _good(4)], now=0) == 0
    assert core.add([_good(7)], now=0, log_start=5) == 0  # 5 and 6: a transaction's markers
    assert _blocks(core.flush(8)) == [(3, 8, False)]
    assert core.skip(9, log_start=8) == 0  # one more at the log's end
    assert core.expected == 9
    (manifest,) = core.flush(9).manifests
    assert (manifest.upto, manifest.lost) == (9, 0)
    assert core.skip(6, log_start=0) == 0
    assert core.expected == 9


def test_what_the_log_lost_before_it_was_read_ends_the_block_and_is_covered_by_none() -> None:
    core = _core(_ready(), position=3)
    core.add([_good(3), _good(4)], now=0)
    assert core.add([_good(9), _good(10)], now=0, log_start=8) == 3
    flush = core.flush(11)
    assert _blocks(flush) == [(3, 5, True), (9, 11, False)]
    assert [(m.previous, m.lost) for m in flush.manifests] == [(None, 0), (None, 4)]
    assert sum(_count_of(m).rows_accepted for m in flush.manifests) == 4
    assert flush.commit == 9
    core.acknowledged(flush)
    assert [m.acknowledged for m in core.flush(11).manifests] == [9]


def test_a_log_that_is_emptied_before_it_was_read_ends_the_block_without_a_record() -> None:
    core = _core(_ready(), position=3)
    core.add([_good(3)], now=0)
    assert core.skip(10, log_start=10) == 6
    flush = core.flush(10)
    assert (_blocks(flush), flush.commit) == ([(3, 4, True)], 10)
    core.acknowledged(flush)
    (heartbeat,) = core.flush(10).manifests
    assert (heartbeat.block, heartbeat.upto, heartbeat.acknowledged) == (10, 10, 10)
    assert core.skip(15, log_start=15) == 5  # and again
    core.add([_good(15)], now=0)
    (manifest,) = core.flush(16).manifests
    assert (manifest.block, manifest.upto, manifest.lost) == (15, 16, 11)


def test_an_owner_that_begins_behind_what_was_committed_says_what_is_lost() -> None:
    core = PartitionIngest("rows", 0, 20, _ready(), OPTIONS, lost=4)
    core.add([_good(20)], now=0)
    assert [m.lost for m in core.flush(21).manifests] == [4]


def test_without_a_record_a_flush_is_a_heartbeat() -> None:
    flush = _core(_ready(), position=7).flush(7)
    (manifest,) = flush.manifests
    assert (manifest.block, manifest.upto, manifest.end_offset) == (7, 7, 7)
    assert (flush.commit, flush.sketches) == (None, [])


def test_rows_wait_for_a_grid_and_hold_the_commit_back() -> None:
    catalogue = _catalogue(CARD)
    core = _core(catalogue)
    core.add([_good(offset) for offset in range(5)], now=10.0)
    core.add([_good(offset) for offset in (16, 17)], now=10.5)
    assert core.waiting_rows == 7
    assert core.proposals(now=11.9) == []
    flush = core.flush(18)
    assert flush.commit == 0
    assert _blocks(flush) == [(0, 16, False), (16, 18, False)]
    assert [m.models["m"].waiting for m in flush.manifests] == [5, 2]
    core.acknowledged(flush)
    (proposed,) = core.proposals(now=12.0)
    assert (proposed.epoch, proposed.rows) == (0, 7)
    catalogue.add_grid(proposed.to_bytes())
    core.count(now=12.1)
    flush = core.flush(18)
    assert core.waiting_rows == 0
    assert core.proposals(now=20.0) == []
    assert flush.commit == 16
    assert [m.models["m"].rows_accepted for m in flush.manifests] == [5, 2]


def test_enough_rows_or_a_baseline_propose_a_grid_at_once() -> None:
    core = _core(_catalogue(CARD))
    core.add([_good(offset) for offset in range(12)], now=0)
    (proposed,) = core.proposals(now=0)
    assert proposed.rows == 10  # of those that wait, the first
    edges = [[0.0, 1.0]]
    base = {"x_edges": edges * 2, "y_edges": edges, "rows": 5}
    core = _core(_catalogue(card("a", "b", baseline=base)))
    core.add([_good(0)], now=0)
    assert [g.x_edges for g in core.proposals(now=0)] == [edges * 2]


def test_a_message_of_many_rows_is_not_split_for_the_grid() -> None:
    rows = [{"model": "m", "features": {"a": i, "b": i}, "outputs": i} for i in range(30)]
    core = _core(_catalogue(CARD))
    core.add([_good(0), record(json.dumps(rows).encode(), 1), _good(2)], now=0)
    (proposed,) = core.proposals(now=0)
    assert proposed.rows == 31


def test_unusable_first_rows_are_refused_and_those_behind_them_make_the_grid() -> None:
    catalogue = _catalogue(CARD)
    core = _core(catalogue)
    bad = [row_record(offset, {"a": "text"}) for offset in range(10)]
    core.add([*bad, *(_good(offset) for offset in range(10, 14))], now=0)
    assert core.proposals(now=5) == []
    (proposed,) = core.proposals(now=5)
    assert proposed.rows == 4
    catalogue.add_grid(proposed.to_bytes())
    core.count(now=5)
    flush = core.flush(14)
    assert dict(_count(flush).rejected) == {"wrong_type": 10}
    assert _count(flush).rows_accepted == 4
    assert [r.letter.offset for r in flush.rejections] == list(range(10))


def test_a_model_that_is_too_wide_is_refused_row_by_row_and_the_stream_goes_on() -> None:
    core = _core(_ready())
    wide = {"model": "w", "features": {f"f{i}": 1 for i in range(2001)}, "outputs": 1}
    core.add([record(json.dumps([wide] * 3).encode(), 0), _good(1)], now=0)
    assert core.proposals(now=5) == []
    flush = core.flush(2)
    (manifest,) = flush.manifests
    assert dict(manifest.models["w"].rejected) == {"too_large": 3}
    assert manifest.models["m"].rows_accepted == 1
    (rejection,) = flush.rejections
    assert (rejection.rows, rejection.letter.rows) == (3, (0, 1, 2))


def test_too_many_models_in_a_block_are_refused_by_message() -> None:
    core = _core(_ready())
    rows = [{"model": f"m{i}", "features": {"a": 1}, "outputs": 1} for i in range(5)]
    data = arrow({"a": [1.0, 2.0], "y": [1.0, 2.0]}, model="another")
    core.add([record(b"", 0), record(json.dumps(rows).encode(), 1), record(data, 2)], now=0)
    core.add([record(json.dumps(rows[0]).encode(), 3)], now=0)  # a model that is known goes on
    (manifest,) = core.flush(4).manifests
    assert {"m0", "m1", "m2", ""} == manifest.models.keys()
    assert manifest.models["m0"].waiting == 2
    assert dict(manifest.models[""].rejected) == {"empty": 1, "too_many_models": 4}
    letters = {r.letter.offset: r.letter.rows for r in core.flush(4).rejections}
    assert letters == {0: (), 1: (3, 4), 2: (0, 1)}


def test_a_strict_card_refuses_rows_that_count_under_a_lenient_one() -> None:
    catalogue = _ready(card("a", "b", strict=True))
    core = _core(catalogue)
    rows = [
        row_record(0, {"a": 1, "b": 2}),
        row_record(1, {"a": 1}),
        row_record(2, {"a": 1, "b": 2, "c": 3}),
    ]
    core.add(rows, now=0)
    count = _count(core.flush(3))
    assert (count.rows_accepted, dict(count.rejected)) == (
        1,
        {"features_missing": 1, "features_unknown": 1},
    )
    catalogue.add_card(b"m", CARD.to_bytes())
    core.add([row_record(16, {"a": 1})], now=0)
    assert core.flush(17).manifests[-1].models["m"].rows_accepted == 1


def test_a_card_with_new_columns_holds_from_the_next_block_on() -> None:
    catalogue = _ready()
    core = _core(catalogue)
    core.add([_good(0)], now=0)
    changed = card("a", "b", Feature(name="k", kind="categorical", levels=["x"]))
    catalogue.add_card(b"m", changed.to_bytes())
    core.add([_good(1), row_record(16, {"a": 1, "b": 2, "k": "x"})], now=0)
    flush = core.flush(17)
    assert [m.models["m"].rows_accepted for m in flush.manifests] == [2, 0]
    assert [m.models["m"].waiting for m in flush.manifests] == [0, 1]
    (proposed,) = core.proposals(now=5)
    assert (proposed.epoch, proposed.layout, len(proposed.columns)) == (1, 1, 4)
    catalogue.add_grid(proposed.to_bytes())
    core.count(now=5)
    assert {(h.block, h.epoch) for h, _ in core.flush(17).sketches} == {(0, 0), (16, 1)}


def test_a_block_that_left_its_grid_proposes_the_next_once() -> None:
    catalogue = _ready()
    core = _core(catalogue, options=IngestOptions(block_offsets=100, grid_rows=10))
    far = [row_record(i, {"a": 50 + i % 90, "b": i}, i) for i in range(101)]
    core.add(far, now=0)
    (proposed,) = core.proposals(now=0)
    assert (proposed.epoch, proposed.layout) == (1, 0)
    assert core.proposals(now=1) == []


def test_panes_are_event_time_before_1970_too() -> None:
    core = _core(_ready())
    core.add([_good(0, time=-0.001), _good(1, time=-10.0), _good(2, time=0)], now=0)
    flush = core.flush(3)
    assert _count(flush).accepted == {-10_000: 2, 0: 1}
    assert _count(flush).event_time == 0
    assert Manifest.from_bytes(flush.manifests[0].to_bytes()) == flush.manifests[0]


def _mixed(rng: random.Random, count: int) -> list[Record]:
    """Records of all formats with bad ones among them, several panes, more rows than are reduced at once."""
    found = []
    for offset in range(count):
        rows = [
            {
                "model": "m",
                "features": {"a": rng.gauss(0, 1), "b": rng.choice([None, rng.random()])},
                "outputs": rng.choice([rng.gauss(0, 1)] * 9 + [[1, 2]]),
                "time": (NOW + offset * 40 - rng.choice([0, 0, 30_000])) / 1000,
                "weight": rng.choice([1, 1, 2.5]),
            }
            for _ in range(rng.choice([1, 1, 1, 30]))
        ]
        value = json.dumps(rows if len(rows) > 1 else rows[0]).encode()
        if rng.random() < 0.1:
            size = rng.randint(1, 200)
            columns = {name: [rng.gauss(0, 1) for _ in range(size)] for name in ("a", "b", "y")}
            value = arrow(columns)
        found.append(
            record(rng.choice([value] * 20 + [b"noise"]), offset, timestamp=NOW + 40 * offset)
        )
    return found


@pytest.mark.parametrize("seed", range(4))
def test_final_sketches_do_not_depend_on_how_records_were_polled_or_flushed(seed: int) -> None:
    rng = random.Random(seed)
    records = _mixed(rng, 300)
    catalogue = _ready(card("a", "b", samples=7))
    options = IngestOptions(block_offsets=128)

    def final(cuts: list[int], flushes: float) -> tuple[dict[Any, bytes], list[Manifest], set[Any]]:
        core = _core(catalogue, options=options)
        sketches: dict[Any, bytes] = {}
        manifests: dict[int, Manifest] = {}
        letters = set()
        for start, stop in zip([0, *cuts], [*cuts, len(records)], strict=True):
            core.add(records[start:stop], now=0)
            if rng.random() < flushes or stop == len(records):
                flush = core.flush(0)
                for header, body in flush.sketches:
                    sketches[header.block, header.pane, header.final] = body
                manifests.update({m.block: m for m in flush.manifests if m.sealed})
                letters |= {(r.letter, r.rows) for r in flush.rejections}
                core.acknowledged(flush)
        kept = [m.model_copy(update={"acknowledged": 0}) for m in manifests.values()]
        return {k: b for k, b in sketches.items() if k[2]}, kept, letters

    whole = final([], 1.0)
    assert len(whole[0]) > 4
    assert sum(PaneSketch.from_bytes(body).rows for body in whole[0].values()) > 1000
    for _ in range(3):
        cuts = sorted(rng.sample(range(1, len(records)), rng.choice([3, 40, 299])))
        assert final(cuts, rng.choice([0.1, 0.9])) == whole
