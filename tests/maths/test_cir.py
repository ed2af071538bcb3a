"""Batch CIR against exact values, a row-by-row oracle and hostile columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from attributary.workers.maths.cir import cir
from attributary.workers.maths.effect import Side, contrast
from attributary.workers.maths.quantiles import midhinge, quantiles
from attributary.workers.maths.scores import estimate, ranks, strength_bound, wilson

Array = npt.NDArray[Any]

X_EXACT = np.array([(0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (0, 4, 0, 4, 0)], dtype=float).T
Y_EXACT = np.array([1.0, 2, 3, 4, 10])


def by_hand(x: Array, y: Array, w: Array, mx: float, my: float) -> dict[str, float]:
    """Row by row, one feature and one output, as the definition reads."""
    sums = dict.fromkeys(("N", "D", "square", "signed"), 0.0)
    for xi, yi, wi in zip(x, y, w, strict=True):
        if not (np.isfinite(xi) and np.isfinite(yi)):
            continue
        p = (xi - mx) * (yi - my)
        sums["N"] += wi * p
        sums["D"] += wi * abs(p)
        sums["square"] += wi * wi * p * p
        sums["signed"] += wi * wi * p * abs(p)
    return sums


def test_exact_scores() -> None:
    groups = {"12": [0, 1], "13": [0, 2], "23": [1, 2], "123": [0, 1, 2]}
    found = cir(X_EXACT, Y_EXACT, groups=groups, scale="none")
    assert found.score.tolist() == [[1.0, 0.0, pytest.approx(3 / 11, rel=1e-15)]]
    exact = {"12": 1 / 2, "13": 13 / 21, "23": 1 / 7, "123": 13 / 31}
    assert {name: value.item() for name, value in found.blocks.items()} == pytest.approx(
        exact, rel=1e-14
    )
    assert found.numerator.tolist() == [[20.0, -20.0, -10.0]]
    assert found.denominator.tolist() == [[20.0, 20.0, 22.0]]
    assert found.direction.tolist() == [[1, -1, -1]]


def test_the_centre_is_the_midhinge() -> None:
    """(0, 0, 0, 10) has midhinge 1.25; with the interquartile mean, 0, D would be 0."""
    assert midhinge(quantiles(np.array([[0.0], [0], [0], [10]]), np.array([0.25, 0.75]))) == 1.25
    found = cir(np.array([[0.0], [0], [0], [10]]), [0.0, 0, 0, 10])
    assert found.denominator.item() == pytest.approx(3 * 1.25**2 + 8.75**2)


def test_iqr_scale_undoes_a_change_of_units() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 3))
    y = X @ [1.0, -2.0, 0.3] + rng.normal(size=300)
    groups = {"g": [0, 1, 2]}
    units = np.array([1e-3, 1.0, 4e5])
    plain = cir(X, y, groups=groups)
    rescaled = cir(X * units, y, groups=groups)
    np.testing.assert_allclose(rescaled.blocks["g"], plain.blocks["g"], rtol=1e-12)
    np.testing.assert_allclose(rescaled.block_interval["g"], plain.block_interval["g"], rtol=1e-10)
    raw = cir(X * units, y, groups=groups, scale="none").blocks["g"]
    assert abs(raw - cir(X, y, groups=groups, scale="none").blocks["g"]) > 0.1
    # The block is the sum of its members over their interquartile ranges; a range of 0 is 1.
    iqr = np.subtract(*np.quantile(X, [0.75, 0.25], axis=0))
    N, D = plain.numerator[0] / iqr, plain.denominator[0] / iqr
    assert plain.blocks["g"].item() == pytest.approx((1 + N.sum() / D.sum()) / 2, rel=1e-12)
    sparse = np.column_stack([X[:, 0], np.arange(300) % 10 == 0]).astype(float)
    found = cir(sparse, y, groups={"s": [0, 1]})
    N = found.numerator[0] / [iqr[0], 1.0]
    D = found.denominator[0] / [iqr[0], 1.0]
    assert found.blocks["s"].item() == pytest.approx((1 + N.sum() / D.sum()) / 2, rel=1e-12)


def test_every_pair_against_the_definition_with_missing_values_and_weights() -> None:
    rng = np.random.default_rng(2)
    X = rng.lognormal(size=(80, 4))
    Y = np.column_stack([X @ [1.0, -1, 0, 2] + rng.normal(size=80), rng.normal(size=80)])
    X[rng.random(X.shape) < 0.1] = np.nan
    X[3, 1], X[4, 2], Y[5, 0], Y[6, 1] = np.inf, -np.inf, np.nan, np.inf
    w = rng.random(80) * 3
    for weights in (None, w):
        found = cir(X, Y, weights=weights)
        ones = np.ones(80) if weights is None else weights
        for o in range(2):
            for j in range(4):
                mx, my = (_midhinge(values, ones) for values in (X[:, j], Y[:, o]))
                sums = by_hand(X[:, j], Y[:, o], ones, mx, my)
                assert found.numerator[o, j] == pytest.approx(sums["N"], rel=1e-10)
                assert found.denominator[o, j] == pytest.approx(sums["D"], rel=1e-10)
                expected = (1 + sums["N"] / sums["D"]) / 2
                assert found.score[o, j] == pytest.approx(expected, rel=1e-12)


def _midhinge(values: Array, weights: Array) -> float:
    kept = np.isfinite(values)
    order = np.argsort(values[kept])
    v, w = values[kept][order], weights[kept][order]
    middle = np.cumsum(w) - w / 2
    place = (middle - middle[0]) / (middle[-1] - middle[0])
    return float(np.interp([0.25, 0.75], place, v).mean())


def test_quantiles_are_numpys_linear_rule() -> None:
    values = np.random.default_rng(3).normal(size=(37, 5))
    q = np.linspace(0, 1, 23)
    np.testing.assert_allclose(quantiles(values, q), np.quantile(values, q, axis=0), rtol=1e-13)
    same = quantiles(values, q, np.full(37, 0.3))
    np.testing.assert_allclose(same, np.quantile(values, q, axis=0), rtol=1e-12)
    gaps = values.copy()
    gaps[::3, 1] = np.nan
    gaps[:, 2] = np.nan
    found = quantiles(gaps, q)
    np.testing.assert_allclose(found[:, 1], np.nanquantile(gaps[:, 1], q), rtol=1e-13)
    assert np.isnan(found[:, 2]).all()
    # Weighted: sign symmetry, and rows of weight 0 are not there.
    w = np.random.default_rng(4).random(37)
    np.testing.assert_allclose(
        quantiles(values, q, w), -quantiles(-values, 1 - q, w), rtol=1e-9, atol=1e-12
    )
    w[:9] = 0.0
    np.testing.assert_array_equal(quantiles(values, q, w), quantiles(values[9:], q, w[9:]))


def test_invariances() -> None:
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(200, 3)), rng.normal(size=200)
    score = cir(X, y).score
    np.testing.assert_allclose(cir(X, 7 * y - 3).score, score, rtol=1e-12)
    np.testing.assert_allclose(cir(5 * X + 1e3, y).score, score, rtol=1e-9)
    np.testing.assert_allclose(cir(-X, y).score, 1 - score, rtol=1e-12)
    np.testing.assert_allclose(cir(X, y, weights=np.full(200, 4.0)).score, score, rtol=1e-12)


def test_effective_rows_by_their_three_rules() -> None:
    rng = np.random.default_rng(6)
    x = rng.normal(size=4_000)
    y = 0.5 * x + rng.normal(size=4_000)
    sums = by_hand(x, y, np.ones(4_000), *(np.quantile(v, [0.25, 0.75]).mean() for v in (x, y)))
    N, D, square, signed = (sums[k] for k in ("N", "D", "square", "signed"))
    r = N / D
    C = (1 + r) / 2
    v = (square * (1 + r * r) - 2 * r * signed) / (4 * D * D)
    # Well carried and light-tailed: the delta method.
    found = cir(x[:, None], y)
    assert found.effective_rows.item() == pytest.approx(C * (1 - C) / v, rel=1e-9)
    K = D * D / square
    z2 = 1.96**2 * (1 + (1.96**2 + 1) / (2 * K))
    n = C * (1 - C) / v
    half = np.sqrt(z2 * (n * C * (1 - C) + z2 / 4)) / (n + z2)
    middle = (n * C + z2 / 2) / (n + z2)
    np.testing.assert_allclose(found.interval[0, 0], [middle - half, middle + half], rtol=1e-9)
    assert found.stderr.item() == pytest.approx(half / 1.96, rel=1e-9)
    assert found.stderr.item() == pytest.approx(np.sqrt(v), rel=0.01)
    # One sign only: v = 0, the Kish size.
    kish = cir(x[:, None], x)
    u = (x - np.quantile(x, [0.25, 0.75]).mean()) ** 2
    assert kish.score.item() == 1.0
    assert kish.effective_rows.item() == pytest.approx(u.sum() ** 2 / (u * u).sum(), rel=1e-9)
    # The rarer sign carried by three rows: the smaller of the two.
    flipped = x.copy()
    flipped[:3] = -flipped[:3]
    rare = cir(flipped[:, None], x)
    assert 0.9 < rare.score.item() < 1.0
    assert rare.effective_rows.item() <= kish.effective_rows.item() * 1.01
    # Heavy tails, x = y of two effective rows in a thousand: between the delta method and K.
    one = (np.ones(1),) * 5
    assert estimate(*one, np.ones(1)).effective_rows.item() == 1.0


def test_heavy_tails_take_the_middle_of_both_sizes() -> None:
    N, D, square, signed = (np.array([v]) for v in (0.2, 1.0, 1e-3, 0.2e-3))
    v = (1e-3 * 1.04 - 0.4 * 0.2e-3) / 4
    delta, kish = 0.6 * 0.4 / v, 1e3
    assert delta < kish * 1.01
    light = estimate(N, D, square, signed, square, np.array([3_000.0])).effective_rows
    assert light.item() == pytest.approx(delta)
    signed = np.array([0.8e-3])
    v = (1e-3 * 1.04 - 0.4 * 0.8e-3) / 4
    delta = 0.24 / v
    assert delta > kish
    light = estimate(N, D, square, signed, square, np.array([3_000.0])).effective_rows
    heavy = estimate(N, D, square, signed, square, np.array([5_000.0])).effective_rows
    assert light.item() == pytest.approx(delta)
    assert heavy.item() == pytest.approx(np.sqrt(delta * kish))


def test_wilson_against_scipy() -> None:
    from scipy.stats import binomtest

    for hits, n in ((3, 10), (0, 7), (40, 41)):
        ours = wilson(np.array(hits / n), np.array(float(n)), np.array(1e18))
        theirs = binomtest(hits, n).proportion_ci(confidence_level=0.95, method="wilson")
        np.testing.assert_allclose(ours, [theirs.low, theirs.high], atol=2e-5)
    assert wilson(np.array(0.5), np.array(0.0), np.array(0.0)).tolist() == [0.0, 1.0]


def test_ranking_prefers_what_is_sure() -> None:
    rng = np.random.default_rng(7)
    n = 2_000
    strong, mild = rng.normal(size=n), rng.normal(size=n)
    once = np.zeros(n)
    y = -2 * strong + 0.3 * mild + rng.normal(size=n)
    once[int(y.argmax())] = 1.0
    X = np.column_stack([once, mild, strong, np.full(n, 3.0)])
    found = cir(X, y)
    assert found.score[0, 0] == 1.0
    assert found.score[0, 2] < 0.2
    assert found.rank.tolist() == [[3, 2, 1, 4]]
    assert found.direction.tolist() == [[1, 1, -1, 0]]
    assert found.strength_low[0, 0] == 0.0
    low, high = found.interval[0, 2]
    assert found.strength_low[0, 2] == pytest.approx(1 - 2 * high)
    assert low < found.score[0, 2] < high
    bounds = strength_bound(np.array([[[0.6, 0.9], [0.1, 0.3], [0.4, 0.7]]]))
    np.testing.assert_allclose(bounds, [[0.2, 0.4, -0.2]])
    assert ranks(bounds).tolist() == [[2, 1, 3]]


def test_effect_is_a_difference_of_means() -> None:
    rng = np.random.default_rng(8)
    n = 1_000
    gaussian = rng.normal(size=n)
    common, rare = (rng.random(n) < share for share in (0.4, 0.02))
    mostly = rng.random(n) < 0.97
    sparse = np.where(rng.random(n) < 0.8, 0.0, gaussian)
    X = np.column_stack([gaussian, common, rare, mostly, sparse, np.full(n, 2.0)]).astype(float)
    y = X @ [1.0, 2, 3, -1, 1, 0] + rng.normal(size=n)
    found = cir(X, y)
    low, high = np.quantile(gaussian, [0.25, 0.75])
    sides = [
        (gaussian <= low, gaussian >= high),
        (~common, common),
        (~rare, rare),
        (~mostly, mostly),
        (sparse < 0, sparse > 0),
    ]
    for j, (lower, upper) in enumerate(sides):
        assert found.effect[0, j] == pytest.approx(y[upper].mean() - y[lower].mean(), rel=1e-9)
        error = np.sqrt(sum(y[side].var(ddof=1) / side.sum() for side in (lower, upper)))
        assert found.effect_stderr[0, j] == pytest.approx(error, rel=1e-9)
    assert np.isnan(found.effect[0, 5])
    assert np.isnan(found.effect_stderr[0, 5])


def test_weighted_effect_error() -> None:
    rng = np.random.default_rng(9)
    w, y = rng.random(50), rng.normal(size=50)
    side = Side(
        np.array(w.sum()),
        np.array((w * y).sum()),
        np.array([(w * w).sum(), (w * w * y).sum(), (w * w * y * y).sum()]),
    )
    effect, error = contrast(side, side)
    mean = np.average(y, weights=w)
    rows = w.sum() ** 2 / (w * w).sum()
    square = (w * w * (y - mean) ** 2).sum() / w.sum() ** 2 * rows / (rows - 1)
    assert effect == 0.0
    assert error == pytest.approx(np.sqrt(2 * square), rel=1e-9)


HOSTILE = {
    "constant": np.full(50, 3.25),
    "all nan": np.full(50, np.nan),
    "infinite": np.r_[np.inf, -np.inf, np.arange(48.0)],
    "huge": 1e308 * np.linspace(-1, 1, 50),
    "one huge": np.r_[1e308, np.arange(49.0)],
    "denormal": np.arange(50) * 5e-324,
    "boolean": np.arange(50) % 2 == 0,
    "int64": np.array([-(2**63), 2**63 - 1] * 25),
    "offset": 1e8 + np.arange(50) / 1e3,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_columns_have_finite_scores(name: str) -> None:
    y = np.r_[np.arange(49.0), 1e308]
    X = np.column_stack([np.asarray(HOSTILE[name], dtype=float), np.arange(50.0)])
    for outputs in (np.arange(50.0), y, X[:, 0]):
        found = cir(X, outputs, groups={"both": [0, 1]})
        for values in (found.score, found.interval, found.stderr, found.strength_low):
            assert np.isfinite(values).all()
        assert ((found.score >= 0) & (found.score <= 1)).all()
        assert np.isfinite(found.blocks["both"]).all()
    assert cir(X, np.arange(50.0)).score[0, 1] == 1.0


def test_known_scores_of_hostile_columns() -> None:
    y = np.arange(50.0)
    X = np.column_stack([np.asarray(values, dtype=float) for values in HOSTILE.values()])
    score = dict(zip(HOSTILE, cir(X, y).score[0].tolist(), strict=True))
    assert score["constant"] == score["all nan"] == 0.5
    assert score["huge"] == score["denormal"] == score["offset"] == 1.0
    # The infinite rows are gone: what is left is (y - 2 about its own midhinge) against y's.
    kept = np.arange(48.0)
    p = (kept - 23.5) * (kept + 2 - 24.5)
    assert score["infinite"] == pytest.approx((1 + p.sum() / np.abs(p).sum()) / 2, rel=1e-12)


def test_few_rows() -> None:
    for n in (0, 1):
        found = cir(np.ones((n, 3)), np.ones((n, 2)), groups={"g": [0, 2]})
        assert (found.score == 0.5).all()
        assert (found.interval == [0.0, 1.0]).all()
        assert found.blocks["g"].tolist() == [0.5, 0.5]
    assert cir(np.ones((4, 0)), np.ones(4)).score.shape == (1, 0)


def test_duplicated_columns_and_zero_weights() -> None:
    rng = np.random.default_rng(10)
    x, y = rng.normal(size=100), rng.normal(size=100)
    found = cir(np.column_stack([x, x]), y, groups={"g": [0, 1]}, scale="none")
    assert found.score[0, 0] == found.score[0, 1]
    # A feature twice is no more rows than once.
    assert found.blocks["g"].item() == pytest.approx(found.score[0, 0], rel=1e-12)
    assert found.block_effective_rows["g"].item() == pytest.approx(found.effective_rows[0, 0])
    w = np.r_[np.zeros(30), np.ones(70)]
    part = cir(x[30:, None], y[30:])
    whole = cir(x[:, None], y, weights=w)
    np.testing.assert_allclose(whole.interval, part.interval, rtol=1e-12)
    np.testing.assert_allclose(whole.effect, part.effect, rtol=1e-12)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"weights": [1.0, -1, 1]}, "weights"),
        ({"weights": [1.0, 1]}, "weights"),
        ({"groups": {"g": [0, 5]}}, "'g'"),
        ({"groups": {"g": []}}, "'g'"),
        ({"groups": {"g": [0, 0]}}, "'g'"),
        ({"scale": "std"}, "scale"),
    ],
)
def test_wrong_arguments_are_named(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cir(np.ones((3, 2)), np.ones(3), **keywords)
    with pytest.raises(ValueError, match="same n"):
        cir(np.ones((3, 2)), np.ones(4))


def test_a_block_whose_members_cancel_in_every_row_claims_no_more_rows_than_it_has() -> None:
    uu = np.array([1 / 2500.0])
    exact = estimate(np.zeros(1), np.ones(1), np.zeros(1), np.zeros(1), uu, np.array([4000.0]))
    rounded = estimate(np.zeros(1), np.ones(1), 1e-13 * uu, np.zeros(1), uu, np.array([4000.0]))
    assert exact.effective_rows.item() == pytest.approx(2500.0)
    assert rounded.effective_rows.item() == exact.effective_rows.item()
    np.testing.assert_array_equal(rounded.interval, exact.interval)
