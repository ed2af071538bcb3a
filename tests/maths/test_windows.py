"""Windows merged from panes, their arithmetic, decay, and their byte form."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from attributary.workers.maths.cir import cir
from attributary.workers.maths.decayed import DecayedState
from attributary.workers.maths.grid import Grid
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.maths.spans import Hopping, Span, decay, pane_of
from attributary.workers.maths.window import WindowState
from attributary.workers.maths.wire import IncompatibleStateError

Array = npt.NDArray[Any]

GROUPS = {"levels": [2, 3, 4], "pair": [0, 1]}


def rows(n: int = 6_000, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(n, 2)), np.eye(6)[rng.integers(0, 6, n)][:, :3]])
    y = X @ [1.0, -0.5, 1, 0, 0] + rng.normal(size=n)
    return X, np.column_stack([y, np.exp(0.4 * y)])


X, Y = rows()
GRID = Grid.from_rows(X[:1_000], Y[:1_000])


def window(
    parts: int = 6, grids: list[Grid] | None = None, blocks: Any = GROUPS, weights: Any = None
) -> WindowState:
    total = WindowState(5, 2)
    for k, part in enumerate(np.array_split(np.arange(len(X)), parts)):
        sketch = PaneSketch((grids or [GRID])[k % len(grids or [GRID])], blocks=blocks)
        sketch.update(X[part], Y[part], None if weights is None else weights[part])
        total.add(PaneSketch.from_bytes(sketch.to_bytes()))
    return total


def test_a_window_says_what_the_batch_says() -> None:
    w = np.random.default_rng(1).random(len(X))
    for weights in (None, w):
        found = window(weights=weights).evaluate(GROUPS)
        batch = cir(X, Y, weights=weights, groups=GROUPS)
        scores = found.scores
        np.testing.assert_allclose(scores.score, batch.score, atol=1e-3)
        np.testing.assert_allclose(scores.stderr, batch.stderr, rtol=0.01)
        np.testing.assert_allclose(scores.interval, batch.interval, atol=1.5e-3)
        np.testing.assert_allclose(scores.numerator, batch.numerator, rtol=0.02, atol=20)
        np.testing.assert_allclose(scores.effect_stderr, batch.effect_stderr, rtol=0.03)
        assert (np.abs(scores.effect - batch.effect) < batch.effect_stderr).all()
        np.testing.assert_array_equal(scores.rank, batch.rank)
        np.testing.assert_array_equal(scores.direction, batch.direction)
        for name in GROUPS:
            np.testing.assert_allclose(scores.blocks[name], batch.blocks[name], atol=1e-3)
            np.testing.assert_allclose(
                scores.block_stderr[name], batch.block_stderr[name], rtol=0.02
            )


def test_undeclared_blocks_have_wider_intervals_never_narrower() -> None:
    sharp = window().evaluate(GROUPS).scores
    safe = window(blocks=None).evaluate(GROUPS).scores
    for name in GROUPS:
        np.testing.assert_array_equal(safe.blocks[name], sharp.blocks[name])
        assert (safe.block_stderr[name] >= sharp.block_stderr[name] * 0.99).all()
        assert (safe.block_stderr[name] > 1.1 * sharp.block_stderr[name]).any()
    # The bound for a block of one member is its own error.
    one = window(blocks=None).evaluate({"one": [1]}).scores
    np.testing.assert_allclose(one.blocks["one"], one.score[:, 1], rtol=1e-12)
    np.testing.assert_allclose(one.block_stderr["one"], one.stderr[:, 1], rtol=1e-9)
    # Panes that declare different blocks keep none.
    mixed = window()
    mixed.merge(window(blocks=None))
    assert not mixed.overlaps[0].blocks


def test_scale_of_groups() -> None:
    batch = cir(X, Y, groups=GROUPS, scale="none").blocks
    found = window().evaluate(GROUPS, scale="none").scores.blocks
    other = window().evaluate(GROUPS).scores.blocks
    for name in GROUPS:
        np.testing.assert_allclose(found[name], batch[name], atol=1e-3)
    assert np.abs(found["pair"] - other["pair"]).max() > 1e-5


def test_epochs_are_evaluated_at_one_centre_and_summed() -> None:
    later = Grid.from_rows(X[3_000:4_000] + 0.1, Y[3_000:4_000] * 1.3, epoch=1, cells=12)
    found = window(grids=[GRID, later], blocks=None).evaluate(GROUPS)
    assert found.epochs == [0, 1]
    assert found.main_epoch == 1
    batch = cir(X, Y, groups=GROUPS)
    np.testing.assert_allclose(found.scores.score, batch.score, atol=1e-3)
    np.testing.assert_allclose(found.scores.stderr, batch.stderr, rtol=0.02)
    assert (np.abs(found.scores.effect - batch.effect) < batch.effect_stderr).all()
    foreign = Grid.from_rows(X[:900], Y[:900])
    with pytest.raises(ValueError, match="two grids"):
        window(grids=[GRID, foreign])


def test_missing_rates_and_quartiles() -> None:
    gaps = X.copy()
    gaps[::4, 0], gaps[1::10, 1], gaps[2, 1] = np.nan, np.nan, np.inf
    outputs = Y.copy()
    outputs[::3, 1] = np.nan
    sketch = PaneSketch(GRID)
    sketch.update(gaps, outputs)
    total = WindowState(5, 2)
    total.add(sketch)
    found = total.evaluate()
    missing = (~np.isfinite(gaps)).mean(axis=0)
    np.testing.assert_allclose(found.missing, missing)
    np.testing.assert_allclose(found.output_missing, [0.0, 1 / 3], rtol=1e-3)
    kept = gaps[np.isfinite(gaps[:, 1]), 1]
    np.testing.assert_allclose(
        found.x_quartiles[:, 1], np.quantile(kept, [0.25, 0.5, 0.75]), atol=0.02
    )
    np.testing.assert_allclose(total.scaled(0.5).evaluate().missing, missing)


def test_nothing_yet() -> None:
    empty = WindowState(3, 2)
    found = empty.evaluate({"g": [0, 1]})
    assert (found.scores.score == 0.5).all()
    assert (found.scores.interval == [0.0, 1.0]).all()
    assert np.isnan(found.missing).all()
    assert (found.profile, found.main_epoch, found.rows) == (None, None, 0.0)
    assert WindowState.from_bytes(empty.to_bytes()).to_bytes() == empty.to_bytes()


def test_merging_is_adding_and_shares_nothing() -> None:
    one, other = window(4), window(3)
    before = other.to_bytes()
    one.merge(other)
    assert one.rows == 2 * len(X)
    assert other.to_bytes() == before
    np.testing.assert_allclose(
        one.evaluate(GROUPS).scores.score, other.evaluate(GROUPS).scores.score, atol=1e-3
    )
    one.merge(other)
    assert other.to_bytes() == before
    sketch = PaneSketch(GRID, blocks=GROUPS)
    sketch.update(X, Y)
    bytes_before = sketch.to_bytes()
    other.add(sketch)
    other.add(sketch)
    assert sketch.to_bytes() == bytes_before
    with pytest.raises(ValueError, match="compression"):
        one.merge(WindowState(5, 2, compression=300))
    with pytest.raises(ValueError, match="features"):
        one.merge(WindowState(4, 2))


def test_bytes_keep_everything() -> None:
    w = np.random.default_rng(2).random(len(X))
    for total in (window(), window(weights=w), window().scaled(0.3), window(blocks=None)):
        data = total.to_bytes()
        back = WindowState.from_bytes(data)
        assert back.to_bytes() == data
        mine, its = total.evaluate(GROUPS), back.evaluate(GROUPS)
        np.testing.assert_array_equal(mine.scores.score, its.scores.score)
        np.testing.assert_array_equal(mine.scores.interval, its.scores.interval)
        np.testing.assert_array_equal(mine.scores.effect, its.scores.effect)
        np.testing.assert_array_equal(mine.missing, its.missing)
        for cut in (0, 30, len(data) // 2, len(data) - 1):
            with pytest.raises(IncompatibleStateError):
                WindowState.from_bytes(data[:cut])


def test_samples_travel_with_windows() -> None:
    rng = np.random.default_rng(3)
    hashes = rng.integers(0, 2**63, len(X)).astype(np.uint64)
    times = np.arange(len(X))
    total = WindowState(5, 2, sample_size=9)
    for part in np.array_split(np.arange(len(X)), 3):
        sketch = PaneSketch(GRID, sample_size=9)
        sketch.update(X[part], Y[part], hashes=hashes[part], event_times=times[part])
        total.add(sketch)
    back = WindowState.from_bytes(total.to_bytes())
    assert back.sample is not None
    assert sorted(back.sample.rows().hashes.tolist()) == sorted(hashes.tolist())[:9]


# --- windows in time


def test_panes_and_windows_are_half_open() -> None:
    assert pane_of(9_999, 10_000) == Span(0, 10_000)
    assert pane_of(10_000, 10_000) == Span(10_000, 20_000)
    assert pane_of(-1, 10_000) == Span(-10_000, 0)
    assert Span(0, 10).holds(0)
    assert not Span(0, 10).holds(10)
    tumbling = Hopping.tumbling(60_000, 10_000)
    assert tumbling.spans_of(59_999) == [Span(0, 60_000)]
    assert tumbling.spans_of(60_000) == [Span(60_000, 120_000)]


@pytest.mark.parametrize(("width", "hop", "pane"), [(60, 60, 10), (60, 20, 10), (30, 10, 10)])
def test_every_pane_is_in_the_windows_that_list_it(width: int, hop: int, pane: int) -> None:
    plan = Hopping(width, hop, pane)
    for time in range(-130, 130):
        spans = plan.spans_of(time)
        assert len(spans) == width // hop
        start = pane_of(time, pane).start
        everywhere = [Span(s, s + width) for s in range(-600, 600) if s % hop == 0]
        assert spans == [span for span in everywhere if start in plan.panes(span)]
        assert all(span.holds(time) for span in spans)


def test_watermarks_close_each_window_once() -> None:
    plan = Hopping(60, 20, 10)
    closed: list[Span] = []
    after = None
    for watermark in (5, 19, 20, 21, 47, 60, 60, 135):
        fresh = plan.closed(after, watermark, oldest=5)
        assert all(span.end <= watermark for span in fresh)
        if fresh:
            after = fresh[-1].end
        closed += fresh
    assert closed == [Span(end - 60, end) for end in range(20, 121, 20)]
    assert plan.closed(None, 59, oldest=45) == []
    assert plan.closed(None, 60, oldest=45) == [Span(0, 60)]
    assert plan.needed_from(135) == 80
    assert plan.needed_from(135, lateness=30) == 60
    assert all(span.end > 135 for span in plan.spans_of(135))


@pytest.mark.parametrize("plan", [(60, 25, 5), (60, 20, 15), (10, 20, 5), (0, 0, 0), (20, 20, 40)])
def test_windows_must_be_whole_panes(plan: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="multiple"):
        Hopping(*plan)


def test_decay_weighs_panes_by_their_age_in_any_order() -> None:
    assert decay(0, 10) == 1.0
    assert decay(30, 10) == 0.125
    assert decay(-5, 10) == 1.0
    with pytest.raises(ValueError, match="half-life"):
        DecayedState(WindowState(5, 2), half_life=0)
    ends = [10_000, 20_000, 30_000, 60_000]
    parts = np.array_split(np.arange(len(X)), len(ends))
    panes = []
    for part in parts:
        sketch = PaneSketch(GRID, blocks=GROUPS)
        sketch.update(X[part], Y[part])
        panes.append(WindowState.of(PaneSketch.from_bytes(sketch.to_bytes(np.float64))))
    weights = np.concatenate(
        [np.full(len(p), 0.5 ** ((60_000 - e) / 20_000)) for p, e in zip(parts, ends, strict=True)]
    )
    batch = cir(X, Y, weights=weights, groups=GROUPS)
    results = []
    for order in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 0, 1]):
        view = DecayedState(WindowState(5, 2), half_life=20_000)
        for k in order:
            view.add(panes[k], ends[k])
        assert view.as_of == 60_000
        assert view.window.weight == pytest.approx(weights.sum())
        found = view.window.evaluate(GROUPS)
        assert found.rows == pytest.approx(weights.sum())
        # The digests' quartiles move the centre by a few thousandths of a rank.
        assert (np.abs(found.scores.score - batch.score) < 0.1 * batch.stderr).all()
        np.testing.assert_allclose(found.scores.effective_rows, batch.effective_rows, rtol=0.02)
        results.append(found.scores.score)
    np.testing.assert_allclose(results[1], results[0], atol=1e-3)
    np.testing.assert_allclose(results[2], results[0], atol=1e-3)
    with pytest.raises(ValueError, match="factor of weights"):
        panes[0].scaled(-0.5)
