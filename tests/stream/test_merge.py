"""Sketches to windows: exact counts whatever comes when, lateness, watermarks, cards that change."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from merge_stream import START, Part, Stream, feed, the_card

from attributary.schemas.attribution import WindowAttribution, WindowDrift
from attributary.schemas.card import Decayed, Feature, Hopping, Lifetime, Tumbling
from attributary.schemas.manifest import Manifest
from attributary.workers.maths.cir import cir
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.merge import MergePartition
from attributary.workers.stream.options import MergeOptions

# What a message says of the moment it was published at; its revision, which counts its rows, is compared.
_MOMENT = {"computed_at": True, "watermark": True, "accounting": True, "window": {"end"}}


def windows(merge: MergePartition, kind: str | None = None) -> dict[Any, WindowAttribution]:
    """Publish, and return the attributions by the seconds that their window starts at."""
    found = {}
    for message in merge.publish(now=1):
        if isinstance(message, WindowAttribution) and kind in (None, message.window.kind):
            name = message.window.kind
            if name in ("tumbling", "hopping"):
                found[(message.window.start - START) // 1000] = message
            else:
                found[name] = message
    return found


def rows_of(found: dict[Any, WindowAttribution]) -> dict[Any, int]:
    return {name: message.accounting.rows for name, message in found.items()}


def test_windows_close_with_the_watermark_and_the_lifetime_goes_on() -> None:
    stream = Stream()
    merge = stream.merge()
    for second in range(0, 25, 5):
        stream.row(0, second, rows=3)
    feed(merge, stream.flush())
    found = windows(merge)
    assert rows_of(found) == {0: 12, "lifetime": 15}
    assert found[0].final
    assert not found["lifetime"].final
    assert found["lifetime"].window.start == START
    assert windows(merge) == {}  # nothing new
    stream.row(0, 30)
    feed(merge, stream.flush())
    assert rows_of(windows(merge)) == {"lifetime": 16}
    stream.row(0, 45)
    feed(merge, stream.flush())
    assert rows_of(windows(merge)) == {20: 4, "lifetime": 17}


def test_scores_are_those_of_the_batch() -> None:
    stream = Stream(partitions=2, size=64)
    merge = stream.merge()
    for index in range(100):
        stream.row(index % 2, index * 0.1, rows=30)
        if index % 17 == 0:
            feed(merge, stream.flush())
            windows(merge)
    feed(merge, stream.flush())
    message = windows(merge)["lifetime"]
    rows = np.array(stream.rows)
    batch = cir(rows[:, :2], rows[:, 2:])
    for index, name in enumerate("ab"):
        feature = next(f for f in message.features if f.name == name)
        assert feature.score == pytest.approx(batch.score[0, index], abs=1e-3)
        assert feature.stderr == pytest.approx(batch.stderr[0, index], rel=0.02)
        assert feature.missing == 0


def test_late_rows_revise_a_window_within_the_allowed_lateness_and_then_only_the_lifetime() -> None:
    stream = Stream()
    merge = stream.merge()
    stream.row(0, 5, rows=2)
    stream.row(0, 25)
    feed(merge, stream.flush())
    assert rows_of(windows(merge)) == {0: 2, "lifetime": 3}
    stream.row(0, 6)  # the watermark stands at 25, the window's end and lateness at 30
    feed(merge, stream.flush())
    found = windows(merge)
    assert rows_of(found) == {0: 3, "lifetime": 4}
    assert found[0].revision == 3
    stream.row(0, 31)
    feed(merge, stream.flush())
    windows(merge)
    stream.row(0, 7)
    feed(merge, stream.flush())
    assert rows_of(windows(merge)) == {"lifetime": 6}
    for second in range(40, 60):
        stream.row(0, second)
    feed(merge, stream.flush())
    assert windows(merge)["lifetime"].accounting.rows_late == 1


def test_windows_that_the_watermark_passes_inside_one_block_are_published() -> None:
    """A backlog is read faster than it is published: hours of event time in one open block."""
    stream = Stream(size=1000)
    merge = stream.merge()
    for second in range(0, 400, 5):
        stream.row(0, second)
        if second % 100 == 95:
            feed(merge, stream.flush())
    found = rows_of(windows(merge, "tumbling"))
    assert found == {start: 4 for start in range(0, 380, 20)}  # noqa: C420


def test_results_do_not_depend_on_when_merge_publishes() -> None:
    stream = Stream(partitions=2)
    rng = random.Random(3)
    for index in range(120):
        stream.row(index % 2, index + rng.choice([0, 0, 0, -15, -60]), rows=2)
        if rng.random() < 0.3:
            stream.flush(rng.randrange(2))
    stream.flush()

    def final(publish: Callable[[int], bool]) -> dict[Any, Any]:
        merge = stream.merge()
        newest: dict[Any, Any] = {}
        for index, part in enumerate(stream.log):
            feed(merge, [part])
            if publish(index):
                newest.update(windows(merge))
        newest.update(windows(merge))
        return {name: message.model_dump_json(exclude=_MOMENT) for name, message in newest.items()}

    at_the_end = final(lambda index: False)
    assert len(at_the_end) > 5
    assert final(lambda index: True) == at_the_end
    assert final(lambda index: index % 7 == 3) == at_the_end
    assert final(lambda index: rng.random() < 0.1) == at_the_end


def _interleavings(log: Sequence[Part], seed: int) -> list[Part]:
    """Return the same records with the sources' turns shuffled; each source keeps its order."""
    rng = random.Random(seed)
    queues: dict[int, list[Part]] = {}
    for part in log:
        source = part.partition if isinstance(part, Manifest) else part[0].partition
        queues.setdefault(source, []).append(part)
    found = []
    while queues:
        source = rng.choice(sorted(queues))
        found.append(queues[source].pop(0))
        if not queues[source]:
            del queues[source]
    return found


