"""The books of one source partition: any order, repetitions, holes, losses, idleness."""

from __future__ import annotations

import random

import pytest

from attributary.schemas.manifest import Manifest, ModelCount
from attributary.workers.stream.ledger import SourceLedger


def manifest(
    block: int,
    upto: int,
    *,
    sealed: bool = False,
    acknowledged: int = 0,
    end: int = 0,
    accepted: int = 0,
    waiting: int = 0,
    time: int | None = None,
    rejected: int = 0,
    model: str = "m",
    lost: int = 0,
) -> Manifest:
    count = ModelCount(
        accepted={0: accepted} if accepted else {},
        rejected={"empty": rejected} if rejected else {},
        waiting=waiting,
        event_time=time,
    )
    return Manifest(
        topic="rows",
        partition=0,
        partitions=1,
        block=block,
        upto=upto,
        previous=None,
        lost=lost,
        sealed=sealed,
        acknowledged=acknowledged,
        end_offset=end,
        models={model: count},
    )


def _close(ledger: SourceLedger) -> list[int]:
    """Close whatever is sealed, as if all sketches were held."""
    closed = []
    for found, _ in ledger.in_order():
        if found.sealed:
            ledger.close(found)
            closed.append(found.block)
    return closed


def test_of_two_manifests_the_one_that_covers_more_holds() -> None:
    ledger = SourceLedger()
    for upto, accepted in ((4, 4), (9, 8), (6, 5)):
        ledger.add(manifest(0, upto, accepted=accepted), clock=0)
    assert ledger.totals("m").accepted == 8
    ledger.add(manifest(0, 9, accepted=9, sealed=True), clock=0)
    ledger.add(manifest(0, 9, accepted=8), clock=0)
    assert ledger.totals("m").accepted == 9
    assert (ledger.first, ledger.upto) == (0, 9)


def test_with_equal_offsets_counted_rows_are_news_and_waiting_ones_are_not() -> None:
    ledger = SourceLedger()
    ledger.add(manifest(0, 9, waiting=9), clock=0)
    ledger.add(manifest(0, 9, accepted=9), clock=0)
    ledger.add(manifest(0, 9, waiting=9), clock=0)
    assert ledger.totals("m").accepted == 9


def test_blocks_close_in_order_and_repetitions_change_nothing() -> None:
    ledger = SourceLedger()
    ledger.add(manifest(16, 32, sealed=True, accepted=2), clock=0)
    ledger.add(manifest(32, 40, accepted=3), clock=0)
    assert _close(ledger) == []  # what was before may still come
    ledger.add(manifest(0, 16, sealed=True, accepted=1, rejected=4), clock=0)
    assert _close(ledger) == [0, 16]
    ledger.add(manifest(0, 9, accepted=7), clock=0)
    ledger.add(manifest(16, 32, sealed=True, accepted=2), clock=0)
    assert _close(ledger) == []
    assert ledger.is_closed(0)
    assert ledger.is_closed(16)
    assert not ledger.is_closed(32)
    totals = ledger.totals("m")
    assert (totals.accepted, dict(totals.rejected), ledger.gap_offsets) == (6, {"empty": 4}, 0)


def test_books_that_begin_in_the_middle_have_no_gap() -> None:
    ledger = SourceLedger()
    ledger.add(manifest(800, 816, sealed=True, acknowledged=800, accepted=1), clock=0)
    assert _close(ledger) == [800]
    assert ledger.gap_offsets == 0


def test_a_block_that_was_acknowledged_and_is_not_there_is_a_gap_until_it_comes() -> None:
    ledger = SourceLedger()
    ledger.add(manifest(0, 16, sealed=True, accepted=1), clock=0)
    ledger.add(manifest(48, 64, sealed=True, acknowledged=48, accepted=4), clock=0)
    assert _close(ledger) == [0, 48]
    assert ledger.gap_offsets == 32
    assert not ledger.is_closed(16)
    ledger.add(manifest(16, 32, sealed=True, accepted=2), clock=0)
    assert _close(ledger) == [16]
    assert ledger.gap_offsets == 16
    ledger.add(manifest(32, 48, sealed=True, accepted=3), clock=0)
    assert _close(ledger) == [32]
    assert ledger.gap_offsets == 0
    assert ledger.totals("m").accepted == 10


