"""The co-movement grid against row-by-row sums, its byte form, and hostile columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.integrate import quad
from sklearn.metrics import mutual_info_score

from attributary.workers.maths import crossing
from attributary.workers.maths.binning import assign, midhinge_of_edges, units_of_edges
from attributary.workers.maths.cir import cir
from attributary.workers.maths.comovement import CoMovement
from attributary.workers.maths.quantiles import midhinge, quantiles
from attributary.workers.maths.readings import mutual_information, profile
from attributary.workers.maths.streamed_effect import effects
from attributary.workers.maths.wire import IncompatibleStateError

Array = npt.NDArray[Any]

Q = np.arange(1, 16) / 16
HINGES = np.array([0.25, 0.75])


def grid_for(X: Array, Y: Array) -> CoMovement:
    return CoMovement(quantiles(X, Q).T, quantiles(Y, Q).T)


def filled(X: Array, Y: Array, weights: Array | None = None) -> CoMovement:
    grid = grid_for(X, Y)
    grid.update(X, Y, weights)
    return grid


def rows(n: int = 700, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [
            rng.normal(size=n),
            rng.lognormal(size=n),
            rng.random(n) < 0.3,
            rng.random(n) < 0.03,
            rng.poisson(2.0, n),
        ]
    ).astype(float)
    Y = np.column_stack([X @ [1.0, 0.5, 1, -2, 0.2] + rng.normal(size=n), rng.lognormal(size=n)])
    return X, Y


def test_numerator_is_exact_and_denominator_too_on_an_edge() -> None:
    """At a centre that no cell straddles, nothing is estimated."""
    X, Y = rows()
    w = np.random.default_rng(1).random(700)
    for weights in (None, w):
        grid = filled(X, Y, weights)
        ones = np.ones(700) if weights is None else weights
        for k in (3, 9):
            mx, my = grid.x_edges[:, k], grid.y_edges[:, k]
            N, D = grid.evaluate(mx, my)
            x, y = X - mx, (Y - my) * ones[:, None]
            np.testing.assert_allclose(N, y.T @ x, rtol=1e-11, atol=1e-9)
            np.testing.assert_allclose(D, np.abs(y).T @ np.abs(x), rtol=1e-11)
        # Anywhere else N still is exact.
        mx, my = np.array([0.3, 2.0, 0.5, 0.1, 1.7]), np.array([0.2, 5.0])
        N, D = grid.evaluate(mx, my)
        x, y = X - mx, (Y - my) * ones[:, None]
        np.testing.assert_allclose(N, y.T @ x, rtol=1e-11, atol=1e-9)
        np.testing.assert_allclose(D, np.abs(y).T @ np.abs(x), rtol=4e-3)


def test_error_sums_against_rows() -> None:
    X, Y = rows()
    w = np.random.default_rng(2).random(700)
    for weights in (None, w):
        grid = filled(X, Y, weights)
        ones = np.ones(700) if weights is None else weights
        # About the reference both are exact, after a move of the centre the first still is.
        for centres, tolerance in (
            ((grid.x_reference, grid.y_reference), 1e-10),
            ((grid.x_reference + 0.3, grid.y_reference - 0.2), 0.02),
        ):
            sums = grid.sums(*centres)
            p = (X - centres[0])[:, None, :] * (Y - centres[1])[:, :, None] * ones[:, None, None]
            unit = (grid.y_unit[:, None] * grid.x_unit) ** 2
            square, signed = (p * p).sum(axis=0), (p * np.abs(p)).sum(axis=0)
            np.testing.assert_allclose(sums.square * unit, square, rtol=1e-10)
            assert np.abs(sums.signed * unit - signed).max() <= tolerance * square.max()
            active = (p != 0).sum(axis=0) if weights is None else None
            if active is not None:
                np.testing.assert_allclose(sums.rows, active, rtol=1e-9)


@pytest.mark.parametrize("point", [-2.0, 0.1, 0.9, 1.4, 3.0])
def test_moments_of_a_cell_by_quadrature(point: float) -> None:
    for mean, low, high in ((0.7, 0.0, 2.0), (1.6, 0.0, 2.0), (2.0, 0.0, 2.0)):
        cell = crossing.spread(np.array(mean), np.array(low), np.array(high))
        half = min(mean - low, high - mean)
        assert cell.half == pytest.approx(half)
        at, split = np.array(point), np.array(0.5)

        def expected(f: Any, mean: float = mean, half: float = half) -> float:
            if half == 0.0:
                return float(f(mean))
            ends = mean - half, mean + half
            breaks = [b for b in (point, 0.5) if ends[0] < b < ends[1]]
            return float(quad(f, *ends, points=breaks or None)[0] / (2 * half))

        found = crossing.absolute(cell, at), crossing.square(cell, at)
        assert found[0] == pytest.approx(expected(lambda u: abs(u - point)), abs=1e-12)
        assert found[1] == pytest.approx(expected(lambda u: (u - point) ** 2), abs=1e-12)
        signed = expected(lambda u: (u - point) ** 2 * np.sign(u - 0.5))
        assert crossing.signed_square(cell, at, split) == pytest.approx(signed, abs=1e-12)


def test_cells_are_closed_above() -> None:
    edges = np.array([[0.0, 0.0, 1.0], [2.0, 2.0, 2.0]])
    values = np.array([[-1.0, 0.0, 0.5, 1.0, 1.1], [1.9, 2.0, 2.1, np.nan, -np.inf]])
    assert assign(values, edges).tolist() == [[0, 0, 2, 2, 3], [0, 0, 3, 0, 0]]


def test_default_reference_and_units() -> None:
    edges = np.array([np.arange(1.0, 16), np.full(15, 5.0), np.zeros(15)])
    assert midhinge_of_edges(edges).tolist() == [8.0, 5.0, 0.0]
    assert midhinge_of_edges(np.array([[0.0, 2.0, 8.0]])).tolist() == [4.0]
    units = units_of_edges(
        np.vstack([edges, 1e-310 * np.arange(15), np.linspace(-1, 1, 15) * 1e308])
    )
    assert (np.log2(units) == np.round(np.log2(units))).all()
    assert (np.isfinite(units) & np.isfinite(1 / units) & (units > 0)).all()


def test_missing_values_leave_only_their_pair() -> None:
    X, Y = rows(400)
    X[::7, 1], X[1::9, 0], Y[::11, 1], Y[5, 0] = np.nan, np.inf, np.nan, -np.inf
    weights = np.random.default_rng(3).random(400)
    mx, my = np.zeros(5), np.zeros(2)
    grid = grid_for(X, Y)
    for w in (None, weights):
        state = grid.empty()
        state.update(X, Y, w)
        N, _ = state.evaluate(mx, my)
        for o in range(2):
            for j in range(5):
                kept = np.isfinite(X[:, j]) & np.isfinite(Y[:, o])
                alone = CoMovement(grid.x_edges[[j]], grid.y_edges[[o]])
                alone.update(X[kept][:, [j]], Y[kept][:, [o]], None if w is None else w[kept])
                np.testing.assert_allclose(state.cells[:, o, j], alone.cells[:, 0, 0], atol=1e-9)
                np.testing.assert_allclose(
                    state.moments[..., o, j], alone.moments[..., 0, 0], atol=1e-9
                )
                np.testing.assert_allclose(
                    state.output_squares()[:, o, j], alone.output_squares()[:, 0, 0], atol=1e-9
                )
                mass = 1.0 if w is None else w[kept]
                assert N[o, j] == pytest.approx((X[kept, j] * Y[kept, o] * mass).sum())
        finite = np.isfinite(X)
        total = finite.sum(axis=0) if w is None else (finite * w[:, None]).sum(axis=0)
        np.testing.assert_allclose(state.x_mass.sum(axis=1), total)


def test_small_values_on_a_large_offset_keep_their_digits() -> None:
    X, Y = rows(2_000)
    X, Y = X[:, [0, 1]], Y[:, [0]]
    near = filled(X, Y)
    far = grid_for(X + 1e8, Y - 1e8)
    for part in np.array_split(np.arange(2_000), 5):
        piece = far.empty()
        piece.update(X[part] + 1e8, Y[part] - 1e8)
        far.merge(CoMovement.from_bytes(piece.to_bytes()))
    mx, my = np.array([0.1, 1.2]), np.array([0.4])
    a, b = near.sums(mx, my), far.sums(mx + 1e8, my - 1e8)
    # 1e8 + x itself keeps eight decimals.
    for name in ("N", "D", "square", "signed"):
        one, other = getattr(a, name), getattr(b, name)
        np.testing.assert_allclose(one, other, rtol=1e-5, err_msg=name)


def test_merge_is_the_whole_and_refuses_other_grids() -> None:
    X, Y = rows(900)
    w = np.random.default_rng(4).random(900)
    for weights in (None, w):
        whole = filled(X, Y, weights)
        merged = grid_for(X, Y)
        for part in np.array_split(np.arange(900), 4):
            piece = merged.empty()
            piece.update(X[part], Y[part], None if weights is None else weights[part])
            merged.merge(piece)
        np.testing.assert_allclose(merged.cells, whole.cells, rtol=1e-12, atol=1e-10)
        np.testing.assert_allclose(merged.moments, whole.moments, rtol=1e-12, atol=1e-9)
        np.testing.assert_array_equal(merged.x_range, whole.x_range)
    # One part weighted, one not.
    mixed = filled(X, Y)
    mixed.merge(filled(X, Y, w))
    both = mixed.empty()
    both.update(np.vstack([X, X]), np.vstack([Y, Y]), np.r_[np.ones(900), w])
    np.testing.assert_allclose(mixed.output_squares(), both.output_squares(), rtol=1e-10)
    other = CoMovement(whole.x_edges + 1.0, whole.y_edges)
    with pytest.raises(ValueError, match="two grids"):
        whole.merge(other)
    with pytest.raises(ValueError, match="two grids"):
        whole.merge(CoMovement(whole.x_edges, whole.y_edges, whole.x_reference + 1))


def test_scaling_is_a_weight() -> None:
    X, Y = rows(300)
    scaled, weighted = filled(X, Y).scaled(0.25), filled(X, Y, np.full(300, 0.25))
    np.testing.assert_allclose(scaled.cells, weighted.cells, atol=1e-12)
    np.testing.assert_allclose(scaled.moments, weighted.moments, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(scaled.output_squares(), weighted.output_squares(), atol=1e-12)
    np.testing.assert_allclose(scaled.x_mass, weighted.x_mass)


@pytest.mark.parametrize("weighted", [False, True])
def test_bytes(weighted: bool) -> None:
    X, Y = rows(3_000)
    X[::5, 1], Y[::7, 1] = np.nan, np.nan
    w = np.random.default_rng(5).random(3_000) if weighted else None
    state = filled(X, Y, w)
    back = CoMovement.from_bytes(state.to_bytes(np.float64))
    for name in ("cells", "moments", "x_mass", "y_mass", "x_range", "y_range"):
        np.testing.assert_array_equal(getattr(back, name), getattr(state, name), err_msg=name)
    np.testing.assert_array_equal(back.output_squares(), state.output_squares())
    assert back.unit_weights is not weighted
    short = CoMovement.from_bytes(state.to_bytes())
    assert short.same_grid(state)
    np.testing.assert_allclose(short.cells, state.cells, rtol=6e-7, atol=1e-6)
    assert short.cells[0].sum() == pytest.approx(state.cells[0].sum(), rel=1e-7)
    assert CoMovement.from_bytes(short.to_bytes()).to_bytes() == short.to_bytes()
    assert len(state.to_bytes()) < 0.62 * len(state.to_bytes(np.float64))


def test_counts_beyond_a_byte_are_exact() -> None:
    X = np.zeros((70_000, 1))
    X[:3] = 1.0
    state = CoMovement(np.zeros((1, 15)), np.zeros((1, 15)))
    state.update(X, X)
    back = CoMovement.from_bytes(state.to_bytes())
    np.testing.assert_array_equal(back.cells, state.cells)
    assert back.cells[0, 0, 0, 0, 0] == 69_997


def test_empty_cells_cost_a_bit() -> None:
    rng = np.random.default_rng(6)
    levels = np.eye(120)[rng.integers(0, 120, 250)]
    y = rng.normal(size=(250, 1))
    state = CoMovement(np.zeros((120, 15)), quantiles(y, Q).T)
    empty = len(state.to_bytes())
    cells = 120 * 256
    # A bit each, and 18 error sums and 16 bytes of range and reference per column.
    assert empty < cells / 8 + 120 * (18 * 4 + 40) + 1_000
    state.update(levels, y)
    # 16 cells of zeros per column take a byte and one sum each, a level's rows a byte and two.
    assert len(state.to_bytes()) < empty + 120 * 16 * 5 + 250 * 9 + 120 * 8 + 1_000
    assert len(state.to_bytes()) < cells * 16 / 15


def test_sums_beyond_float32_are_written_as_float64() -> None:
    edges = np.zeros((1, 3))
    state = CoMovement(edges, edges)
    state.update(np.array([[1e30], [-1e30]]), np.array([[1e30], [1.0]]))
    back = CoMovement.from_bytes(state.to_bytes())
    np.testing.assert_array_equal(back.moments, state.moments)
    with pytest.raises(TypeError, match="float32 or float64"):
        state.to_bytes(np.int32)


def test_damaged_bytes_are_refused() -> None:
    X, Y = rows(60)
    data = filled(X, Y).to_bytes()
    for cut in (0, 3, 20, len(data) // 2, len(data) - 1):
        with pytest.raises(IncompatibleStateError):
            CoMovement.from_bytes(data[:cut])
    rng = np.random.default_rng(7)
    for _ in range(300):
        broken = bytearray(data)
        broken[int(rng.integers(0, 200))] = int(rng.integers(0, 256))
        try:
            CoMovement.from_bytes(bytes(broken))
        except (IncompatibleStateError, ValueError):
            continue


def test_mutual_information_against_scikit_learn() -> None:
    X, Y = rows(2_000)
    state = filled(X, Y)
    plain = mutual_information(state, corrected=False)
    corrected = mutual_information(state)
    x_cells, y_cells = assign(X.T, state.x_edges), assign(Y.T, state.y_edges)
    for o in range(2):
        for j in range(5):
            expected = mutual_info_score(x_cells[j], y_cells[o])
            assert plain[o, j] == pytest.approx(expected, rel=1e-9)
    rng = np.random.default_rng(8)
    noise = filled(rng.normal(size=(2_000, 6)), rng.normal(size=(2_000, 1)))
    assert mutual_information(noise, corrected=False).min() > 0.04
    assert mutual_information(noise).max() < 0.015
    assert (corrected <= plain).all()
    # A weight that is the same for all rows is no information.
    np.testing.assert_allclose(mutual_information(state.scaled(0.1)), corrected, rtol=1e-9)
    assert (mutual_information(state.empty()) == 0.0).all()


def test_profile_is_the_mean_in_each_cell() -> None:
    X, Y = rows(1_500)
    w = np.random.default_rng(9).random(1_500)
    state = filled(X, Y)
    found = profile(state)
    cells = assign(X.T, state.x_edges)
    for o in range(2):
        for j in range(5):
            for k in range(16):
                inside = Y[cells[j] == k, o]
                if inside.size == 0:
                    assert np.isnan(found.mean[o, j, k])
                    continue
                assert found.weight[o, j, k] == inside.size
                assert found.mean[o, j, k] == pytest.approx(inside.mean())
                if inside.size > 1:
                    error = inside.std(ddof=1) / np.sqrt(inside.size)
                    assert found.stderr[o, j, k] == pytest.approx(error, rel=1e-6)
    weighted = profile(filled(X, Y, w))
    k = int(cells[0][0])
    inside = cells[0] == k
    assert weighted.mean[0, 0, k] == pytest.approx(np.average(Y[inside, 0], weights=w[inside]))


def test_effect_from_cells_is_the_batchs() -> None:
    X, Y = rows(20_000)
    batch = cir(X, Y)
    state = filled(X, Y)
    effect, error = effects([state], quantiles(X, HINGES))
    # 0/1 columns and counts are atoms: the same rows, the same numbers.
    for j in (2, 3, 4):
        np.testing.assert_allclose(effect[:, j], batch.effect[:, j], rtol=1e-8)
        np.testing.assert_allclose(error[:, j], batch.effect_stderr[:, j], rtol=1e-8)
    # Here the quartiles are edges of the grid; the edge row itself may change sides.
    np.testing.assert_allclose(effect, batch.effect, atol=2e-3)
    # Off the edges a cell is divided as if it were uniform.
    coarse = CoMovement(
        quantiles(X, np.arange(1, 11) / 11).T, quantiles(Y, np.arange(1, 11) / 11).T
    )
    coarse.update(X, Y)
    effect, error = effects([coarse], quantiles(X, HINGES))
    assert (np.abs(effect - batch.effect) < batch.effect_stderr).all()
    np.testing.assert_allclose(error, batch.effect_stderr, rtol=0.05)
    # Two epochs: grids of different parts, summed about one frame.
    parts = [filled(X[:8_000], Y[:8_000]), grid_for(X[8_000:9_000], Y[8_000:9_000])]
    parts[1].update(X[8_000:], Y[8_000:])
    effect, _ = effects(parts, quantiles(X, HINGES))
    assert (np.abs(effect - batch.effect) < batch.effect_stderr).all()


HOSTILE = {
    "constant": np.full(64, 3.25),
    "all nan": np.full(64, np.nan),
    "infinite": np.r_[np.inf, -np.inf, np.arange(62.0)],
    "huge": 1e308 * np.linspace(-1, 1, 64),
    "one huge": np.r_[1e308, np.arange(63.0)],
    "denormal": np.arange(64) * 5e-324,
    "boolean": np.arange(64) % 2 == 0,
    "int64": np.array([-(2**63), 2**63 - 1] * 32),
    "offset": 1e8 + np.arange(64) / 1e3,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_columns(name: str) -> None:
    column = np.asarray(HOSTILE[name], dtype=float)
    X = np.column_stack([column, np.arange(64.0), column])
    for y in (np.arange(64.0), column):
        Y = y[:, None]
        edges = np.nan_to_num(quantiles(X, Q), nan=0.0).T, np.nan_to_num(quantiles(Y, Q), nan=0.0).T
        state = CoMovement(*edges)
        state.update(X, Y)
        batch = cir(X, Y)
        centre = midhinge(quantiles(X, HINGES)), midhinge(quantiles(Y, HINGES))
        for read in (state, CoMovement.from_bytes(state.to_bytes())):
            assert np.isfinite(read.cells).all()
            assert np.isfinite(read.moments).all()
            sums = read.sums(*centre)
            score = 0.5 + 0.5 * sums.N / np.where(sums.D > 0, sums.D, 1.0)
            np.testing.assert_allclose(score, batch.score, atol=2e-3)
            np.testing.assert_array_equal(score[:, 0], score[:, 2])
            assert np.isfinite(mutual_information(read)).all()


def test_shapes_and_sizes() -> None:
    wide = CoMovement(np.tile(np.arange(15.0), (5_000, 1)), np.arange(15.0)[None])
    X = np.random.default_rng(10).normal(7, 3, size=(40, 5_000))
    wide.update(X, X[:, :1])
    N, D = wide.evaluate(np.full(5_000, 7.0), np.array([7.0]))
    np.testing.assert_allclose(N[0], (X - 7).T @ (X[:, 0] - 7), rtol=1e-8, atol=1e-8)
    assert N[0, 0] == pytest.approx(D[0, 0])
    narrow = CoMovement(np.zeros((1, 1)), np.zeros((1, 1)))
    narrow.update(np.zeros((0, 1)), np.zeros((0, 1)))
    assert narrow.evaluate(np.zeros(1), np.zeros(1))[1] == 0.0
    narrow.update(np.array([[2.0]]), np.array([[3.0]]))
    assert narrow.evaluate(np.zeros(1), np.zeros(1))[0] == 6.0
    none = CoMovement(np.zeros((0, 3)), np.zeros((1, 3)))
    none.update(np.zeros((5, 0)), np.zeros((5, 1)))
    assert CoMovement.from_bytes(none.to_bytes()).evaluate(np.zeros(0), np.zeros(1))[0].size == 0


def test_wrong_arguments_are_named() -> None:
    edges = np.zeros((2, 3))
    state = CoMovement(edges, edges[:1])
    with pytest.raises(ValueError, match=r"expected X \(n, 2\)"):
        state.update(np.zeros((4, 3)), np.zeros((4, 1)))
    with pytest.raises(ValueError, match="weights"):
        state.update(np.zeros((2, 2)), np.zeros((2, 1)), np.array([1.0, np.nan]))
    with pytest.raises(ValueError, match="centre"):
        state.evaluate(np.zeros(3), np.zeros(1))
    with pytest.raises(ValueError, match="finite and non-decreasing"):
        CoMovement(np.array([[1.0, 0.0]]), np.zeros((1, 2)))
    with pytest.raises(ValueError, match="finite and non-decreasing"):
        CoMovement(np.array([[1.0, np.inf]]), np.zeros((1, 2)))
    with pytest.raises(ValueError, match="number of edges"):
        CoMovement(np.zeros((1, 3)), np.zeros((1, 2)))
    with pytest.raises(ValueError, match="x_reference"):
        CoMovement(edges, edges, np.zeros(3))
    with pytest.raises(ValueError, match="K"):
        CoMovement(np.zeros((1, 256)), np.zeros((1, 256)))


def test_rows_without_weights_after_weighted_ones_weigh_one() -> None:
    X, Y = rows()
    weights = np.ones(len(X))
    weights[:300] = 2.0
    split = grid_for(X, Y)
    split.update(X[:300], Y[:300], weights[:300])
    split.update(X[300:], Y[300:])
    whole = filled(X, Y, weights)
    np.testing.assert_allclose(split.output_squares(), whole.output_squares(), rtol=1e-12)