def test_results_are_bit_identical_whatever_the_turns_of_the_sources_and_after_restarts() -> None:
    of = the_card(
        windows=[
            Tumbling(seconds=20),
            Hopping(seconds=40, hop_seconds=10),
            Lifetime(),
            Decayed(half_life_seconds=30),
        ],
        samples=5,
    )
    stream = Stream(of, partitions=3)
    rng = random.Random(1)
    for index in range(150):
        stream.row(index % 3, index / 2 - rng.random(), rows=rng.choice([1, 5]))
        if rng.random() < 0.2:
            stream.flush(rng.randrange(3))
    stream.flush()
    results = []
    for seed in range(4):
        log = _interleavings(stream.log, seed)
        merge = stream.merge()
        newest: dict[Any, str] = {}
        restart = rng.randrange(len(log))
        for index, part in enumerate(log):
            feed(merge, [part])
            if index == restart:
                merge = stream.merge()
                feed(merge, log[: index + 1])
            if rng.random() < 0.05 * seed or index == len(log) - 1:
                for message in merge.publish(now=index):
                    if isinstance(message, WindowAttribution):
                        window = message.window
                        at = window.start if message.final else None
                        newest[window.kind, at] = message.model_dump_json(exclude=_MOMENT)
        results.append(newest)
        last = merge.publish(now=0)
        assert list(last) == []
    assert {kind for kind, _ in results[0]} == {"tumbling", "hopping", "lifetime", "decayed"}
    assert results[1:] == results[:1] * 3


def test_a_sketch_whose_grid_is_not_known_yet_waits_and_so_does_its_block() -> None:
    stream = Stream()
    for second in range(20):
        stream.row(0, second)
    stream.flush()
    behind = ControlCatalogue()
    behind.add_card(b"m", stream.card.to_bytes())
    merge = MergePartition(behind, MergeOptions())
    feed(merge, stream.log)
    assert windows(merge) == {}
    record_ = stream.catalogue.epoch("m")
    assert record_ is not None
    behind.add_grid(record_.record.to_bytes())
    assert rows_of(windows(merge))["lifetime"] == 20


