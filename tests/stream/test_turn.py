"""When the loop's regular work is due."""

from __future__ import annotations

import pytest

from attributary.workers.stream import turn
from attributary.workers.stream.turn import Cadence


class _Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(turn, "time", clock)
    return clock


def _due_after(cadence: Cadence, clock: _Clock) -> float:
    began = clock.now
    while not cadence.due:
        clock.now += 0.125
    return clock.now - began


def test_short_work_is_due_from_start_to_start(clock: _Clock) -> None:
    cadence = Cadence(1.0)
    assert _due_after(cadence, clock) == 1.0
    with cadence:
        clock.now += 0.25
    assert _due_after(cadence, clock) == 0.75


def test_long_work_leaves_half_of_the_time_to_others(clock: _Clock) -> None:
    cadence = Cadence(1.0)
    with cadence:
        clock.now += 3.0
    assert _due_after(cadence, clock) == 3.0


def test_work_that_failed_counts_too(clock: _Clock) -> None:
    cadence = Cadence(1.0)
    with pytest.raises(OSError, match="away"), cadence:
        raise OSError("away")
    assert not cadence.due


def test_work_that_found_nothing_to_do_is_due_soon(clock: _Clock) -> None:
    cadence = Cadence(1.0)
    with cadence:
        pass
    cadence.soon(0.25)
    assert _due_after(cadence, clock) == 0.25


def test_looking_for_news_takes_a_fifth_of_the_time_at_most(clock: _Clock) -> None:
    cadence = Cadence(1.0)
    with cadence:
        clock.now += 0.5
    cadence.soon(0.25)
    assert _due_after(cadence, clock) == 2.0
