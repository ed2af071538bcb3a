"""Pane sketches: a function of the row sequence alone, never changed by reading."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from attributary.workers.maths.grid import Grid
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.maths.wire import IncompatibleStateError

Array = npt.NDArray[Any]

N = 3_300
BLOCKS = {"levels": [2, 3, 4], "all": [0, 1, 2]}


def rows(seed: int = 0) -> tuple[Array, Array, Array, Array, Array]:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(N, 2)), np.eye(3)[rng.integers(0, 3, N)]])
    Y = np.column_stack([X @ [1.0, -1, 2, 0, 0] + rng.normal(size=N), rng.lognormal(size=N)])
    X[rng.random(X.shape) < 0.02] = np.nan
    X[7, 0], Y[9, 1] = np.inf, np.nan
    w = rng.random(N) * 2
    w[::50] = 0.0
    hashes = rng.integers(0, 2**63, N).astype(np.uint64)
    return X, Y, w, hashes, np.arange(N, dtype=np.int64)


X, Y, W, HASHES, TIMES = rows()
GRID = Grid.from_rows(X[:500], Y[:500])


def pane(cuts: list[int], weights: Array | None = None) -> PaneSketch:
    sketch = PaneSketch(GRID, sample_size=20, blocks=BLOCKS)
    for a, b in itertools.pairwise(cuts):
        part = None if weights is None else weights[a:b]
        sketch.update(X[a:b], Y[a:b], part, HASHES[a:b], TIMES[a:b])
    return sketch


@pytest.mark.parametrize("weights", [None, W], ids=["plain", "weighted"])
def test_bit_identical_however_the_rows_are_cut(weights: Array | None) -> None:
    whole = pane([0, N], weights)
    rng = np.random.default_rng(1)
    for pieces in (3, 40, 700):
        cuts = sorted({0, N, *rng.integers(0, N, pieces).tolist()})
        cut = pane([0, *cuts, N], weights)
        assert cut.to_bytes(np.float64) == whole.to_bytes(np.float64)
        assert cut.to_bytes() == whole.to_bytes()
        assert (cut.rows, cut.weight) == (whole.rows, whole.weight)
    one_by_one = pane(list(range(1_100)), weights)
    assert one_by_one.to_bytes() == pane([0, 1_099], weights).to_bytes()


def test_reading_between_updates_changes_nothing() -> None:
    read, left_alone = (PaneSketch(GRID, sample_size=5) for _ in range(2))
    for a in range(0, N, 300):
        b = min(a + 300, N)
        for sketch in (read, left_alone):
            sketch.update(X[a:b], Y[a:b], None, HASHES[a:b], TIMES[a:b])
        before = read.to_bytes()
        read.comovement.evaluate(GRID.x_reference, GRID.y_reference)
        read.x_digests.quantile([0.5])
        assert read.weight == b
        assert read.to_bytes() == before
    assert read.to_bytes(np.float64) == left_alone.to_bytes(np.float64)


def test_ones_are_no_weights_and_zeros_no_rows() -> None:
    assert pane([0, N], np.ones(N)).to_bytes() == pane([0, N]).to_bytes()
    kept = W > 0
    short = PaneSketch(GRID, sample_size=20, blocks=BLOCKS)
    short.update(X[kept], Y[kept], W[kept], HASHES[kept], TIMES[kept])
    whole = pane([0, N], W)
    assert (whole.rows, short.rows) == (N, int(kept.sum()))
    assert whole.comovement.to_bytes() == short.comovement.to_bytes()
    assert whole.x_digests.to_bytes() == short.x_digests.to_bytes()


def test_everything_is_counted() -> None:
    sketch = pane([0, N])
    assert sketch.x_digests.nan_count.tolist() == np.isnan(X).sum(axis=0).tolist()
    assert sketch.x_digests.inf_count.tolist() == np.isinf(X).sum(axis=0).tolist()
    assert sketch.y_digests.nan_count.tolist() == [0, 1]
    expected = (np.isfinite(X).T.astype(int) @ np.isfinite(Y)).T
    np.testing.assert_array_equal(sketch.comovement.cells[0].sum(axis=(-2, -1)), expected)
    assert sketch.sample is not None
    assert sorted(sketch.sample.rows().hashes.tolist()) == sorted(HASHES.tolist())[:20]


@pytest.mark.parametrize("weights", [None, W], ids=["plain", "weighted"])
def test_bytes(weights: Array | None) -> None:
    sketch = pane([0, N], weights)
    for dtype in (np.float32, np.float64):
        data = sketch.to_bytes(dtype)
        back = PaneSketch.from_bytes(data)
        assert back.to_bytes(dtype) == data
        assert (back.rows, back.weight, back.grid) == (sketch.rows, sketch.weight, GRID)
        # What came back takes rows and merges.
        back.update(X[:3], Y[:3], None, HASHES[:3], TIMES[:3])
        back.merge(PaneSketch.from_bytes(data))
        assert back.rows == 2 * N + 3
    exact = PaneSketch.from_bytes(sketch.to_bytes(np.float64))
    np.testing.assert_array_equal(exact.comovement.cells, sketch.comovement.cells)


def test_merging_two_halves() -> None:
    merged = pane([0, 1_500])
    merged.merge(pane([1_500, N]))
    whole = pane([0, N])
    assert (merged.rows, merged.weight) == (whole.rows, whole.weight)
    np.testing.assert_allclose(merged.comovement.cells, whole.comovement.cells, atol=1e-9)
    assert merged.sample is not None
    assert whole.sample is not None
    assert merged.sample.to_bytes() == whole.sample.to_bytes()
    with pytest.raises(ValueError, match="epoch"):
        merged.merge(PaneSketch(Grid.from_rows(X, Y, epoch=1), sample_size=20, blocks=BLOCKS))
    with pytest.raises(ValueError, match="sampled"):
        merged.merge(PaneSketch(GRID, blocks=BLOCKS))
    with pytest.raises(ValueError, match="blocks"):
        merged.merge(PaneSketch(GRID, sample_size=20))


def test_empty_panes() -> None:
    empty = PaneSketch(GRID)
    back = PaneSketch.from_bytes(empty.to_bytes())
    assert (back.rows, back.weight, back.sample) == (0, 0.0, None)
    back.update(np.zeros((0, 5)), np.zeros((0, 2)))
    assert back.to_bytes() == empty.to_bytes()


def test_wrong_arguments_are_named() -> None:
    sketch = PaneSketch(GRID, sample_size=2)
    with pytest.raises(ValueError, match="hashes and event_times"):
        sketch.update(X, Y)
    with pytest.raises(ValueError, match="hashes and event_times"):
        sketch.update(X, Y, hashes=HASHES[:4], event_times=TIMES[:4])
    with pytest.raises(ValueError, match=r"X \(n, 5\)"):
        PaneSketch(GRID).update(X[:, :4], Y)
    with pytest.raises(ValueError, match="weights"):
        PaneSketch(GRID).update(X, Y, np.full(N, np.inf))
    data = pane([0, 40]).to_bytes()
    for cut in (0, 10, 200, len(data) // 2, len(data) - 1):
        with pytest.raises(IncompatibleStateError):
            PaneSketch.from_bytes(data[:cut])