def test_an_unsealed_block_holds_back_what_follows_and_an_acknowledged_one_does_not() -> None:
    ledger = SourceLedger()
    ledger.add(manifest(0, 9, accepted=1), clock=0)
    ledger.add(manifest(16, 32, sealed=True, accepted=2), clock=0)
    assert [(m.block, lost) for m, lost in ledger.in_order()] == [(0, False)]
    ledger.add(manifest(32, 33, acknowledged=32), clock=0)
    assert [(m.block, lost) for m, lost in ledger.in_order()] == [
        (0, True),
        (16, True),
        (32, False),
    ]


def test_a_block_that_retention_cut_through_is_dropped_and_its_rest_counted_once() -> None:
    ledger = SourceLedger()
    ledger.add(manifest(0, 16, sealed=True, accepted=16), clock=0)
    ledger.add(manifest(16, 28, accepted=12), clock=0)
    assert _close(ledger) == [0]
    ledger.add(manifest(20, 32, sealed=True, acknowledged=20, accepted=12), clock=0)
    assert ledger.drop_truncated() == [16]
    assert ledger.drop_truncated() == []
    assert _close(ledger) == [20]
    assert ledger.totals("m").accepted == 28
    assert ledger.gap_offsets == 4
    ledger.add(manifest(16, 28, accepted=12), clock=0)  # an old owner goes on
    assert ledger.drop_truncated() == [16]
    assert ledger.totals("m").accepted == 28


def test_a_block_is_dropped_too_where_a_reader_found_the_log_cut_inside_it() -> None:
    """Its owner had begun before the cut, so what is committed does not tell."""
    ledger = SourceLedger()
    ledger.add(manifest(0, 2, accepted=2), clock=0)
    ledger.add(manifest(1, 2, accepted=1, lost=1), clock=1)
    assert ledger.drop_truncated() == [0]
    assert ledger.totals("m").accepted == 1
    ledger.add(manifest(0, 3, accepted=3, sealed=True), clock=2)  # it was whole after all
    assert ledger.drop_truncated() == []


def test_a_sealed_block_that_lacks_a_sketch_for_good_makes_room_for_one_that_began_inside_it() -> (
    None
):
    ledger = SourceLedger()
    lacking = manifest(9, 12, sealed=True, acknowledged=10, accepted=5)
    ledger.add(lacking, clock=0)
    assert not ledger.drop_overtaken(manifest(3, 6, sealed=True))
    assert ledger.drop_truncated() == []  # it may be whole
    ledger.add(manifest(11, 12, accepted=3, lost=1), clock=1)
    assert ledger.drop_overtaken(lacking)
    assert ledger.totals("m").accepted == 3


def test_a_block_that_nobody_goes_on_with_is_covered_as_far_as_its_rows_are_held() -> None:
    ledger = SourceLedger()
    ledger.add(manifest(0, 16, sealed=True, accepted=16), clock=0)
    ledger.add(manifest(16, 28, accepted=12), clock=0)
    ledger.add(manifest(30, 32, sealed=True, acknowledged=30, accepted=2), clock=0)
    assert _close(ledger) == [0, 30]
    assert ledger.gap_offsets == 14
    ledger.hold(manifest(16, 28, accepted=12))
    assert ledger.gap_offsets == 2
    assert ledger.totals("m").accepted == 30


def test_a_log_that_was_cut_and_brings_nothing_more_shows_its_gap() -> None:
    ledger = SourceLedger()
    ledger.add(manifest(0, 2, accepted=2), 0)
    ledger.add(manifest(8, 8, acknowledged=8), 0)  # a new owner that finds no record
    ledger.hold(manifest(0, 2, accepted=2))
    assert ledger.gap_offsets == 6
    ledger.waits = True  # for a grid: what is closed then is not known yet
    assert ledger.gap_offsets == 0
    ledger.waits = False
    ledger.release(0)  # its sketches have made way for another owner's
    assert ledger.gap_offsets == 8


