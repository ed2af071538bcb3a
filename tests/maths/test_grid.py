"""Grids from baselines of every kind, their JSON form, and data that leaves them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from attributary.workers.maths.comovement import CoMovement
from attributary.workers.maths.grid import Grid, baseline_shares, departed

Array = npt.NDArray[Any]


def state(grid: Grid, X: Array, Y: Array | None = None) -> CoMovement:
    kept = grid.comovement()
    kept.update(X, X[:, :1] if Y is None else Y)
    return kept


def test_edges_are_quantiles_and_the_reference_the_midhinge() -> None:
    X = np.random.default_rng(1).lognormal(size=(500, 3))
    grid = Grid.from_rows(X, X[:, :1], cells=8, epoch=4)
    expected = np.quantile(X, np.arange(1, 8) / 8, axis=0).T
    np.testing.assert_allclose(grid.x_edges, expected, rtol=1e-13)
    np.testing.assert_allclose(grid.x_reference, np.quantile(X, [0.25, 0.75], axis=0).mean(axis=0))
    assert (grid.epoch, grid.columns, grid.outputs, grid.cells) == (4, 3, 1, 8)
    np.testing.assert_allclose(baseline_shares(grid.x_edges), 1 / 8)


def test_json_keeps_every_bit() -> None:
    X = np.random.default_rng(2).normal(size=(99, 4)) * [1e-300, 1, 1e300, 1 / 3]
    grid = Grid.from_rows(X, X[:, 1:2])
    again = Grid.from_dict(json.loads(json.dumps(grid.to_dict())))
    assert again == grid
    assert hash(again) == hash(grid)
    assert Grid.from_rows(X, X[:, 1:2], epoch=1) != grid
    with pytest.raises(ValueError, match="y_edges"):
        Grid.from_dict({"epoch": 1, "x_edges": [[0.0]]})


def test_a_grid_cannot_be_changed() -> None:
    grid = Grid.from_rows(np.zeros((3, 1)), np.zeros((3, 1)))
    with pytest.raises(ValueError, match="read-only"):
        grid.x_edges[0, 0] = 1.0
    with pytest.raises(AttributeError):
        grid.epoch = 1  # type: ignore[misc]


@pytest.mark.parametrize("n", [0, 1, 2, 5, 40])
def test_hostile_baselines(n: int) -> None:
    ramp = np.arange(float(n))
    X = np.column_stack(
        [
            np.full(n, 7.5),
            np.full(n, np.nan),
            np.where(ramp % 2 == 0, np.inf, ramp),
            ramp % 2,
            1e308 * (-1.0) ** ramp,
            5e-324 * ramp,
        ]
    )
    grid = Grid.from_rows(X, X[:, ::-1])
    for edges in (grid.x_edges, grid.y_edges):
        assert np.isfinite(edges).all()
        assert (np.diff(edges, axis=1) >= 0).all()
    if n:
        assert (grid.x_edges[0] == 7.5).all()
        assert set(grid.x_edges[3]) <= {0.0, 0.5, 1.0} or n < 17
    assert (grid.x_edges[1] == 0.0).all()
    kept = state(grid, X, X[:, ::-1])
    N, D = kept.evaluate(grid.x_reference, grid.y_reference)
    assert not np.isnan(D).any()
    assert (np.abs(N) <= D).all()


def test_baseline_shares_of_ties() -> None:
    edges = np.array([[0.0, 0, 0, 1], [2, 2, 2, 2], [1, 2, 3, 4]])
    expected = [[0.6, 0, 0, 0.2, 0.2], [0.8, 0, 0, 0, 0.2], [0.2] * 5]
    np.testing.assert_allclose(baseline_shares(edges), expected)


def test_departure() -> None:
    rng = np.random.default_rng(3)
    X = np.column_stack(
        [
            rng.normal(size=4_000),
            rng.random(4_000) < 0.5,
            rng.random(4_000) < 0.02,
            np.where(rng.random(4_000) < 0.6, 0.0, rng.normal(size=4_000)),
            rng.poisson(3, 4_000),
            np.full(4_000, 2.0),
        ]
    ).astype(float)
    grid = Grid.from_rows(X[:1_000], X[:1_000, :1])
    assert not departed(state(grid, X[1_000:])).any
    # A step of 3 sd leaves the grid, feature and output alike; half a sd does not.
    step = X.copy()
    step[:, 0] += 3.0
    found = departed(state(grid, step))
    assert found.x.tolist() == [True, False, False, False, False, False]
    assert found.y.tolist() == [True]
    near = X.copy()
    near[:, 0] += 0.5
    assert not departed(state(grid, near)).any
    # 0/1 columns stay whatever their shares become: their cells are exact.
    flipped = X.copy()
    flipped[:, 1:3] = 1.0 - flipped[:, 1:3] * (rng.random((4_000, 2)) < 0.5)
    assert not departed(state(grid, flipped)).x[1:3].any()
    # Counts leave when they grow past the last edge, a constant when it starts to vary.
    moved = X.copy()
    moved[:, 4] += 10 * rng.integers(0, 2, 4_000)
    moved[:, 5] = rng.normal(size=4_000)
    assert departed(state(grid, moved)).x.tolist() == [False, False, False, False, True, True]
    # A few rows prove nothing.
    assert not departed(state(grid, step[:50])).any
    assert not departed(grid.comovement()).any


def test_departure_survives_the_wire() -> None:
    rng = np.random.default_rng(4)
    X = np.column_stack([rng.normal(size=900), rng.random(900) < 0.3]).astype(float)
    grid = Grid.from_rows(X, X[:, :1])
    for shift in (0.0, 3.0):
        moved = X + np.array([shift, 0.0])
        kept = state(grid, moved)
        read = CoMovement.from_bytes(kept.to_bytes())
        assert departed(read).x.tolist() == departed(kept).x.tolist() == [shift > 0, False]


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="2 to 256"):
        Grid.from_rows(np.zeros((3, 1)), np.zeros((3, 1)), cells=1)
    with pytest.raises(ValueError, match=r"X \(n, d\)"):
        Grid.from_rows(np.zeros((3, 1)), np.zeros(3))


def test_values_that_hold_more_than_a_cell_have_one_of_their_own() -> None:
    rng = np.random.default_rng(11)
    visibility = rng.choice([10.0, 9.0, 8.0, 7.0, 6.0, 5.0, *np.arange(0, 4, 0.25)], size=2_000)
    visibility[rng.random(2_000) < 0.7] = 10.0
    inflated = np.where(rng.random(2_000) < 0.5, 0.0, rng.normal(size=2_000))
    X = np.column_stack([visibility, inflated])
    grid = Grid.from_rows(X, X)
    for column, value in ((0, 10.0), (1, 0.0)):
        cell = np.searchsorted(grid.x_edges[column], X[:, column], side="left")
        alone = X[cell == cell[X[:, column] == value][0], column]
        assert set(alone.tolist()) == {value}
        # The others still share the cells that are left.
        assert len(np.unique(cell)) >= 14
    # What the midhinge of a tied column lies between is then exact, whichever value it is.
    y = visibility + rng.normal(size=2_000)
    kept = Grid.from_rows(X[:, :1], y[:, None]).comovement()
    kept.update(X[:, :1], y[:, None])
    centre = np.array([np.median(y)])
    for middle in (9.5, 10.0):
        product = (visibility - middle) * (y - centre)
        N, D = kept.evaluate(np.array([middle]), centre)
        assert N.item() == pytest.approx(product.sum(), rel=1e-9)
        assert D.item() == pytest.approx(np.abs(product).sum(), rel=2e-3)


def test_few_values_have_a_cell_each() -> None:
    X = np.repeat(np.arange(16.0), 3)[:, None]
    cells = np.searchsorted(Grid.from_rows(X, X).x_edges[0], np.arange(16.0), side="left")
    assert cells.tolist() == list(range(16))
