"""What may be committed: never past a request without its answer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from attributary.workers.ondemand.backlog import Backlog


def test_answers_out_of_order_wait_for_the_oldest() -> None:
    backlog = Backlog(10)
    for offset in (10, 11, 13):
        backlog.read(offset)
    assert (backlog.position, backlog.commit) == (14, 10)
    backlog.done(13)
    backlog.done(11)
    assert backlog.commit == 10
    backlog.done(10)
    assert backlog.commit == 14, "gaps in the offsets are no requests"


def test_what_others_committed_meanwhile_is_done() -> None:
    backlog = Backlog(0)
    for offset in range(5):
        backlog.read(offset)
    backlog.moved(3)
    assert backlog.commit == 3
    backlog.moved(9)
    assert (backlog.commit, backlog.position, backlog.committed) == (9, 9, 9)
    backlog.moved(2)
    assert (backlog.commit, backlog.position, backlog.committed) == (9, 9, 9)


@given(st.lists(st.integers(0, 30), unique=True), st.data())
def test_the_commit_never_passes_an_open_request(offsets: list[int], data: st.DataObject) -> None:
    backlog = Backlog(0)
    unanswered = set()
    for offset in sorted(offsets):
        backlog.read(offset)
        unanswered.add(offset)
    for offset in data.draw(st.permutations(offsets)):
        assert backlog.commit == min(unanswered)
        backlog.done(offset)
        unanswered.discard(offset)
    assert backlog.commit == max(offsets, default=-1) + 1