def test_what_was_lost_before_the_first_block_is_a_gap() -> None:
    ledger = SourceLedger()
    ledger.add(manifest(20, 32, sealed=True, acknowledged=20, accepted=12, lost=5), clock=0)
    assert ledger.gap_offsets == 5
    assert _close(ledger) == [20]
    assert (ledger.first, ledger.gap_offsets) == (15, 5)


def test_of_overlapping_blocks_of_two_owners_the_first_that_closes_counts() -> None:
    ledger = SourceLedger()
    ledger.add(manifest(0, 10, sealed=True, accepted=10), clock=0)
    ledger.add(manifest(13, 16, sealed=True, acknowledged=13, accepted=3), clock=0)
    assert _close(ledger) == [0, 13]
    # The old owner had read what was lost for the new one, and closes the first block later.
    ledger.add(manifest(10, 16, sealed=True, accepted=6), clock=0)
    assert _close(ledger) == []
    assert ledger.drop_truncated() == [10]
    assert ledger.gap_offsets == 3
    assert ledger.totals("m").accepted == 13


def test_an_old_owners_whole_block_leaves_no_room_for_one_that_began_in_it() -> None:
    ledger = SourceLedger()
    ledger.add(manifest(0, 16, sealed=True, accepted=16), clock=0)
    ledger.add(manifest(13, 16, sealed=True, acknowledged=13, accepted=3), clock=0)
    assert _close(ledger) == [0]
    assert ledger.drop_truncated() == [13]
    assert (ledger.gap_offsets, ledger.totals("m").accepted) == (0, 16)


def test_a_heartbeat_covers_nothing_and_says_how_far_the_log_goes() -> None:
    ledger = SourceLedger()
    ledger.add(manifest(50, 50, end=60), clock=0)
    assert (ledger.first, ledger.upto, ledger.behind) == (None, 50, True)
    assert _close(ledger) == []
    ledger.add(manifest(50, 60, end=60, accepted=10), clock=0)
    assert not ledger.behind


def test_a_model_is_expected_until_its_rows_are_held() -> None:
    ledger = SourceLedger()
    assert not ledger.expects("m")
    ledger.add(manifest(0, 4, end=9), clock=0)
    assert ledger.expects("m")  # behind
    ledger.add(manifest(0, 9, end=9, waiting=3, model="m"), clock=0)
    assert ledger.expects("m")
    assert not ledger.expects("n")
    ledger.reach("m", None)
    assert ledger.expects("m")
    ledger.reach("m", 500)
    ledger.reach("m", 300)
    assert ledger.event_time == {"m": 500}
    assert not ledger.expects("m")


def test_a_model_without_new_rows_is_idle_on_a_partition_that_others_keep_busy() -> None:
    ledger = SourceLedger()
    ledger.add(manifest(0, 1, end=1, accepted=1), clock=1000)
    assert not ledger.idle("m", 1999, 1000)
    assert ledger.idle("m", 2000, 1000)
    ledger.add(manifest(16, 18, end=18, accepted=2, model="other"), clock=5000)
    assert ledger.idle("m", 5000, 1000)
    assert not ledger.idle("other", 5000, 1000)
    ledger.add(manifest(16, 18, end=30, accepted=2, model="other"), clock=9000)
    assert not ledger.idle("m", 9000, 1000)  # there may be rows of it that are not read yet


@pytest.mark.parametrize("seed", range(20))
def test_any_order_with_repetitions_ends_in_the_same_books(seed: int) -> None:
    rng = random.Random(seed)
    versions = [
        manifest(block, block + upto, sealed=upto == 8, accepted=upto, rejected=upto // 2)
        for block in range(0, 64, 8)
        for upto in (2, 5, 8)
    ]
    sent = versions + rng.choices(versions, k=20)
    rng.shuffle(sent)
    ledger = SourceLedger()
    closed = []
    for each in sent:
        ledger.add(each, clock=0)
        closed += _close(ledger)
    assert sorted(closed) == list(range(0, 64, 8))
    assert ledger.totals("m").accepted == 64
    assert ledger.totals("m").rejected["empty"] == 32
    assert ledger.gap_offsets == 0
