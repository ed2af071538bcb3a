"""The streamed score against the batch score, and the coverage of intervals computed online."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from attributary.workers.maths.cir import cir
from attributary.workers.maths.grid import Grid, departed
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.maths.window import WindowState

Array = npt.NDArray[Any]

ROWS, COLUMNS, PANES = 50_000, 30, 10
SHIFTED = {"linear drift", "step"}


def stream(kind: str) -> tuple[Array, Array]:
    rng = np.random.default_rng(11)
    shape = (ROWS, COLUMNS)
    normal, time = rng.normal(size=shape), np.arange(ROWS)[:, None] / ROWS
    X = {
        "gaussian": normal,
        "lognormal": np.exp(normal),
        "heavy tails": rng.standard_t(3, size=shape),
        "linear drift": normal + 2.0 * time,
        "step": normal + 3.0 * (time > 0.5),
        "binary": (rng.random(shape) < np.linspace(0.01, 0.9, COLUMNS)).astype(float),
        "counts": rng.poisson(np.linspace(0.3, 9.0, COLUMNS), size=shape).astype(float),
    }[kind]
    slopes = rng.normal(size=COLUMNS) * np.linspace(0.0, 1.0, COLUMNS)
    y = X @ slopes + rng.normal(size=ROWS)
    return X, y[:, None]


def streamed(X: Array, Y: Array) -> WindowState:
    """Sketch ten panes, each through its bytes; a pane whose data has left the grid starts a new
    epoch from its own first rows, as ingest does."""
    total = WindowState(X.shape[1], Y.shape[1])
    grid = Grid.from_rows(X[:1_024], Y[:1_024])
    for rows in np.array_split(np.arange(len(X)), PANES):
        sketch = PaneSketch(grid)
        sketch.update(X[rows], Y[rows])
        if departed(sketch.comovement).any:
            grid = Grid.from_rows(X[rows[:1_024]], Y[rows[:1_024]], epoch=grid.epoch + 1)
            sketch = PaneSketch(grid)
            sketch.update(X[rows], Y[rows])
        total.add(PaneSketch.from_bytes(sketch.to_bytes()))
    return total


@pytest.mark.parametrize(
    "kind",
    ["gaussian", "lognormal", "heavy tails", "linear drift", "step", "binary", "counts"],
)
def test_streamed_equals_batch(kind: str) -> None:
    X, Y = stream(kind)
    total = streamed(X, Y)
    assert (len(total.epochs) > 1) == (kind in SHIFTED)
    found, batch = total.evaluate().scores, cir(X, Y)
    worst = np.abs(found.score - batch.score).max()
    assert worst <= (2e-3 if kind == "step" else 1e-3)
    np.testing.assert_allclose(found.stderr, batch.stderr, rtol=0.05)
    assert np.abs(found.strength_low - batch.strength_low).max() <= 4e-3
    # The effect: cells that a quartile divides are coarse where the data has moved.
    gap = np.abs(found.effect - batch.effect)
    assert gap.max() <= 0.02 * np.abs(batch.effect).max()
    assert kind in SHIFTED or (gap <= 0.5 * batch.effect_stderr).all()
    np.testing.assert_allclose(found.effect_stderr, batch.effect_stderr, rtol=0.1)


def test_an_old_grid_would_be_wrong() -> None:
    """The reason for epochs: the last window of a stream with a step, on both grids."""
    X, Y = stream("step")
    last = slice(ROWS - 5_000, ROWS)
    batch = cir(X[last], Y[last]).score
    gaps = []
    for rows in (slice(0, 1_024), slice(last.start, last.start + 1_024)):
        sketch = PaneSketch(Grid.from_rows(X[rows], Y[rows]))
        sketch.update(X[last], Y[last])
        total = WindowState(COLUMNS, 1)
        total.add(sketch)
        gaps.append(np.abs(total.evaluate().scores.score - batch).max())
    assert gaps[1] < 2e-3 < 2e-2 < gaps[0]


# --- coverage

KINDS = ("gaussian", "lognormal", "t3", "null", "common", "rare")
SLOPES = np.array([0.7, 0.4, 0.7, 0.0, 0.8, 1.0])
REPETITIONS = 1_000


def draw(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """One feature of each kind, and an output of its own that it drives: y = slope x + noise."""
    X = np.column_stack(
        [
            rng.normal(size=n),
            rng.lognormal(size=n),
            rng.standard_t(3, size=n),
            rng.normal(size=n),
            rng.random(n) < 0.3,
            rng.random(n) < 0.02,
        ]
    ).astype(float)
    return X, X * SLOPES + rng.normal(size=(n, len(KINDS)))


@pytest.fixture(scope="module")
def truth() -> Array:
    """CIR of two million rows: known to 6e-4, a fiftieth of the narrowest interval's width."""
    rng = np.random.default_rng(100)
    return np.array([cir(*draw(250_000, rng)).score.diagonal() for _ in range(8)]).mean(axis=0)