def test_a_block_does_not_close_before_all_models_of_the_partition_are_there() -> None:
    stream = Stream()
    for second in range(17):
        stream.row(0, second)
    sent = stream.flush()
    sketches = [part for part in sent if not isinstance(part, Manifest)]
    manifests = [part for part in sent if isinstance(part, Manifest)]
    merge = stream.merge()
    feed(merge, manifests)  # the sketches were lost, and come with the next flush
    assert windows(merge) == {}
    feed(merge, sketches)
    found = windows(merge)["lifetime"]
    assert (found.accounting.rows, found.accounting.duplicates) == (17, 0)
    other = MergePartition(stream.catalogue, MergeOptions(), lambda model: False)
    feed(other, manifests)  # not its model: it closes the block and goes on
    assert other.gaps() == {("rows", 0): 0}


def test_event_time_counts_only_once_its_rows_are_held() -> None:
    stream = Stream(partitions=2)
    merge = stream.merge()
    stream.row(0, 1)
    stream.row(1, 1)
    feed(merge, stream.flush())
    stream.row(0, 5)
    stream.row(0, 90)
    stream.row(1, 90)
    lost = stream.flush(0)
    feed(merge, [part for part in lost if isinstance(part, Manifest)])
    feed(merge, stream.flush(1))
    assert rows_of(windows(merge, "tumbling")) == {}
    feed(merge, lost)
    assert rows_of(windows(merge, "tumbling")) == {0: 3}


def test_lost_sketches_are_a_gap_and_what_follows_goes_on() -> None:
    stream = Stream()
    merge = stream.merge()
    for second in range(40):
        stream.row(0, second)
        if second % 8 == 7:
            stream.flush()
    kept = [p for p in stream.log if isinstance(p, Manifest) or p[0].block != 16]
    feed(merge, kept)
    found = windows(merge)["lifetime"].accounting
    assert (found.rows, found.rows_accepted) == (24, 40)
    assert found.gaps == 0  # the next block is open: nothing behind the hole is closed yet
    for second in range(40, 60):
        stream.row(0, second)
    feed(merge, stream.flush())
    found = windows(merge)["lifetime"].accounting
    assert (found.rows, found.rows_accepted, found.gaps) == (44, 60, 16)


def test_a_block_that_retention_cut_through_counts_its_rest_once_and_the_loss_as_a_gap() -> None:
    stream = Stream()
    merge = stream.merge()
    for second in range(28):
        stream.row(0, second)
    feed(merge, stream.flush())
    assert rows_of(windows(merge))["lifetime"] == 28
    stream.again(0, 20)  # offsets 16 to 19 are gone from the log
    for second in range(20, 40):
        stream.row(0, second)
    feed(merge, stream.flush())
    found = windows(merge)["lifetime"].accounting
    assert (found.rows, found.rows_accepted, found.gaps) == (36, 36, 4)


def test_a_revision_stays_where_rows_are_taken_back_until_there_are_more() -> None:
    stream = Stream()
    merge = stream.merge()
    for second in range(28):
        stream.row(0, second)
    feed(merge, stream.flush())
    assert windows(merge)["lifetime"].revision == 28
    stream.again(0, 20)
    for second in range(20, 23):
        stream.row(0, second)
    feed(merge, stream.flush())
    found = windows(merge)["lifetime"]
    assert found.accounting.rows == 16 + 3
    assert 28 <= found.revision <= 28 + 3
    for second in range(23, 60):
        stream.row(0, second)
    feed(merge, stream.flush())
    found = windows(merge)["lifetime"]
    assert found.revision == found.accounting.rows == 16 + 40


def test_a_block_whose_owner_died_before_the_log_was_cut_behind_it_counts_as_far_as_it_was_read() -> (
    None
):
    stream = Stream()
    merge = stream.merge()
    for second in range(28):
        stream.row(0, second)
    feed(merge, stream.flush())
    stream.again(0, 30)  # 28 and 29 are gone; 16 to 27 were counted
    for second in range(30, 50):
        stream.row(0, second)
    feed(merge, stream.flush())
    found = windows(merge)["lifetime"].accounting
    assert (found.rows, found.rows_accepted, found.gaps) == (48, 48, 2)


