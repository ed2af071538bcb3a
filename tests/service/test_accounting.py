"""The accounting's fold against rows counted one by one, under crashes, replays and any order."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from attributary.schemas.manifest import Manifest, ModelCount
from attributary.service.accounting import RECENT_MS, Accounting, ManifestFold

TOPIC = "attributary.rows"


def manifest(
    block: int,
    upto: int,
    models: dict[str, ModelCount] | None = None,
    *,
    partition: int = 0,
    previous: int | None = None,
    sealed: bool = False,
    acknowledged: int = 0,
    lost: int = 0,
) -> Manifest:
    return Manifest(
        topic=TOPIC,
        partition=partition,
        block=block,
        upto=upto,
        previous=previous,
        sealed=sealed,
        acknowledged=acknowledged,
        lost=lost,
        partitions=3,
        end_offset=upto,
        models=models or {},
    )


def folded(
    *manifests: Manifest, log: dict[tuple[str, int], tuple[int, int]] | None = None
) -> Accounting:
    fold = ManifestFold()
    for each in manifests:
        fold.add(each)
    return fold.accounting(log)


def test_rows_that_sketches_leave_out_are_told_apart() -> None:
    light = {"m": ModelCount(accepted={0: 40}, fraction=0.25, thinned=29)}
    full = {
        "m": ModelCount(accepted={0: 7}),
        "n": ModelCount(accepted={0: 2}, fraction=0.5, thinned=1),
    }
    books = folded(manifest(0, 40, light, sealed=True), manifest(40, 50, full, previous=0))
    assert {name: model.thinned for name, model in books.models.items()} == {"m": 29, "n": 1}
    assert (books.accepted, books.thinned) == (49, 30)
    # Another owner sketches all of the first block's rows: that is what merge takes.
    whole = {"m": ModelCount(accepted={0: 40})}
    for order in (1, -1):
        both = [manifest(0, 40, light, sealed=True), manifest(0, 40, whole, sealed=True)][::order]
        assert folded(*both).thinned == 0


def simulated(rng: random.Random) -> tuple[list[Manifest], Counter[tuple[str, str]], int]:
    """Return the manifests of a random log with their true totals, and its number of offsets."""
    truth: Counter[tuple[str, str]] = Counter()
    sent: list[Manifest] = []
    offsets = 0
    for partition in range(rng.randint(1, 3)):
        end = rng.randint(1, 400)
        size = rng.randint(5, 90)
        offsets += end
        fates = [
            [
                (
                    rng.choice(["a", "b"]),
                    rng.choice(["accepted", "accepted", "wrong_type", "empty"]),
                )
                for _ in range(rng.randint(1, 4))
            ]
            for _ in range(end)
        ]
        for block in range(0, end, size):
            last = min(block + size, end)
            cuts = sorted({rng.randint(block + 1, last) for _ in range(4)} | {last})
            for upto in cuts:
                counts = Counter(fate for offset in fates[block:upto] for fate in offset)
                sent.append(
                    manifest(
                        block,
                        upto,
                        _models(counts),
                        partition=partition,
                        previous=block - size if block else None,
                        sealed=upto == block + size,
                    )
                )
        truth.update(fate for offset in fates for fate in offset)
    return sent, truth, offsets


def _models(counts: Counter[tuple[str, str]]) -> dict[str, ModelCount]:
    return {
        name: ModelCount(
            accepted={0: counts[name, "accepted"] // 2, 10: -(-counts[name, "accepted"] // 2)},
            rejected={
                reason: rows
                for (model, reason), rows in counts.items()
                if model == name and reason != "accepted"
            },
        )
        for name in {model for model, _ in counts}
    }


@pytest.mark.parametrize("seed", range(40))
def test_totals_equal_the_rows_whatever_the_order_and_however_often_repeated(seed: int) -> None:
    rng = random.Random(seed)
    sent, truth, offsets = simulated(rng)
    received = sent + rng.choices(sent, k=len(sent))
    rng.shuffle(received)
    found = folded(*received)
    for name in ("a", "b"):
        account = found.models.get(name)
        assert (account.accepted if account else 0) == truth[name, "accepted"]
        assert dict(account.rejected if account else {}) == {
            reason: rows
            for (model, reason), rows in truth.items()
            if model == name and reason != "accepted"
        }
    assert found.accepted + found.rejected == truth.total()
    assert sum(source.covered for source in found.sources.values()) == offsets
    assert (found.gaps, found.overlaps) == (0, 0)


def test_a_replay_that_has_come_less_far_does_not_take_rows_back() -> None:
    far = manifest(0, 50, {"m": ModelCount(accepted={0: 50})})
    near = manifest(0, 20, {"m": ModelCount(accepted={0: 20})})
    assert folded(far, near).accepted == folded(near, far).accepted == 50


def test_rows_that_waited_for_a_grid_become_accepted_at_the_same_offset() -> None:
    waiting = manifest(0, 30, {"m": ModelCount(waiting=30)})
    counted = manifest(0, 30, {"m": ModelCount(accepted={0: 30})})
    for order in ((waiting, counted), (counted, waiting)):
        found = folded(*order)
        assert (found.accepted, found.waiting) == (30, 0)


def test_rows_without_a_readable_model_count_under_the_empty_name() -> None:
    found = folded(
        manifest(
            0, 5, {"": ModelCount(rejected={"not_decodable": 3}), "m": ModelCount(accepted={0: 2})}
        ),
        manifest(0, 4, {"": ModelCount(rejected={"not_decodable": 4})}, partition=1),
    )
    assert found.models[""].rejected == {"not_decodable": 7}
    assert found.rejected_by_reason == {"not_decodable": 7}
    assert (found.accepted, found.rejected) == (2, 7)


def test_a_missing_block_is_a_gap_of_as_many_offsets() -> None:
    found = folded(manifest(0, 100, sealed=True), manifest(300, 350))
    assert found.gaps == 200
    assert not found.settled


def test_an_offset_without_a_row_between_two_blocks_of_one_owner_is_no_gap() -> None:
    left = manifest(0, 99, sealed=True)
    assert folded(left, manifest(100, 150, previous=0)).gaps == 0
    assert folded(left, manifest(100, 150, previous=None)).gaps == 1
    assert folded(manifest(0, 99), manifest(100, 150, previous=0)).gaps == 1


def test_offsets_claimed_twice_are_reported() -> None:
    found = folded(manifest(0, 120), manifest(100, 150))
    assert found.overlaps == 20
    assert not found.settled


def test_the_log_says_what_is_not_counted_yet() -> None:
    log = {(TOPIC, 0): (0, 80), (TOPIC, 1): (0, 7)}
    found = folded(manifest(0, 50, {"m": ModelCount(accepted={0: 50})}), log=log)
    assert {source: account.lag for source, account in found.sources.items()} == {
        (TOPIC, 0): 30,
        (TOPIC, 1): 7,
    }
    assert (found.lag, found.settled) == (37, False)
    done = folded(manifest(0, 80), manifest(0, 7, partition=1), log=log)
    assert done.settled


def test_offsets_before_the_first_block_that_the_log_still_holds_are_a_gap() -> None:
    block = manifest(40, 60)
    assert folded(block, log={(TOPIC, 0): (10, 60)}).gaps == 30
    assert folded(block, log={(TOPIC, 0): (55, 60)}).gaps == 0  # retention moved the start


def test_what_the_log_lost_is_a_gap_and_a_block_that_this_cut_through_does_not_count() -> None:
    counted = ModelCount(accepted={0: 8})
    cut = manifest(10, 18, {"m": counted})
    rest = manifest(15, 20, {"m": ModelCount(accepted={0: 5})}, acknowledged=15, lost=5)
    found = folded(manifest(0, 10, sealed=True), cut, rest)
    assert (found.accepted, found.gaps, found.overlaps) == (5, 5, 0)
    alone = folded(rest)
    assert (alone.gaps, alone.sources[TOPIC, 0].start) == (5, 10)
    assert folded(manifest(0, 10, sealed=True), manifest(10, 15, {"m": counted}), rest).gaps == 0


def test_the_highest_event_time_of_a_partition_is_known() -> None:
    found = folded(
        manifest(0, 10, {"m": ModelCount(event_time=5), "n": ModelCount(event_time=9)}),
        manifest(10, 20, {"m": ModelCount(event_time=7)}),
        manifest(0, 1, partition=1),
    )
    assert found.sources[TOPIC, 0].event_time == 9
    assert found.sources[TOPIC, 1].event_time is None


def test_nothing_counted_is_settled_only_when_the_log_is_empty() -> None:
    assert folded(log={(TOPIC, 0): (0, 0)}).settled
    assert not folded(log={(TOPIC, 0): (0, 1)}).settled


def test_a_log_that_ends_before_what_was_read_of_it_has_lost_its_end() -> None:
    read = manifest(0, 80, sealed=True), manifest(0, 9, partition=1)
    found = folded(*read, log={(TOPIC, 0): (0, 30), (TOPIC, 1): (0, 9)})
    assert found.lost_ends == [(TOPIC, 0)]
    lost = found.sources[TOPIC, 0]
    assert (lost.lost_end, lost.end, lost.upto, lost.lag, lost.gaps) == (True, 30, 80, 0, 0)
    assert not found.settled
    # The new topic has fewer partitions; or the old log began later than the new one does.
    assert folded(*read, log={(TOPIC, 0): (0, 80)}).lost_ends == [(TOPIC, 1)]
    late = folded(manifest(40, 80), log={(TOPIC, 0): (0, 30)})
    assert (late.lost_ends, late.gaps) == ([(TOPIC, 0)], 0)
    # Rows of a topic that the settings do not name any more are told of by nobody.
    assert folded(*read, log={("other", 0): (0, 0)}).settled


def test_recent_blocks_are_those_that_took_rows_shortly_before_the_newest_did() -> None:
    fold = ManifestFold()

    def add(block: int, upto: int, at: int) -> None:
        count = ModelCount(rejected={"empty": upto - block})
        fold.add(manifest(block, upto, {"m": count}), at)

    add(0, 3, 0)
    add(10, 14, RECENT_MS)
    add(20, 25, RECENT_MS + 1)
    add(20, 25, 9 * RECENT_MS)  # its owner tells of it again, though nothing came
    fold.add(manifest(99, 99), 9 * RECENT_MS)  # a heartbeat
    recent = fold.accounting().recent
    assert (recent.until, recent.models["m"].rows_rejected) == (RECENT_MS + 1, 9)
    add(20, 26, 2 * RECENT_MS)
    recent = fold.accounting().recent
    assert (recent.until, recent.models["m"].rows_rejected) == (2 * RECENT_MS, 6)
    assert fold.accounting().models["m"].rows_rejected == 13