@pytest.mark.parametrize("n", [200, 2_000])
def test_intervals_cover(n: int, truth: Array) -> None:
    """95 % intervals from two panes through their bytes hold the true score in >= 93 %."""
    rng = np.random.default_rng(n)
    grid = Grid.from_rows(*draw(1_024, rng))
    own = np.arange(len(KINDS))
    hits, width = np.zeros(len(KINDS)), np.zeros(len(KINDS))
    for _ in range(REPETITIONS):
        X, Y = draw(n, rng)
        total = WindowState(len(KINDS), len(KINDS))
        for rows in np.array_split(np.arange(n), 2):
            sketch = PaneSketch(grid)
            sketch.update(X[rows], Y[rows])
            total.add(PaneSketch.from_bytes(sketch.to_bytes()))
        low, high = np.moveaxis(total.evaluate().scores.interval[own, own], -1, 0)
        hits += (low <= truth) & (truth <= high)
        width += high - low
    coverage = dict(zip(KINDS, hits / REPETITIONS, strict=True))
    assert min(coverage.values()) >= 0.93, coverage
    # Nor are they wide for nothing: the light-tailed ones stay near the nominal level.
    for kind in ("gaussian", "null", "common"):
        assert coverage[kind] <= 0.99, coverage
    assert (width / REPETITIONS < [0.25, 0.5, 0.5, 0.25, 0.25, 0.85]).all()


# --- hostile columns, online

N = 3_000
RAMP = np.arange(float(N))
HOSTILE = {
    "constant": np.full(N, 0.7),
    "other constant": np.full(N, -1e9),
    "all nan": np.full(N, np.nan),
    "some infinite": np.where(RAMP % 7 == 0, np.inf, RAMP % 11),
    "huge": 1e308 * np.sin(RAMP),
    "one huge": np.where(RAMP == 1_500, 1e308, np.cos(RAMP)),
    "denormal": 5e-324 * (RAMP % 50),
    "boolean": RAMP % 2,
    "rare": (RAMP % 97 == 0).astype(float),
    "int64": np.where(RAMP % 3 == 0, -(2.0**63), 2.0**63),
    "offset": 1e8 + np.sin(RAMP),
    "late": np.where(RAMP < 1_500, 0.0, np.sin(RAMP)),
}
X_HOSTILE = np.column_stack([*HOSTILE.values(), HOSTILE["offset"]])


@pytest.mark.parametrize(
    "baseline",
    [X_HOSTILE[:1_000], np.zeros((1, len(HOSTILE) + 1)), X_HOSTILE[:0]],
    ids=["own rows", "one row of zeros", "nothing"],
)
def test_hostile_columns_online(baseline: Array) -> None:
    y = np.sin(RAMP) + 0.3 * np.cos(1.7 * RAMP)
    Y = np.column_stack([y, X_HOSTILE[:, 4]])
    grid = Grid.from_rows(baseline, Y[: len(baseline)])
    total = WindowState(X_HOSTILE.shape[1], 2)
    for rows in np.array_split(np.arange(N), 4):
        sketch = PaneSketch(grid)
        sketch.update(X_HOSTILE[rows], Y[rows])
        total.add(PaneSketch.from_bytes(sketch.to_bytes()))
    found = total.evaluate({"g": list(range(X_HOSTILE.shape[1]))})
    scores = found.scores
    for values in (scores.score, scores.interval, scores.stderr, scores.effective_rows):
        assert np.isfinite(values).all()
    assert (
        (scores.interval[..., 0] <= scores.score) & (scores.score <= scores.interval[..., 1])
    ).all()
    assert np.isfinite(scores.blocks["g"]).all()
    assert np.isfinite(found.mutual_information).all()
    names = list(HOSTILE)
    for name in ("constant", "other constant", "all nan"):
        j = names.index(name)
        assert (scores.score[:, j] == 0.5).all(), name
        assert (scores.interval[:, j] == [0.0, 1.0]).all()
        assert np.isnan(scores.effect[:, j]).all()
    # The same column twice.
    np.testing.assert_array_equal(scores.score[:, names.index("offset")], scores.score[:, -1])
    assert found.missing[names.index("all nan")] == 1.0
    assert found.missing[names.index("some infinite")] == pytest.approx(1 / 7, abs=1e-3)
    if len(baseline) > 1:
        batch = cir(X_HOSTILE, Y)
        np.testing.assert_allclose(scores.score[0], batch.score[0], atol=3e-3)


@pytest.mark.parametrize(("n", "d", "c"), [(0, 1, 1), (1, 1, 1), (2, 1, 3), (60, 5_000, 1)])
def test_extreme_shapes_online(n: int, d: int, c: int) -> None:
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(n, d)), rng.normal(size=(n, c))
    sketch = PaneSketch(Grid.from_rows(X, Y, cells=8))
    sketch.update(X, Y)
    total = WindowState(d, c)
    total.add(PaneSketch.from_bytes(sketch.to_bytes()))
    found = total.evaluate().scores
    assert found.score.shape == (c, d)
    np.testing.assert_allclose(found.score, cir(X, Y).score, atol=0.05)
    assert sorted(found.rank[0].tolist()) == list(range(1, d + 1))
