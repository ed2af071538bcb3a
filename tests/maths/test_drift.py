"""Drift figures against scipy on the raw rows, closed forms, and undefined cases."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from attributary.workers.maths.drift import digest_drift, ks_critical
from attributary.workers.maths.drift_masses import (
    PSI_FLOOR,
    category_change,
    missing_change,
    stability,
)
from attributary.workers.maths.tdigest import TDigests


def digest(values: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> TDigests:
    rows = np.asarray(values)
    rows = rows[:, None] if rows.ndim == 1 else rows
    result = TDigests(rows.shape[1])
    result.update(rows, weights)
    return result


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 40), (37, 120), (250, 250)])
def test_small_samples_are_exact(n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    left = np.column_stack([rng.standard_normal(n), rng.integers(0, 4, n), np.full(n, 2.0)])
    right = np.column_stack([rng.standard_normal(m) + 1, rng.integers(1, 6, m), np.full(m, 2.5)])
    drift = digest_drift(digest(left), digest(right))
    for j in range(3):
        assert drift.ks[j] == pytest.approx(stats.ks_2samp(left[:, j], right[:, j]).statistic)
        exact = stats.wasserstein_distance(left[:, j], right[:, j])
        assert drift.wasserstein[j] == pytest.approx(exact, rel=1e-12)
    assert drift.ks_error.tolist() == drift.wasserstein_error.tolist() == [0.0, 0.0, 0.0]
    assert drift.wasserstein[2] == 0.5
    assert drift.wasserstein_scaled.tolist()[2] is None


@pytest.mark.parametrize("shift", [0.0, 0.1, 2.0])
def test_large_samples_are_within_their_stated_resolution(shift: float) -> None:
    rng = np.random.default_rng(5)
    left, right = rng.standard_normal((20_000, 3)), rng.standard_normal((15_000, 3)) + shift
    left[:, 1], right[:, 1] = np.exp(left[:, 1]), np.exp(right[:, 1])
    left[:, 2] = np.where(rng.random(20_000) < 0.4, 0, left[:, 2])
    drift = digest_drift(digest(left), digest(right))
    for j in range(3):
        exact = stats.ks_2samp(left[:, j], right[:, j]).statistic
        assert abs(drift.ks[j] - exact) < drift.ks_error[j] < 0.03
        assert abs(drift.ks[j] - exact) < 3e-3
        area = stats.wasserstein_distance(left[:, j], right[:, j])
        assert abs(drift.wasserstein[j] - area) < drift.wasserstein_error[j]
        spread = max(np.ptp(np.quantile(side[:, j], [0.05, 0.95])) for side in (left, right))
        assert abs(drift.wasserstein[j] - area) < 1e-3 * spread
        iqr = np.subtract(*np.quantile(left[:, j], [0.75, 0.25]))
        assert drift.wasserstein_scaled[j] == pytest.approx(drift.wasserstein[j] / iqr, rel=5e-3)


def test_the_critical_value_is_the_classical_one_and_is_exceeded_that_often() -> None:
    assert ks_critical(100, 100) == pytest.approx(1.358 * np.sqrt(2 / 100), rel=1e-3)
    assert ks_critical([0, 5], [10, 0]).tolist() == [1.0, 1.0]
    rng = np.random.default_rng(6)
    left, right = rng.standard_normal((240, 2_000)), rng.standard_normal((180, 2_000))
    drift = digest_drift(digest(left), digest(right))
    # Conservative for finite samples: the exact probability at these sizes is a little below 5 %.
    assert 0.03 < np.mean(drift.ks > drift.ks_critical) < 0.06
    rare = digest_drift(digest(left), digest(right), level=0.001)
    assert np.all(rare.ks_critical > drift.ks_critical)
    few = digest_drift(digest(left), digest(right), effective_rows=(60, 45))
    np.testing.assert_allclose(few.ks_critical, 2 * drift.ks_critical)


def test_weights_count() -> None:
    values = np.array([0.0, 1.0, 2.0])
    drift = digest_drift(digest(values, [1.0, 1.0, 2.0]), digest([0.0, 1.0, 2.0, 2.0]))
    assert drift.ks[0] == pytest.approx(0, abs=1e-15)
    assert drift.wasserstein[0] == pytest.approx(0, abs=1e-15)


def test_symmetry_and_identity() -> None:
    rng = np.random.default_rng(7)
    left, right = digest(rng.standard_cauchy((3_000, 2))), digest(rng.standard_cauchy((900, 2)))
    there, back = digest_drift(left, right), digest_drift(right, left)
    np.testing.assert_array_equal(there.ks, back.ks)
    np.testing.assert_allclose(there.wasserstein, back.wasserstein, rtol=1e-12)
    same = digest_drift(left, left)
    assert same.ks.tolist() == same.wasserstein.tolist() == [0.0, 0.0]


def test_hostile_columns_yield_numbers_or_null() -> None:
    rng = np.random.default_rng(8)
    n = 600
    big = np.finfo(np.float64).max
    plain = rng.standard_normal(n)
    left = np.column_stack(
        [
            plain,
            np.full(n, np.nan),
            np.full(n, 3.0),
            np.clip(plain, -1.5, 1.5) * 1e308,
            np.full(n, -big),
            plain * 5e-324,
        ]
    )
    right = np.column_stack(
        [np.full(n, np.nan), plain, np.full(n, 3.0), plain, np.full(n, big), plain]
    )
    with np.errstate(invalid="raise", divide="raise", over="raise"):
        drift = digest_drift(digest(left), digest(right))
    for member in drift:
        assert json.loads(json.dumps(member.tolist(), allow_nan=False))[:2] == [None, None]
        assert np.isfinite(member.data).all()
    assert drift.ks.tolist()[2:] == [0.0, drift.ks[3], 1.0, pytest.approx(0.5, abs=0.06)]
    assert drift.wasserstein.tolist()[2] == 0.0
    # The distance of the largest floats is beyond them.
    assert drift.wasserstein.tolist()[4] is None
    assert drift.wasserstein.tolist()[3] == pytest.approx(
        np.mean(np.abs(np.sort(left[:, 3]) / 1e300)) * 1e300, rel=1e-2
    )


def test_empty_windows_and_no_columns() -> None:
    assert digest_drift(TDigests(2), TDigests(2)).ks.tolist() == [None, None]
    assert digest_drift(TDigests(0), TDigests(0)).wasserstein.tolist() == []
    with pytest.raises(ValueError, match="2 and 3 columns"):
        digest_drift(TDigests(2), TDigests(3))
    with pytest.raises(ValueError, match="level"):
        digest_drift(TDigests(2), TDigests(2), level=1.0)


def test_psi_of_known_shares() -> None:
    # (.5 - .25) ln 2 + (.5 - .75) ln(.5/.75)
    found = stability([1, 3], [5, 5])
    assert found.psi.tolist() == pytest.approx(0.25 * np.log(2) + 0.25 * np.log(1.5))
    many = stability(np.ones((3, 4)), [[2, 2, 2, 2], [1, 0, 0, 3], [8, 0, 0, 0]])
    assert many.psi.shape == (3,)
    assert many.psi[0] == 0.0


def test_psi_is_finite_for_empty_and_new_bins() -> None:
    found = stability([[10, 0, 90], [50, 50, 0]], [[0, 10, 90], [0, 0, 100]]).psi
    share = 0.1 - PSI_FLOOR
    assert found[0] == pytest.approx(2 * share * np.log(0.1 / PSI_FLOOR))
    assert np.isfinite(found.data).all()
    unused = stability([10, 90, 0, 0], [20, 80, 0, 0]).psi
    assert unused == pytest.approx(float(stability([10, 90], [20, 80]).psi))


def test_psi_exceeds_its_critical_value_as_often_as_stated() -> None:
    rng = np.random.default_rng(9)
    shares = np.full(10, 0.1)
    found = stability(rng.multinomial(2_000, shares, 4_000), rng.multinomial(500, shares, 4_000))
    assert np.mean(found.psi > found.critical) == pytest.approx(0.05, abs=0.014)
    halved = stability(np.ones(10), np.ones(10), effective_rows=(1_000, 250))
    whole = stability(np.ones(10), np.ones(10), effective_rows=(2_000, 500))
    assert float(halved.critical) == pytest.approx(2 * float(whole.critical))


def test_psi_is_null_where_undefined() -> None:
    found = stability([[0, 0], [1, 1], [4, 0]], [[1, 1], [0, 0], [9, 0]])
    assert found.psi.tolist() == found.critical.tolist() == [None, None, None]
    for masses in ([-1, 2], [np.nan, 1], [np.inf, 1]):
        with pytest.raises(ValueError, match="not negative"):
            stability(masses, [1, 1])
    with pytest.raises(ValueError, match="bins"):
        stability([1, 1], [1, 1, 1])
    with pytest.raises(ValueError, match="floor"):
        stability([1, 1], [1, 1], floor=0.0)


def test_categories_that_appear_and_vanish() -> None:
    found = category_change({"a": 60, "b": 39, "c": 1, "z": 0}, {"a": 60, "d": 30, "e": 10})
    assert found.appeared is not None
    assert found.vanished is not None
    assert list(found.appeared) == ["d", "e"]
    assert found.appeared["d"].share == pytest.approx(0.3)
    assert found.appeared["e"].chance == pytest.approx(0.9**100)
    # One row in a hundred is missed by a hundred more rows more than every third time.
    assert found.vanished["c"].chance == pytest.approx(0.99**100)
    assert found.distance == pytest.approx(0.4)
    assert category_change({"a": 1}, {"b": 1}).distance == 1.0
    assert category_change({"a": 2}, {"a": 7}) == ({}, {}, 0.0)
    for empty in ({}, {"a": 0}):
        assert category_change(empty, {"a": 1}) == (None, None, None)
        assert category_change({"a": 1}, empty) == (None, None, None)
    with pytest.raises(ValueError, match="not negative"):
        category_change({"a": -1}, {"a": 1})


def test_missing_rates() -> None:
    # Newcombe 1998, table II, contrast (a): 56/70 against 48/80, method 10: 0.0524 to 0.3339.
    found = missing_change(48, 80, 56, 70)
    assert found.change.tolist() == pytest.approx(0.2)
    assert (float(found.low), float(found.high)) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    # Contrast (e): 0/10 against 0/20: -0.1611 to 0.2775.
    none = missing_change(0, 20, 0, 10)
    assert (float(none.low), float(none.high)) == pytest.approx((-0.1611, 0.2775), abs=5e-5)
    empty = missing_change([0, 1], [0, 5], [1, 0], [5, 0])
    assert [member.tolist() for member in empty] == [[None, None]] * 3
    with pytest.raises(ValueError, match="more values are missing"):
        missing_change(6, 5, 0, 5)


def test_the_missing_rate_interval_covers() -> None:
    rng = np.random.default_rng(10)
    before, after = rng.binomial(200, 0.02, 4_000), rng.binomial(300, 0.05, 4_000)
    found = missing_change(before, 200, after, 300)
    covered = (found.low <= 0.03) & (found.high >= 0.03)
    assert 0.93 < np.mean(covered) < 0.985