def test_what_is_lost_while_an_owner_reads_is_a_gap_once_the_block_behind_it_closes() -> None:
    stream = Stream()
    merge = stream.merge()
    for second in range(20):
        stream.row(0, second)
    feed(merge, stream.flush())
    stream.lose(0, 5)
    for second in range(25, 40):
        stream.row(0, second)
    feed(merge, stream.flush())
    feed(merge, stream.flush())
    found = windows(merge)["lifetime"].accounting
    assert (found.rows, found.rows_accepted, found.gaps) == (35, 35, 5)
    assert found.offsets == {"rows/0": (0, 40)}


def test_rows_that_waited_for_a_grid_when_the_log_was_cut_behind_them_are_in_the_gap() -> None:
    stream = Stream()
    merge = stream.merge()
    for second in range(3):
        stream.row(0, second)
    core = stream.cores[0]
    waiting = core.flush(3).manifests  # before there is a grid
    assert waiting[0].models["m"].waiting == 3
    feed(merge, waiting)
    stream.again(0, 3)  # the owner dies, and offsets 0 to 2 are gone from the log
    stream.row(0, 3)
    feed(merge, stream.flush())
    found = windows(merge)["lifetime"].accounting
    assert (found.rows, found.gaps) == (1, 3)


def test_a_manifest_that_comes_after_its_rows_were_published_publishes_the_books_again() -> None:
    stream = Stream()
    merge = stream.merge()
    for second in range(5):
        stream.row(0, second)
    *sketches, manifest = stream.flush()
    feed(merge, sketches)
    assert windows(merge)["lifetime"].accounting.rows_accepted == 0
    feed(merge, [manifest])
    assert windows(merge)["lifetime"].accounting.rows_accepted == 5


def test_sketches_that_reach_into_what_is_counted_again_do_not_count_even_without_a_manifest() -> (
    None
):
    stream = Stream()
    merge = stream.merge()
    for second in range(5):
        stream.row(0, second)
    *sketches, _ = stream.flush()  # its manifest is lost, and so is its owner
    feed(merge, sketches)
    assert windows(merge)["lifetime"].accounting.rows == 5
    stream.again(0, 2)  # offsets 0 and 1 are gone from the log
    for second in range(2, 7):
        stream.row(0, second)
    feed(merge, stream.flush())
    assert windows(merge)["lifetime"].accounting.rows == 5


def test_an_old_owner_that_goes_on_takes_nothing_away_and_adds_nothing() -> None:
    stream = Stream()
    for second in range(10):
        stream.row(0, second)
    old = stream.cores[0]
    early = old.flush(10)
    for second in range(10, 20):
        stream.row(0, second)
    merge = stream.merge()
    for proposal in old.proposals(now=1e6):
        stream.catalogue.add_grid(proposal.to_bytes())
    old.count(1e6)
    late = old.flush(20)
    assert early.commit == 0
    feed(merge, [*late.sketches, *late.manifests])
    before = windows(merge)["lifetime"]
    feed(merge, [*early.sketches, *early.manifests, *late.sketches, *late.manifests])
    assert windows(merge) == {}
    stream.row(0, 30)
    feed(merge, stream.flush())
    after = windows(merge)["lifetime"]
    assert (before.accounting.rows, after.accounting.rows) == (20, 21)


def test_a_watermark_waits_for_partitions_that_have_shown_no_row() -> None:
    stream = Stream(partitions=2)
    merge = stream.merge(idle=30)
    stream.row(0, 5)
    stream.row(0, 50)
    feed(merge, stream.flush(0))
    assert "lifetime" in windows(merge)
    assert merge.watermarks() == {}
    feed(merge, stream.flush(1), clock=START + 29_999)  # a heartbeat: read to its end, no row
    assert windows(merge) == {}
    feed(merge, stream.flush(1), clock=START + 30_000)
    assert rows_of(windows(merge)) == {0: 1}
    assert merge.watermarks() == {"m": START + 50_000}


