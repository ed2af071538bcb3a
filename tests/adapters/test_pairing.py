"""Halves that wait: pairs in any order, bounds, every loss counted once, and where to read from again."""

from __future__ import annotations

import random
from collections import Counter

from attributary.schemas.adapters.inference import Facts, Half
from attributary.schemas.adapters.pairing import Limits, Pairing, Place
from attributary.schemas.adapters.side import Side

LOG, OTHER = ("t", 0), ("t", 1)
SIDE = Side([{"a": 1.0}])


def _half(name: str, *, response: bool, failed: bool = False) -> Half:
    return Half((name,), response, None if failed else SIDE, Facts(id=name))


def _add(pairing: Pairing, name: str, offset: int, *, response: bool, now: float = 0.0) -> bool:
    half = _half(name, response=response)
    return pairing.add(half, Place(LOG, offset), 10, now) is not None


def test_halves_pair_in_either_order_and_hold_back_their_offsets() -> None:
    pairing = Pairing()
    assert not _add(pairing, "a", 0, response=False)
    assert not _add(pairing, "b", 1, response=True)
    assert pairing.oldest(LOG) == 0
    assert _add(pairing, "a", 2, response=True)
    assert pairing.oldest(LOG) == 1
    assert _add(pairing, "b", 3, response=False)
    assert pairing.oldest(LOG) is None
    assert (len(pairing), pairing.bytes, pairing.lost) == (0, 0, Counter())


def test_what_waits_too_long_is_counted_and_what_comes_later_too() -> None:
    pairing = Pairing(Limits(seconds=10))
    _add(pairing, "a", 0, response=False, now=0)
    _add(pairing, "b", 1, response=True, now=5)
    pairing.expire(9.9)
    assert len(pairing) == 2
    pairing.expire(10)
    assert pairing.lost == {"unanswered": 1}
    assert not _add(pairing, "a", 2, response=True, now=11)
    pairing.expire(15)
    assert pairing.lost == {"unanswered": 1, "late": 1, "unasked": 1}
    assert pairing.oldest(LOG) is None


def test_the_oldest_make_room() -> None:
    pairing = Pairing(Limits(halves=2))
    for place, name in enumerate("abc"):
        _add(pairing, name, place, response=False)
    assert (len(pairing), pairing.oldest(LOG), pairing.lost) == (2, 1, {"crowded_out": 1})
    heavy = Pairing(Limits(bytes=25))
    for place, name in enumerate("abc"):
        _add(heavy, name, place, response=False)
    assert (len(heavy), heavy.bytes, heavy.lost) == (2, 20, {"crowded_out": 1})


def test_a_half_that_comes_again_is_not_counted_twice() -> None:
    pairing = Pairing()
    _add(pairing, "a", 0, response=False)
    assert not _add(pairing, "a", 1, response=False)
    assert _add(pairing, "a", 2, response=True)
    assert not _add(pairing, "a", 3, response=True)
    assert not _add(pairing, "a", 4, response=False)
    assert pairing.lost == {"repeated": 3}
    assert len(pairing) == 0


def test_an_answer_that_is_an_error_closes_the_pair() -> None:
    pairing = Pairing()
    _add(pairing, "a", 0, response=False)
    failed = _half("a", response=True, failed=True)
    assert pairing.add(failed, Place(LOG, 1), 10, 0.0) is None
    assert (len(pairing), pairing.lost) == (0, {"failed": 2})


def test_a_message_of_several_halves_is_held_back_until_all_are_paired() -> None:
    pairing = Pairing()
    _add(pairing, "a", 7, response=False)
    _add(pairing, "b", 7, response=False)
    _add(pairing, "a", 8, response=True)
    assert pairing.oldest(LOG) == 7
    _add(pairing, "b", 9, response=True)
    assert pairing.oldest(LOG) is None


def test_a_log_that_somebody_else_reads_is_forgotten_and_nothing_is_lost() -> None:
    pairing = Pairing()
    _add(pairing, "a", 0, response=False)
    pairing.add(_half("b", response=False), Place(OTHER, 5), 10, 0.0)
    pairing.drop(LOG)
    assert (pairing.oldest(LOG), pairing.oldest(OTHER)) == (None, 5)
    assert (len(pairing), pairing.bytes, pairing.lost) == (1, 10, Counter())


def test_every_half_has_exactly_one_outcome() -> None:
    rng = random.Random(5)
    pairing = Pairing(Limits(halves=20, bytes=150, seconds=30))
    sent = paired = 0
    for offset in range(5000):
        name, response = str(rng.randrange(offset // 8 + 4)), rng.random() < 0.5
        sent += 1
        paired += 2 * _add(pairing, name, offset, response=response, now=offset)
        pairing.expire(offset)
        assert len(pairing) <= 20
        assert pairing.bytes == 10 * len(pairing) <= 150
        oldest = pairing.oldest(LOG)
        assert (oldest is None) == (len(pairing) == 0)
    pairing.end()
    assert paired > 100
    assert sent == paired + sum(pairing.lost.values())
