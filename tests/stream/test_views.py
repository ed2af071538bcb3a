"""Sums over sketches: the cache that runs ahead changes no bit, and a repeated key replaces."""

from __future__ import annotations

import random

import numpy as np
import pytest

from attributary.schemas.sketch import SketchHeader
from attributary.workers.maths.grid import Grid
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.maths.spans import Hopping, Span
from attributary.workers.maths.window import WindowState
from attributary.workers.stream.held import Held, SourceKey
from attributary.workers.stream.open_sketches import OpenSketches
from attributary.workers.stream.views import View, WindowedView

PANE = 1000
GRID = Grid.from_rows(np.arange(64.0).reshape(32, 2), np.arange(32.0)[:, None], cells=4)


def held(
    block: int,
    pane: int,
    rows: int,
    *,
    upto: int | None = None,
    final: bool = False,
    source: SourceKey = ("rows", 0),
) -> Held:
    sketch = PaneSketch(GRID)
    rng = np.random.default_rng([block, pane + 10**6, rows])
    sketch.update(rng.uniform(0, 60, (rows, 2)), rng.uniform(0, 30, (rows, 1)))
    header = SketchHeader(
        "m", *source, block, pane, 0, block + rows if upto is None else upto, rows, final
    )
    return Held(header, sketch.to_bytes(), pane + PANE)


def _bytes(state: WindowState | None) -> bytes | None:
    return None if state is None else state.to_bytes()


@pytest.mark.parametrize("half_life", [None, 1500])
@pytest.mark.parametrize("seed", range(6))
def test_what_a_view_says_does_not_depend_on_when_it_was_asked(
    seed: int, half_life: int | None
) -> None:
    rng = random.Random(seed)
    asked, silent = View(half_life), View(half_life)
    sketches = OpenSketches()
    sources: list[SourceKey] = [("rows", 0), ("rows", 1)]
    for step in range(40):
        source = rng.choice(sources)
        block = step // 10 * 16
        pane = (step // 5 + rng.choice([0, 0, 0, -3])) * PANE
        sketches.add(held(block, pane, rng.randint(1, 6), upto=step + 1, source=source))
        if rng.random() < 0.7:
            asked.state(sketches.where(lambda _: True))
        if step % 10 == 9:
            for each in sources:
                for final in sketches.take(each, block):
                    for view in (asked, silent):
                        view.close(each, final, final.part())
    sketches.add(held(64, 99 * PANE, 3))
    found = sketches.where(lambda _: True)
    assert _bytes(asked.state(found)) == _bytes(silent.state(found)) is not None
    assert asked.closed_rows == silent.closed_rows


def test_a_view_is_the_plain_merge_of_its_sketches() -> None:
    view = View()
    first, second = held(0, 0, 50), held(16, PANE, 30)
    view.close(("rows", 0), first, first.part())
    state = view.state({("rows", 0): [second]})
    assert state is not None
    assert state.rows == 80
    plain = first.part().copy()
    plain.merge(second.part())
    assert _bytes(state) == _bytes(plain)
    assert View().state({}) is None


def test_a_decayed_view_weighs_by_age_whichever_source_is_older() -> None:
    view = View(half_life=PANE)
    old, new = held(0, 0, 8), held(0, 2 * PANE, 8, source=("rows", 1))
    for order in ([old, new], [new, old]):
        state = View(half_life=PANE).state(
            {(h.header.topic, h.header.partition): [h] for h in order}
        )
        assert state is not None
        assert state.rows == pytest.approx(8 + 8 / 4)
    view.close(("rows", 0), old, old.part())
    state = view.state({("rows", 1): [new]})
    assert state is not None
    assert state.rows == pytest.approx(10)


def test_of_two_sketches_the_one_that_counts_further_holds() -> None:
    sketches = OpenSketches()
    assert sketches.add(held(0, 0, 5, upto=5))
    assert not sketches.add(held(0, 0, 4, upto=4))
    assert not sketches.add(held(0, 0, 5, upto=5))
    assert sketches.add(held(0, 0, 9, upto=16))
    assert sketches.add(held(0, 0, 9, upto=16, final=True))
    assert not sketches.add(held(0, 0, 9, upto=16))
    assert sketches.add(held(0, PANE, 1, upto=16))
    assert [h.header.rows for h in sketches.take(("rows", 0), 0)] == [9, 1]
    assert sketches.take(("rows", 0), 0) == []
    assert sketches.block(("other", 0), 0) == {}


def test_rows_that_came_in_time_stay_so_when_the_sketch_grows() -> None:
    sketches = OpenSketches()
    early, late = held(0, 0, 5, upto=5), held(0, 0, 7, upto=9)
    early.on_time = 5
    sketches.add(early)
    sketches.add(late)
    assert sketches.block(("rows", 0), 0)[0].on_time == 5


def test_open_sketches_come_in_the_order_of_source_block_and_pane() -> None:
    sketches = OpenSketches()
    places = [
        (("rows", 1), 0, 0),
        (("rows", 0), 16, 0),
        (("rows", 0), 0, PANE),
        (("rows", 0), 0, -PANE),
        (("a", 5), 0, 0),
    ]
    for source, block, pane in places:
        sketches.add(held(block, pane, 1, source=source))
    found = [(source, h.header.block, h.header.pane) for source, h in sketches]
    assert found == sorted(places)
    chosen = sketches.where(lambda h: h.header.pane == 0)
    assert [(s, h.header.block) for s, hs in chosen.items() for h in hs] == [
        (("a", 5), 0),
        (("rows", 0), 16),
        (("rows", 1), 0),
    ]


def test_windows_take_rows_until_the_watermark_is_past_their_lateness() -> None:
    view = WindowedView(Hopping(width=4 * PANE, hop=2 * PANE, pane=PANE), lateness=PANE)
    first, second = Span(-2 * PANE, 2 * PANE), Span(0, 4 * PANE)
    assert view.live(PANE, None) == [first, second]
    assert view.live(PANE, 3 * PANE - 1) == [first, second]
    assert view.live(PANE, 3 * PANE) == [second]
    assert view.live(PANE, 5 * PANE) == []
    view.views = {first: View(), second: View()}
    assert view.settled(3 * PANE - 1) == []
    assert view.settled(5 * PANE) == [first, second]
    closing = held(0, PANE, 6)
    del view.views[first]
    view.close(("rows", 0), closing, closing.part())
    assert view.views[second].closed_rows == 6
    assert first not in view.views