def test_the_slowest_partition_holds_the_watermark_until_it_is_idle() -> None:
    stream = Stream(partitions=2)
    merge = stream.merge(idle=30)
    stream.row(0, 5)
    stream.row(1, 5)
    feed(merge, stream.flush(), clock=START)
    stream.row(0, 50)
    feed(merge, stream.flush(), clock=START + 29_000)
    assert rows_of(windows(merge, "tumbling")) == {}
    stream.row(0, 51)
    feed(merge, stream.flush(), clock=START + 30_000)
    assert rows_of(windows(merge, "tumbling")) == {0: 2}


def test_a_partition_that_is_busy_with_another_model_does_not_hold_a_quiet_one_back() -> None:
    stream = Stream(partitions=2)
    stream.catalogue.add_card(b"n", stream.card.model_copy(update={"model": "n"}).to_bytes())
    merge = stream.merge(idle=30)
    stream.row(0, 5)
    stream.row(1, 5)
    feed(merge, stream.flush(), clock=START)
    for minute in range(1, 4):
        stream.row(0, 60 * minute)
        stream.row(1, 60 * minute, model="n")
        feed(merge, stream.flush(), clock=START + 60_000 * minute)
    assert rows_of(windows(merge, "tumbling")) == {0: 2, 60: 1, 120: 1}


def test_a_new_layout_starts_the_views_and_old_blocks_still_close() -> None:
    stream = Stream(partitions=2)
    merge = stream.merge()
    for second in range(8):
        stream.row(0, second)
        stream.row(1, second)
    feed(merge, stream.flush())
    wider = the_card().model_copy(update={"features": [*the_card().features, Feature(name="c")]})
    stream.catalogue.add_card(b"m", wider.to_bytes())
    for second in range(8, 30):
        stream.row(0, second)
    feed(merge, stream.flush(0))
    found = windows(merge)["lifetime"]
    assert {f.name for f in found.features} == {"a", "b", "c"}
    assert found.accounting.rows == 14  # the second block of partition 0
    assert found.revision == 16 + 8  # rows on the old layout: its messages are replaced
    for second in range(8, 40):
        stream.row(1, second)
    feed(merge, stream.flush())
    found = windows(merge)["lifetime"]
    assert found.revision == found.accounting.rows == 14 + 24
    assert found.accounting.rows_accepted == 30 + 40
    assert found.accounting.gaps == 0


def test_a_card_with_other_panes_does_not_stop_a_merge_of_the_old_ones() -> None:
    stream = Stream()
    for second in range(20):
        stream.row(0, second)
    stream.flush()
    changed = the_card(pane_seconds=7, windows=[Tumbling(seconds=21), Lifetime()])
    stream.catalogue.add_card(b"m", changed.to_bytes())
    merge = stream.merge()
    feed(merge, stream.log)
    assert rows_of(windows(merge)) == {"lifetime": 20}
    for second in range(20, 80):
        stream.row(0, second)
    feed(merge, stream.flush())
    found = windows(merge)
    assert {m.window.end - m.window.start for n, m in found.items() if n != "lifetime"} == {21_000}


def test_changed_windows_ask_for_a_new_reading_and_other_changes_do_not() -> None:
    stream = Stream()
    stream.row(0, 1)
    merge = stream.merge()
    feed(merge, stream.flush())
    assert not merge.stale
    stream.catalogue.add_card(b"m", the_card(strict=True).to_bytes())
    assert not merge.stale
    stream.catalogue.add_card(b"m", the_card(windows=[Lifetime()]).to_bytes())
    assert merge.stale
    again = stream.merge()
    feed(again, stream.log)
    assert not again.stale
    stream.catalogue.add_card(b"m", the_card(allowed_lateness_seconds=1.0).to_bytes())
    assert again.stale


def test_rejections_alone_publish_the_lifetime_again() -> None:
    stream = Stream()
    merge = stream.merge()
    stream.row(0, 1)
    feed(merge, stream.flush())
    windows(merge)
    stream.add(0, b'{"model": "m", "features": {"a": "x"}, "outputs": 1}')
    feed(merge, stream.flush())
    found = windows(merge)["lifetime"].accounting
    assert (found.rows, found.rows_rejected) == (1, {"wrong_type": 1})


