"""The publisher's buffer: bounds, order, and one count for every row."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from attributary.service import outbox as outbox_module
from attributary.service.outbox import Outbox, Parcel

LIMITS = {"max_rows": 100, "max_bytes": 10_000}


def _total(outbox: Outbox) -> int:
    return outbox.published + outbox.failed + outbox.abandoned + outbox.pending


def _taken(outbox: Outbox) -> Parcel:
    parcel = outbox.take(**LIMITS)
    assert parcel is not None
    return parcel


def test_rows_leave_together_and_in_order() -> None:
    outbox = Outbox(**LIMITS)
    for index in range(5):
        assert outbox.add_row(b"%d" % index)
    first = outbox.take(max_rows=3, max_bytes=1000)
    assert first is not None
    assert json.loads(first.value) == [0, 1, 2]
    assert first.rows == 3
    assert json.loads(_taken(outbox).value) == [3, 4]
    assert outbox.take(**LIMITS) is None


def test_a_single_row_is_no_array_and_a_message_goes_alone() -> None:
    outbox = Outbox(**LIMITS)
    outbox.add_row(b"{}")
    outbox.add_message(b"arrow", 7, "application/arrow")
    outbox.add_row(b"[]")
    found = [_taken(outbox) for _ in range(3)]
    assert [(p.value, p.rows) for p in found] == [(b"{}", 1), (b"arrow", 7), (b"[]", 1)]
    assert found[1].content_type == "application/arrow"


class _Later:
    """A row that becomes JSON when it is taken."""

    size = 3

    def __init__(self, text: bytes, once: Callable[[], object] = lambda: None) -> None:
        self._text = text
        self._once = once

    def encode(self) -> bytes:
        self._once()
        return self._text


@pytest.mark.parametrize("uncounted", [0, 3])
def test_rows_that_become_json_later_keep_their_place_and_their_size(
    uncounted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "UNCOUNTED_ROWS", uncounted)
    monkeypatch.setattr(outbox_module, "UNCOUNTED_BYTES", 30)
    outbox = Outbox(max_rows=100, max_bytes=1000)
    for row in (b"1", _Later(b"20"), b"3", _Later(b"4" * 50), _Later(b"5")):
        assert outbox.add_row(row)
    assert outbox.pending_bytes == 1 + 3 + 1 + 3 + 3
    first = outbox.take(max_rows=10, max_bytes=20)
    assert first is not None
    assert first.value == b"[1,20,3]"
    assert (outbox.pending, outbox.pending_bytes) == (5, 8 + 3 + 3)
    second = outbox.take(max_rows=10, max_bytes=20)
    assert second is not None
    assert second.value == b"4" * 50
    for parcel in (first, second, _taken(outbox)):
        outbox.acknowledge(parcel)
    assert (outbox.published, outbox.pending, outbox.pending_bytes) == (5, 0, 0)


def test_what_is_abandoned_while_it_becomes_json_is_not_taken() -> None:
    outbox = Outbox(**LIMITS)
    outbox.add_row(_Later(b"1", outbox.abandon))
    assert outbox.take(**LIMITS) is None
    assert (outbox.pending, outbox.abandoned, outbox.waiting) == (0, 1, 0)


def test_a_parcel_is_bounded_in_bytes_but_never_empty() -> None:
    outbox = Outbox(**LIMITS)
    for row in (b"x" * 50, b"y" * 50, b"z" * 200):
        outbox.add_row(row)
    sizes = [outbox.take(max_rows=10, max_bytes=100) for _ in range(2)]
    assert [parcel.rows if parcel else 0 for parcel in sizes] == [2, 1]


def test_beyond_its_bounds_rows_are_dropped_and_counted() -> None:
    outbox = Outbox(max_rows=3, max_bytes=100)
    assert [outbox.add_row(b"1") for _ in range(5)] == [True] * 3 + [False] * 2
    assert (outbox.pending, outbox.dropped) == (3, 2)
    outbox.acknowledge(_taken(outbox))
    assert outbox.add_row(b"x" * 100)
    assert not outbox.add_row(b"x"), "no byte is left"
    assert not outbox.add_message(b"x", 3, "any"), "all of a message or nothing"
    assert (outbox.published, outbox.pending, outbox.dropped) == (3, 1, 6)


def test_what_is_given_back_is_taken_first_and_counts_once() -> None:
    outbox = Outbox(**LIMITS)
    outbox.add_row(b"1")
    lost = _taken(outbox)
    outbox.add_row(b"2")
    outbox.give_back(lost)
    assert _taken(outbox) == lost
    outbox.acknowledge(lost)
    outbox.acknowledge(lost)
    assert (outbox.published, outbox.pending) == (1, 1)


def test_drained_waits_for_the_rows_before_it_and_for_no_later_ones() -> None:
    outbox = Outbox(**LIMITS)
    assert outbox.drained().done()
    outbox.add_row(b"1")
    first = _taken(outbox)
    outbox.add_row(b"2")
    drained = outbox.drained()
    outbox.add_row(b"3")
    second = outbox.take(max_rows=1, max_bytes=1000)
    assert second is not None
    outbox.acknowledge(second)
    assert not drained.done(), "the first is still open"
    outbox.acknowledge(first)
    assert drained.result(0)
    assert outbox.pending == 1


def test_room_comes_when_enough_is_settled() -> None:
    outbox = Outbox(max_rows=3, max_bytes=100)
    for _ in range(3):
        outbox.add_row(b"1")
    room = outbox.room(2, 10)
    one = outbox.take(max_rows=1, max_bytes=100)
    assert one is not None
    outbox.acknowledge(one)
    assert not room.done()
    outbox.fail(_taken(outbox))
    assert room.result(0)
    assert (outbox.published, outbox.failed) == (1, 2)


def test_a_waiter_that_was_cancelled_or_forgotten_does_no_harm() -> None:
    outbox = Outbox(**LIMITS)
    outbox.add_row(b"1")
    cancelled, forgotten, kept = (outbox.drained() for _ in range(3))
    cancelled.cancel()
    outbox.forget(forgotten)
    outbox.acknowledge(_taken(outbox))
    assert kept.result(0)
    assert not forgotten.done()


def test_abandoning_settles_everything() -> None:
    outbox = Outbox(**LIMITS)
    for _ in range(4):
        outbox.add_row(b"1")
    taken = outbox.take(max_rows=2, max_bytes=1000)
    assert taken is not None
    drained = outbox.drained()
    assert outbox.abandon() == 4
    assert drained.result(0)
    outbox.acknowledge(taken)
    assert (outbox.abandoned, outbox.published, outbox.pending) == (4, 0, 0)
    assert outbox.pending_bytes == 0
    assert not outbox.add_row(b"late")
    assert (outbox.pending, outbox.dropped) == (0, 1)


def test_it_wakes_who_sleeps_once_something_is_there_to_see() -> None:
    woken: list[int] = []

    def wake() -> None:
        woken.append(outbox.waiting)
        outbox.waker = None

    outbox = Outbox(max_rows=4, max_bytes=1000, waker=wake)
    assert not outbox.add_message(b"x", 5, "any")
    assert woken == [], "nothing got in"
    outbox.add_row(b"1")
    outbox.add_row(b"2")
    outbox.waker = wake
    outbox.add_message(b"x", 1, "any")
    assert woken == [1, 3]


def test_a_closed_outbox_takes_nothing_and_gives_what_it_holds() -> None:
    outbox = Outbox(**LIMITS)
    outbox.add_row(b"1")
    outbox.close()
    assert not outbox.add_row(b"2")
    assert not outbox.add_message(b"x", 3, "any")
    drained = outbox.drained()
    outbox.acknowledge(_taken(outbox))
    assert drained.result(0)
    assert (outbox.published, outbox.pending, outbox.dropped) == (1, 0, 4)


@pytest.mark.parametrize("uncounted", [0, 3])
def test_every_row_has_one_count_through_any_history(
    uncounted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "UNCOUNTED_ROWS", uncounted)
    monkeypatch.setattr(outbox_module, "UNCOUNTED_BYTES", 30)
    rng = random.Random(3)
    for _ in range(200):
        outbox = Outbox(max_rows=20, max_bytes=400)
        offered = accepted = 0
        held: list[Parcel] = []
        waiting: list[tuple[int, Future[bool]]] = []
        for _ in range(120):
            action = rng.random()
            if action < 0.5:
                rows = rng.choice([1, 1, 1, 4])
                value = b"x" * rng.randrange(1, 60)
                taken = (
                    outbox.add_row(value) if rows == 1 else outbox.add_message(value, rows, "any")
                )
                offered += rows
                accepted += rows * taken
            elif action < 0.7 and (parcel := outbox.take(max_rows=5, max_bytes=100)):
                held.append(parcel)
            elif action < 0.95 and held:
                parcel = held.pop(rng.randrange(len(held)))
                rng.choice([outbox.acknowledge, outbox.acknowledge, outbox.give_back, outbox.fail])(
                    parcel
                )
            elif action >= 0.95:
                waiting.append((accepted, outbox.drained()))
            if rng.random() < 0.5:  # else rows stay uncounted for longer
                assert _total(outbox) == accepted
                assert outbox.dropped == offered - accepted
                assert outbox.pending <= 20
                assert outbox.pending_bytes <= 400 + 20 * 5  # and the commas of parcels
        while (parcel := outbox.take(max_rows=5, max_bytes=100)) or held:
            outbox.acknowledge(parcel or held.pop())
        for parcel in held:
            outbox.acknowledge(parcel)
        assert (outbox.pending, outbox.pending_bytes) == (0, 0)
        assert all(future.done() for _, future in waiting)


def test_threads_that_add_at_once_keep_the_bounds_and_every_row() -> None:
    outbox = Outbox(max_rows=2000, max_bytes=10**9)
    accepted: list[int] = []

    def add() -> None:
        accepted.append(sum(outbox.add_row(b"1") for _ in range(3000)))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    taken = most = 0
    while taken < 6000 and any(thread.is_alive() for thread in threads):
        most = max(most, outbox.pending)
        if parcel := outbox.take(max_rows=100, max_bytes=10_000):
            taken += parcel.rows
            outbox.acknowledge(parcel)
    for thread in threads:
        thread.join()
    assert most <= 2000
    assert outbox.published + outbox.pending == sum(accepted)
    assert outbox.dropped == 12_000 - sum(accepted)
    while parcel := outbox.take(max_rows=1000, max_bytes=10_000):
        outbox.acknowledge(parcel)
    assert (outbox.published, outbox.pending_bytes) == (sum(accepted), 0)


def test_a_row_that_comes_too_late_to_be_sent_is_dropped() -> None:
    outbox = Outbox(max_rows=10_000, max_bytes=10**9)
    outbox.add_row(b"1")
    outbox.abandon()
    outbox._uncounted.append(b"2")  # of a thread that had looked before
    assert (outbox.pending, outbox.abandoned, outbox.dropped) == (0, 1, 1)


def test_settled_are_the_rows_before_which_none_is_open() -> None:
    outbox = Outbox(**LIMITS)
    for size in (3, 5, 2):
        outbox.add_message(b"x", size, "application/arrow")
    assert outbox.settled == 0
    first, second, third = (_taken(outbox) for _ in range(3))
    outbox.acknowledge(second)
    assert outbox.settled == 0
    outbox.fail(first)
    assert outbox.settled == 8
    outbox.give_back(third)
    assert outbox.settled == 8
    outbox.acknowledge(_taken(outbox))
    assert outbox.settled == 10
