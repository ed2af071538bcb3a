"""t-digests against np.quantile, exact masses, and the inputs that have broken other libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from attributary.workers.maths.tdigest import TDigests
from attributary.workers.maths.wire import IncompatibleStateError

LEVELS = np.linspace(0, 1, 201)


def digest(values: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> TDigests:
    rows = np.asarray(values)
    rows = rows[:, None] if rows.ndim == 1 else rows
    result = TDigests(rows.shape[1])
    result.update(rows, weights)
    return result


def rank_gap(values: npt.NDArray[Any], estimate: npt.NDArray[Any], q: npt.NDArray[Any]) -> float:
    """Largest distance of q from the ranks that ``estimate`` (m,) takes among ``values`` (n,)."""
    ordered = np.sort(values)
    low = np.searchsorted(ordered, estimate, side="left") / values.size
    high = np.searchsorted(ordered, estimate, side="right") / values.size
    return float(np.max(np.maximum(np.maximum(low - q, q - high), 0.0)))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 60, 250])
def test_small_columns_equal_numpy_to_the_bit(n: int) -> None:
    values = np.random.default_rng(n).standard_normal((n, 3))
    ours = digest(values)
    np.testing.assert_array_equal(ours.quantile(LEVELS), np.quantile(values, LEVELS, axis=0))
    steps = (values[:, None, :] >= values[None]).mean(axis=1)
    np.testing.assert_allclose(ours.cdf(values), steps, rtol=1e-14)
    assert not ours.rank_error.any()


def test_few_distinct_values_stay_exact_in_any_number_of_rows() -> None:
    rng = np.random.default_rng(0)
    values = np.column_stack(
        [rng.integers(1, 7, 30_000), rng.random(30_000) < 0.03, rng.choice([0.1, 0.2, 0.3], 30_000)]
    )
    parts = [digest(part) for part in np.array_split(values, 7)]
    whole = TDigests(3)
    for part in parts:
        whole.merge(part)
    np.testing.assert_array_equal(whole.quantile(LEVELS), np.quantile(values, LEVELS, axis=0))
    for face in range(1, 7):
        mass = np.mean(values[:, 0] == face)
        step = whole.cdf([face])[0, 0] - whole.cdf([np.nextafter(face, 0)])[0, 0]
        assert step == pytest.approx(mass, abs=1e-15)
    np.testing.assert_array_equal(np.isfinite(whole.centroids.mean).sum(axis=1), [6, 2, 3])


def test_zeros_and_ones_do_not_blend() -> None:
    ours = digest(np.repeat([0.0, 1.0], [600, 400]))
    assert ours.quantile([0.5, 0.7]).ravel().tolist() == [0.0, 1.0]
    assert np.all(np.diff(ours.quantile(np.linspace(0, 1, 5001)).ravel()) >= 0)
    assert ours.cdf([-1, 0, 0.5, 1, 2]).ravel().tolist() == [0.0, 0.6, 0.6, 1.0, 1.0]


def test_an_atom_among_continuous_values_keeps_its_exact_mass() -> None:
    rng = np.random.default_rng(1)
    values = np.where(rng.random(40_000) < 0.3, 0.0, rng.standard_normal(40_000))
    ours = digest(values)
    step = ours.cdf([0.0])[0, 0] - ours.cdf([np.nextafter(0, -1)])[0, 0]
    assert step == pytest.approx(np.mean(values == 0), abs=2e-3)
    assert ours.quantile([0.4, 0.5, 0.6]).ravel().tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("kind", ["gaussian", "lognormal", "t3", "uniform"])
def test_quartiles_of_merged_parts_are_close_in_rank_and_value(kind: str) -> None:
    rng = np.random.default_rng(7)
    n, columns = 50_000, 12
    draws: dict[str, Callable[[], npt.NDArray[np.float64]]] = {
        "gaussian": lambda: rng.standard_normal((n, columns)),
        "lognormal": lambda: rng.lognormal(size=(n, columns)),
        "t3": lambda: rng.standard_t(3, size=(n, columns)),
        "uniform": lambda: rng.random((n, columns)),
    }
    values = draws[kind]()
    whole = TDigests(columns)
    for part in np.array_split(values, 10):
        whole.merge(TDigests.from_bytes(digest(part).to_bytes()))
    q = np.array([0.25, 0.5, 0.75])
    ours, true = whole.quantile(q), np.quantile(values, q, axis=0)
    # The sampling error of a quartile at this n is 1.9e-3 in rank; the digest's is well below it.
    assert max(rank_gap(values[:, j], ours[:, j], q) for j in range(columns)) < 2e-3
    gap = (ours - true)[[0, 2]] / (true[2] - true[0])
    assert np.sqrt(np.mean(gap**2)) < 1.5e-3


@pytest.mark.parametrize("order", ["ascending", "descending", "interleaved"])
def test_sorted_streams_keep_the_rank_error_below_one_percent(order: str) -> None:
    values = np.sort(np.random.default_rng(3).lognormal(sigma=2, size=60_000))
    parts = np.array_split(values, 60)
    orders: dict[str, Callable[[], list[npt.NDArray[np.float64]]]] = {
        "ascending": lambda: parts,
        "descending": lambda: parts[::-1],
        "interleaved": lambda: [np.concatenate(parts[k::10]) for k in range(10)],
    }
    parts = orders[order]()
    merged = TDigests(1)
    for part in parts:
        merged.merge(digest(part))
    streamed = digest(np.concatenate(parts))
    q = np.linspace(0.001, 0.999, 999)
    for ours in (merged, streamed):
        assert rank_gap(values, ours.quantile(q).ravel(), q) < 0.01
        true = np.searchsorted(values, values[::97], side="right") / values.size
        assert np.max(np.abs(ours.cdf(values[::97]).ravel() - true)) < 0.01


def test_a_gap_that_fills_last_costs_at_most_one_centroid() -> None:
    # Both ends arrive first: some centroid bridges the empty middle until the data turn up there.
    values = np.sort(np.random.default_rng(3).lognormal(sigma=2, size=60_000))
    parts = np.array_split(values, 60)
    ours = TDigests(1)
    for low, high in zip(parts[:30], parts[:29:-1], strict=True):
        ours.merge(digest(np.concatenate([low, high])))
    q = np.linspace(0.001, 0.999, 999)
    assert rank_gap(values, ours.quantile(q).ravel(), q) < ours.rank_error[0] < 0.02


def test_tails_are_finer_than_the_middle() -> None:
    values = np.random.default_rng(4).standard_normal(100_000)
    q = np.array([1e-4, 1e-3, 0.999, 0.9999])
    assert rank_gap(values, digest(values).quantile(q).ravel(), q) < 1e-4


@pytest.mark.parametrize("seed", range(4))
def test_quantile_and_cdf_are_monotone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.where(
        rng.random((5_000, 4)) < 0.4,
        rng.integers(-3, 3, (5_000, 4)),
        rng.standard_cauchy((5_000, 4)),
    )
    weights = rng.exponential(size=5_000) if seed % 2 else None
    ours = digest(values, weights)
    curve = ours.quantile(np.linspace(0, 1, 3_001))
    assert np.all(np.diff(curve, axis=0) >= 0)
    np.testing.assert_array_equal(curve[[0, -1]], [values.min(axis=0), values.max(axis=0)])
    assert np.all(np.diff(ours.cdf(np.linspace(-50, 50, 3_001)), axis=0) >= 0)


def test_one_value() -> None:
    ours = digest([123.0])
    assert set(ours.quantile(LEVELS).ravel()) == {123.0}
    assert ours.cdf([122.9, 123.0]).ravel().tolist() == [0.0, 1.0]


def test_merging_empty_and_one_value_digests() -> None:
    values = np.random.default_rng(5).standard_normal((3_000, 2))
    whole = digest(values)
    before = whole.to_bytes()
    whole.merge(TDigests(2))
    assert whole.to_bytes() == before
    empty = TDigests(2)
    empty.merge(whole)
    assert empty.to_bytes() == before
    one = digest([[123.0, np.nan]])
    whole.merge(one)
    assert whole.count.tolist() == [3_001, 3_000]
    assert whole.maximum.tolist() == [123.0, values[:, 1].max()]
    one.merge(TDigests(2))
    assert one.quantile([0.3])[0, 0] == 123.0
    assert np.isnan(one.quantile([0.3])[0, 1])


def test_infinite_and_missing_values_are_counted_apart() -> None:
    finite = np.random.default_rng(6).standard_normal(2_000)
    values = np.concatenate([finite, [np.nan] * 300, [np.inf] * 20, [-np.inf] * 5])
    np.random.default_rng(7).shuffle(values)
    ours = digest(values)
    assert (ours.count[0], ours.nan_count[0], ours.inf_count[0]) == (2_000, 300, 25)
    assert (ours.minimum[0], ours.maximum[0]) == (finite.min(), finite.max())
    assert rank_gap(finite, ours.quantile(LEVELS).ravel(), LEVELS) < 5e-3
    assert ours.cdf([-np.inf, np.inf, np.nan]).ravel().tolist()[:2] == [0.0, 1.0]
    assert np.isnan(ours.cdf([np.nan])[0, 0])


@pytest.mark.parametrize("n", [4, 5_000])
def test_the_largest_floats_do_not_overflow(n: int) -> None:
    values = np.random.default_rng(8).uniform(-1, 1, n) * 1.7e308
    values[:2] = [np.finfo(np.float64).max, -np.finfo(np.float64).max]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        ours = digest(values)
        other = digest(-values)
        ours.merge(other)
        curve = ours.quantile(LEVELS).ravel()
        assert np.all(np.diff(ours.cdf(np.linspace(-1, 1, 99) * 1e308).ravel()) >= 0)
    used = ours.centroids.weight > 0
    assert np.isfinite(ours.centroids.mean[used]).all()
    assert np.isfinite(curve).all()
    both = np.concatenate([values, -values])
    assert rank_gap(both, curve, LEVELS) < (5e-3 if n > 4 else 0.15)


def test_hostile_columns_side_by_side_do_not_disturb_each_other() -> None:
    n = 3_000
    rng = np.random.default_rng(9)
    plain = rng.standard_normal(n)
    limits = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max]).astype(np.float64)
    columns: dict[str, npt.NDArray[np.float64]] = {
        "plain": plain,
        "constant": np.full(n, 7.25),
        "missing": np.full(n, np.nan),
        "above": np.full(n, np.inf),
        "below": np.where(plain > 0, np.inf, -np.inf),
        "huge": np.where(plain > 0, 1e308, -1e308),
        "denormal": (rng.integers(0, 900, n) * 5e-324).astype(np.float64),
        "boolean": (plain > 1).astype(np.float64),
        "integer limits": rng.choice(limits, n),
        "twin": plain,
    }
    together = digest(np.column_stack(list(columns.values())))
    curve = together.quantile(LEVELS)
    for j, values in enumerate(columns.values()):
        alone = digest(values)
        np.testing.assert_array_equal(curve[:, j], alone.quantile(LEVELS)[:, 0])
    assert set(curve[:, 1]) == {7.25}
    assert np.isnan(curve[:, 2:5]).all()
    assert set(curve[:, 5]) <= {1e308, -1e308}
    assert rank_gap(columns["denormal"], curve[:, 6], LEVELS) < 5e-3
    assert set(curve[:, 8]) <= set(limits)
    np.testing.assert_array_equal(curve[:, 0], curve[:, 9])
    assert together.inf_count.tolist() == [0, 0, 0, n, n, 0, 0, 0, 0, 0]
    assert np.isnan(together.minimum[2:5]).all()


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.int64, np.uint64, np.float32])
def test_any_real_dtype(dtype: type) -> None:
    values: npt.NDArray[Any] = np.random.default_rng(10).integers(0, 2, (1_500, 2)).astype(dtype)
    ours = digest(values)
    expected = np.quantile(values.astype(np.float64), LEVELS, axis=0)
    np.testing.assert_array_equal(ours.quantile(LEVELS), expected)


@pytest.mark.parametrize(("n", "columns"), [(0, 3), (1, 1), (1, 5_000), (1_100, 5_000), (5, 0)])
def test_shapes(n: int, columns: int) -> None:
    ours = digest(np.random.default_rng(11).standard_normal((n, columns)))
    assert ours.count.tolist() == [n] * columns
    assert ours.quantile([0.25, 0.75]).shape == (2, columns)
    assert ours.cdf([0.0]).shape == (1, columns)
    back = TDigests.from_bytes(ours.to_bytes())
    np.testing.assert_array_equal(back.quantile(LEVELS[::50]), ours.quantile(LEVELS[::50]))


def test_the_state_is_a_function_of_the_rows_in_order() -> None:
    rng = np.random.default_rng(12)
    values = np.column_stack([rng.standard_normal(7_000), rng.integers(0, 4, 7_000)])
    weights = rng.exponential(size=7_000)
    for mass in (None, weights):
        whole = digest(values, mass)
        cut = TDigests(2)
        for rows in np.split(np.arange(7_000), np.sort(rng.integers(0, 7_000, 60))):
            cut.update(values[rows], None if mass is None else mass[rows])
            cut.quantile([0.5])
        assert cut.to_bytes() == whole.to_bytes() == digest(values, mass).to_bytes()


def test_merging_commutes_to_the_bit() -> None:
    rng = np.random.default_rng(13)
    left, right = rng.standard_normal((4_000, 3)), rng.integers(0, 9, (2_500, 3)) / 3
    one, two = digest(left), digest(right)
    one.merge(digest(right))
    two.merge(digest(left))
    assert one.to_bytes() == two.to_bytes()


def test_a_common_factor_of_the_weights_changes_nothing() -> None:
    values = np.random.default_rng(14).standard_normal((600, 2))
    plain, scaled = digest(values), digest(values, np.full(600, 0.125))
    np.testing.assert_allclose(scaled.quantile(LEVELS), plain.quantile(LEVELS), rtol=1e-13)
    np.testing.assert_allclose(scaled.weight, 600 / 8)


def test_scaling_forgets_in_proportion() -> None:
    rng = np.random.default_rng(21)
    old, new = rng.standard_normal((4_000, 1)), rng.standard_normal((4_000, 1)) + 3
    decayed = digest(old).scaled(0.25)
    np.testing.assert_allclose(decayed.quantile(LEVELS), digest(old).quantile(LEVELS), rtol=1e-12)
    decayed.merge(digest(new))
    direct = digest(np.concatenate([old, new]), np.repeat([0.25, 1.0], 4_000))
    assert decayed.weight[0] == direct.weight[0] == 5_000
    np.testing.assert_allclose(decayed.cdf(LEVELS * 6 - 1), direct.cdf(LEVELS * 6 - 1), atol=4e-3)
    gone = digest(np.column_stack([old, np.full(4_000, np.nan)])).scaled(1e-300).scaled(1e-300)
    assert gone.count.tolist() == [0, 0]
    assert gone.nan_count.tolist() == [0, 4_000]
    assert np.isnan(gone.quantile([0.5])).all()
    assert TDigests.from_bytes(gone.to_bytes()).to_bytes() == gone.to_bytes()
    for factor in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="factor"):
            decayed.scaled(factor)


def test_weights_shift_the_quantiles_to_the_weighted_distribution() -> None:
    # Importance weights exp(z - 1/2) turn a standard normal sample into one about 1.
    values = np.random.default_rng(15).standard_normal(200_000)
    weights = np.exp(values - 0.5)
    ours = digest(values, weights)
    order = np.argsort(values)
    mass = np.cumsum(weights[order]) / weights.sum()
    for q in (0.05, 0.25, 0.5, 0.75, 0.95):
        exact = values[order][np.searchsorted(mass, q)]
        assert ours.quantile([q])[0, 0] == pytest.approx(exact, abs=4e-3)
    assert ours.weight[0] == pytest.approx(weights.sum(), rel=1e-12)
    assert ours.quantile([0.5])[0, 0] == pytest.approx(1.0, abs=0.02)


def test_rows_of_weight_zero_do_not_exist() -> None:
    values = np.array([[1.0], [50.0], [2.0], [np.nan]])
    ours = digest(values, [1.0, 0.0, 1.0, 0.0])
    assert (ours.count[0], ours.nan_count[0], ours.maximum[0]) == (2, 0, 2.0)
    nothing = digest(values, np.zeros(4))
    assert nothing.count[0] == 0
    assert np.isnan(nothing.quantile([0.5])[0, 0])


def test_heavy_and_light_weights_do_not_break_the_order() -> None:
    rng = np.random.default_rng(16)
    values, weights = rng.standard_normal(3_000), 10.0 ** rng.uniform(-12, 12, 3_000)
    curve = digest(values, weights).quantile(np.linspace(0, 1, 2_001)).ravel()
    assert np.all(np.diff(curve) >= 0)


def test_more_atoms_than_places_still_fit_and_stay_ordered() -> None:
    # Every value is about as heavy as a unit, so that each asks for a place of its own.
    values = np.repeat(np.arange(700.0), 12) + np.tile(np.r_[np.zeros(8), np.full(4, 0.5)], 700)
    np.random.default_rng(17).shuffle(values)
    ours = digest(values)
    assert rank_gap(values, ours.quantile(LEVELS).ravel(), LEVELS) < 0.01
    assert np.all(np.count_nonzero(ours.centroids.weight, axis=1) <= 250)


def test_state_stays_bounded() -> None:
    rng = np.random.default_rng(18)
    ours = TDigests(3)
    sizes = []
    for _ in range(120):
        ours.update(rng.standard_cauchy((1_024, 3)))
        sizes.append(len(ours.to_bytes()))
    assert max(sizes) < 3 * 250 * 17.2 + 200
    assert len(digest(rng.random((8_192, 3))).to_bytes()) < 3 * 200 * 9.2 + 300
    assert len(digest(rng.random(8_192) < 0.5).to_bytes()) < 200


def test_reading_and_copying_leave_the_digest_alone() -> None:
    rng = np.random.default_rng(19)
    ours = digest(rng.standard_normal((1_500, 2)))
    twin = ours.copy()
    before = ours.to_bytes()
    ours.centroids.mean[:] = 0.0
    ours.count[:] = 0
    ours.quantile([0.5])[:] = 0.0
    twin.update(np.ones((2_000, 2)))
    assert ours.to_bytes() == before != twin.to_bytes()
    more = rng.standard_normal((900, 2))
    plain = digest(np.zeros((0, 2)))
    plain.merge(ours)
    assert plain.to_bytes() == before
    ours.update(more)
    again = TDigests.from_bytes(before)
    again.update(more)
    assert again.count.tolist() == ours.count.tolist() == [2_400, 2_400]


@pytest.mark.parametrize(
    ("values", "weights", "error", "message"),
    [
        (np.zeros(3), None, ValueError, r"shape \(3,\); expected \(n, 2\)"),
        (np.zeros((3, 4)), None, ValueError, r"expected \(n, 2\)"),
        (np.array([["a", "b"]]), None, TypeError, "real numbers"),
        (np.zeros((1, 2), dtype=complex), None, TypeError, "real numbers"),
        (np.zeros((3, 2)), [1.0, 2.0], ValueError, "one per row"),
        (np.zeros((2, 2)), [1.0, -1.0], ValueError, "not negative"),
        (np.zeros((2, 2)), [1.0, np.nan], ValueError, "finite"),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    values: Any, weights: Any, error: type[Exception], message: str
) -> None:
    ours = TDigests(2)
    with pytest.raises(error, match=message):
        ours.update(values, weights)
    assert not ours.count.any()


def test_arguments_out_of_range_are_refused() -> None:
    ours = digest(np.zeros((2, 2)))
    for q in ([1.1], [-0.1], [np.nan], [[0.5]]):
        with pytest.raises(ValueError, match="from 0 to 1"):
            ours.quantile(q)
    with pytest.raises(ValueError, match="expected"):
        ours.cdf(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="both must be equal"):
        ours.merge(TDigests(3))
    with pytest.raises(ValueError, match="both must be equal"):
        ours.merge(TDigests(2, compression=100))
    with pytest.raises(ValueError, match="compression"):
        TDigests(2, compression=3)
    with pytest.raises(ValueError, match="columns"):
        TDigests(-1)


def test_damaged_bytes_are_refused_or_harmless() -> None:
    """No flipped byte yields another error than ours, or a digest that breaks its own order."""
    data = digest(np.random.default_rng(20).standard_normal((40, 2))).to_bytes()
    refused = 0
    for place in range(len(data)):
        broken = bytearray(data)
        broken[place] ^= 0x41
        try:
            ours = TDigests.from_bytes(bytes(broken))
        except IncompatibleStateError:
            refused += 1
            continue
        curve = ours.quantile(LEVELS)
        assert np.all(np.diff(curve, axis=0)[:, ours.count > 0] >= 0)
    assert refused > 60


@pytest.mark.parametrize("n", [0, 700, 2_500])
def test_columns_side_by_side_are_the_columns_apart(n: int) -> None:
    rng = np.random.default_rng(21)
    values = np.column_stack([rng.normal(size=n), rng.integers(0, 4, n), np.full(n, np.nan)])
    left, right = digest(values[:, :2]), digest(values[:, 2:])
    both = left.beside(right)
    assert both.to_bytes() == digest(values).to_bytes()
    assert both.part(slice(0, 2)).to_bytes() == left.to_bytes()
    assert both.part(slice(2, 3)).to_bytes() == right.to_bytes()
    before = both.to_bytes()
    part = both.part(slice(0, 2))
    part.update(values[:9, :2] + 1.0)
    part.merge(left)
    assert both.to_bytes() == before
    with pytest.raises(ValueError, match="both must be equal"):
        left.beside(TDigests(1, compression=100))