def test_extreme_values_make_messages_that_can_be_read() -> None:
    stream = Stream()
    merge = stream.merge()
    for index in range(60):
        a = ["1e308", "-1e308", "NaN", "Infinity", "1e-320", "0"][index % 6]
        y = ["1e308", "-Infinity", "null", "-1e308", "NaN"][index % 5]
        body = f'{{"a": {a}, "b": null}}, "outputs": [{y}], "time": {START / 1000 + index}'
        stream.add(0, f'{{"model": "m", "features": {body}}}'.encode())
    feed(merge, stream.flush())
    found = list(merge.publish(now=1))
    assert any(isinstance(message, WindowDrift) for message in found)
    for message in found:
        again = type(message).from_bytes(message.to_bytes())
        if isinstance(again, WindowAttribution):
            by_name = {feature.name: feature for feature in again.features}
            assert by_name["b"].score == 0.5
            assert by_name["b"].missing == 1.0
            assert 0 <= by_name["a"].score <= 1


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_sentinel_beyond_all_range_weighs_as_in_the_batch_and_spoils_no_other_column() -> None:
    stream = Stream(size=1000)
    merge = stream.merge()
    stream.row(0, 0, rows=300)
    feed(merge, stream.flush())
    windows(merge)
    sentinel = (-1.7976931348623157e308, 0.0, 0.0)
    features = {"a": sentinel[0], "b": sentinel[1]}
    row = {"model": "m", "features": features, "outputs": [0.0], "time": START / 1000 + 1}
    stream.add(0, json.dumps(row).encode())
    feed(merge, stream.flush())
    again = WindowAttribution.from_bytes(windows(merge)["lifetime"].to_bytes())
    rows = np.array([*stream.rows, sentinel])
    batch = cir(rows[:, :2], rows[:, 2:])
    by_name = {feature.name: feature for feature in again.features}
    for index, name in enumerate("ab"):
        assert by_name[name].score == pytest.approx(batch.score[0, index], abs=1e-2)
    assert by_name["a"].interval[1] - by_name["a"].interval[0] > 0.9


def test_a_row_that_is_ages_older_than_a_half_life_weighs_nothing() -> None:
    of = the_card(windows=[Decayed(half_life_seconds=1), Lifetime()])
    stream = Stream(of)
    merge = stream.merge()
    stream.row(0, 0, rows=3)
    feed(merge, stream.flush())
    windows(merge)
    stream.row(0, -START / 1000)  # in 1970
    stream.row(0, 3600, rows=20)  # after a pause of 3,600 half-lives
    feed(merge, stream.flush())
    found = windows(merge)
    assert rows_of(found) == {"decayed": 24, "lifetime": 24}
    for message in found.values():
        WindowAttribution.from_bytes(message.to_bytes())
        assert all(feature.effective_rows > 2 for feature in message.features)


def test_a_view_that_decays_forgets_at_its_half_life() -> None:
    of = the_card(windows=[Decayed(half_life_seconds=20), Lifetime()])
    stream = Stream(of, size=1000)
    for index in range(200):
        # First y follows a, then, 100 half-lives later, it follows -a.
        sign, second = (1, index / 100) if index < 100 else (-1, 2000 + index / 100)
        a = float(index % 10 - 4.5)
        row = {"a": a, "b": 0}, [sign * a], START / 1000 + second
        stream.add(
            0,
            json.dumps(
                {"model": "m", "features": row[0], "outputs": row[1], "time": row[2]}
            ).encode(),
        )
    merge = stream.merge()
    feed(merge, stream.flush())
    found = windows(merge)
    scores = {kind: {f.name: f.score for f in found[kind].features} for kind in found}
    assert scores["decayed"]["a"] == pytest.approx(0.0, abs=1e-6)
    assert scores["lifetime"]["a"] == pytest.approx(0.5, abs=1e-6)
