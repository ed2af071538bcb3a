"""The stated error of a slope against the true one: low precisions, offsets, units, the largest numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attributary.workers.explainers.precisions import (
    EPSILON,
    Precision,
    held,
    spacing,
    toward,
)
from attributary.workers.explainers.scales import mean_of, neighbourhood, robust_scale
from attributary.workers.explainers.t_explainer import TExplanation, t_explain

Floats = npt.NDArray[np.float64]
Form = Literal["shifted", "scaled", "product"]

LARGEST = np.finfo(np.float64).max


def smooth(seed: int, offset: float, scale: float, dtype: Any, form: Form) -> tuple[Any, Any]:
    """A sum of four tanh of three features about ``offset`` scales, computed in ``dtype``, and its slopes.

    "shifted" takes the offset off first, "scaled" after the unit, "product" after the weights: there
    round-off is that of the large numbers.
    """
    rng = np.random.default_rng(seed)
    V, c = rng.normal(size=(3, 4)), rng.normal(size=4)
    far = offset * scale

    def model(X: Floats) -> Any:
        if form == "shifted":
            A = ((X.astype(dtype) - dtype(far)) / dtype(scale)) @ V.astype(dtype)
        elif form == "scaled":
            A = ((X / scale).astype(dtype) - dtype(offset)) @ V.astype(dtype)
        else:
            A = (X / scale).astype(dtype) @ V.astype(dtype) - (offset * V.sum(axis=0)).astype(dtype)
        return np.tanh(A) @ c.astype(dtype)

    def slopes(X: Floats) -> Floats:
        T = 1.0 - np.tanh((X - far) / scale @ V) ** 2
        found: Floats = (T * c) @ V.T / scale
        return found

    return model, slopes


def explained(
    seed: int, offset: float, scale: float, computed: Precision, form: Form, **options: Any
) -> tuple[TExplanation, Floats, Floats]:
    """Return the explanation, the true error and the scales; no warning is given on the way."""
    dtype = {"float32": np.float32, "float64": np.float64}[computed]
    rng = np.random.default_rng([seed, 1])
    far = offset * scale
    X, background = far + rng.normal(size=(10, 3)) * scale, far + rng.normal(size=(40, 3)) * scale
    if computed == "float32" and scale == 1.0:
        # What the model is asked about is what it sees.
        X = X.astype(np.float32).astype(np.float64)
    model, slopes = smooth(seed, offset, scale, dtype, form)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = t_explain(model, X, background=background, **options)
    return found, np.abs(found.gradient - slopes(X)), robust_scale(background)


# The stated error.


@pytest.mark.parametrize("form", ["shifted", "scaled", "product"])
@pytest.mark.parametrize(
    ("precision", "offsets"),
    [
        ("float64", [0.0, 1.0, 1e2, 1e4, 1e6, 1e8, 1e10, 1e12]),
        ("float32", [0.0, 1.0, 1e2, 1e4, 1e6, 1e7, 1e8, 1e12]),
    ],
)
def test_the_true_error_is_within_the_stated_one_at_every_offset(
    precision: Precision, offsets: list[float], form: Form
) -> None:
    every = []
    for offset in offsets:
        inside = []
        for seed in range(12):
            found, error, scale = explained(seed, offset, 1.0, precision, form)
            assert found.precision == precision
            assert not found.piecewise_constant
            assert (found.h <= scale * (1.0 + 1e-15)).all()
            inside.append(error <= found.gradient_error)
            # What float32 cannot resolve is said, and nothing else.
            assert found.unresolved.all() == (precision == "float32" and offset >= 1e7)
            assert found.unresolved.any() == found.unresolved.all()
        assert np.mean(inside) >= 0.97, offset
        every += inside
    assert np.mean(every) >= 0.99


def test_offsets_and_units_of_any_size() -> None:
    """Drawn offsets up to 1e12 scales, units from 1e-300 to 1e295: 9,000 slopes."""
    forms: tuple[Form, ...] = ("shifted", "scaled", "product")
    rng = np.random.default_rng(17)
    inside = []
    for seed in range(300):
        form = forms[seed % 3]
        far = rng.uniform(0.0, 12.0)
        offset, scale = 10.0**far, 10.0 ** min(rng.uniform(-300.0, 295.0), 295.0 - far)
        found, error, scales = explained(seed, offset, scale, "float64", form)
        assert found.precision == "float64"
        assert not found.unresolved.any()
        assert (found.h <= scales * (1.0 + 1e-15)).all()
        inside.append(error <= found.gradient_error)
        # An error that is as large as anything would hold too: ν^(2/3) is what round-off ν allows.
        noise = EPSILON["float64"] * offset
        assert np.median(found.gradient_error) * scale < 1e-8 + 500.0 * noise ** (2.0 / 3.0)
    assert np.mean(inside) >= 0.99


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.floats(0.0, 14.0),
    st.floats(-300.0, 290.0),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(["bfloat16", "float16", "float32", "float64", None]),
)
def test_no_step_is_wider_than_asked_whatever_the_numbers(
    seed: int, far: float, unit: float, precision: Precision, said: Precision | None
) -> None:
    scale = 10.0 ** min(unit, 290.0 - far)
    found, _, scales = explained(
        seed, 10.0**far, scale, precision, "scaled",
        precision=said, piecewise_constant=False, h_max=0.5,
    )  # fmt: skip
    assert (found.h <= 0.5 * scales * (1.0 + 1e-15)).all()
    assert not np.isnan(found.gradient_error).any()
    assert np.isfinite(found.gradient).all()


def test_an_input_that_a_step_does_not_reach_says_nothing_of_the_precision() -> None:
    """At 1e8 scales 2^-30 of a scale is below the spacing of float64 itself."""
    for seed in range(5):
        found, error, scale = explained(seed, 1e8, 1.0, "float64", "shifted", h_max=1.0)
        assert found.precision == "float64"
        assert error.max() < 1e-8
        assert found.h.max() < 1e-3 * scale.min()


def test_steps_beyond_the_widest_are_not_taken_and_the_error_is_all_of_the_slope() -> None:
    found, error, scale = explained(1, 4e6, 1.0, "float32", "shifted")
    assert found.unresolved.all()
    assert (found.h <= scale).all()
    assert (found.gradient_error >= np.abs(found.gradient)).all()
    assert (error <= found.gradient_error).mean() >= 0.95
    # Where the widest step shows nothing, nothing is known.
    nothing, _, _ = explained(1, 1e9, 1.0, "float32", "shifted")
    assert np.isinf(nothing.gradient_error).all()
    assert not nothing.gradient.any()
    # A wider step sees it again.
    wide, error, _ = explained(1, 4e6, 1.0, "float32", "shifted", h_max=4.0)
    assert not wide.unresolved.any()
    assert (error <= wide.gradient_error).mean() >= 0.95


def test_of_two_steps_that_contradict_the_wider_is_wrong() -> None:
    """Over a whole period the difference of a sine and its half agree, by chance, on nothing."""
    rng = np.random.default_rng(3)
    noise = rng.normal(size=4096) * 1e-5

    def model(X: Floats) -> Floats:
        found: Floats = np.sin(2 * np.pi * X[:, 0])
        return found + noise[(np.abs(X[:, 0]) * 1e9).astype(np.int64) % 4096]

    X = np.linspace(-1.0, 1.0, 40)[:, None]
    background = rng.normal(size=(400, 1))
    found = t_explain(model, X, background=background, precision="float64")
    exact = 2 * np.pi * np.cos(2 * np.pi * X)
    assert (np.abs(found.gradient - exact) <= found.gradient_error).mean() >= 0.95
    assert np.abs(found.gradient - exact).max() < 0.1


# Numbers at the ends of float64.


@pytest.mark.parametrize("size", [1.7e308, LARGEST])
def test_the_largest_numbers(size: float) -> None:
    rng = np.random.default_rng(0)
    background = np.sign(rng.normal(size=(20, 2))) * size * rng.uniform(0.5, 1.0, size=(20, 2))
    background[0] = size, -size
    for model in (
        lambda X: np.tanh(X[:, 0] / size) + X[:, 1] / size,
        lambda X: (X[:, 0] > 0.1 * size).astype(float),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = t_explain(model, background[:5], background=background)
        assert np.isfinite(found.h).all()
        assert np.isfinite(found.gradient).all()
        assert np.isfinite(found.contributions).all()
        total = found.base_value + found.contributions.sum(axis=1) + found.additivity_gap
        np.testing.assert_allclose(total, model(background[:5]), atol=1e-12)
    smooth = t_explain(
        lambda X: np.tanh(X[:, 0] / size) + X[:, 1] / size, background[:5], background=background
    )
    exact = 1.0 / np.cosh(background[:5, 0] / size) ** 2
    np.testing.assert_allclose(smooth.gradient[:, 0] * size, exact, rtol=1e-4)
    np.testing.assert_allclose(smooth.gradient[:, 1] * size, 1.0, rtol=1e-4)


def test_scales_of_the_largest_numbers() -> None:
    column = np.array([-LARGEST, LARGEST, LARGEST, -LARGEST, 0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(robust_scale(column[:, None])).all()
        assert mean_of(column) == 0.0
        assert mean_of(np.full(7, LARGEST)) == pytest.approx(LARGEST)
        low, high = neighbourhood(np.array([0.0]), column, 0.25, 1e308)
    assert (low, high) == (-LARGEST, LARGEST)
    assert mean_of(np.array([1.0, np.nan, 4.0])) == 2.5


# Low precisions.


def rounded(values: Floats, precision: Precision) -> Floats:
    """Round to the nearest number of the precision."""
    unit = spacing(values, EPSILON[precision])
    found: Floats = np.round(values / np.where(unit > 0, unit, 1.0)) * unit
    return found


def autocast(seed: int, precision: Precision, location: float = 0.0) -> tuple[Any, Any]:
    """A network of 16 features as autocast runs it: products of rounded numbers, rounded.

    And the slopes of the network itself, in float64.
    """
    rng = np.random.default_rng(seed)
    sizes = (16, 64, 64, 1)
    layers = [rng.uniform(-1, 1, size=pair) / np.sqrt(pair[0]) for pair in pairwise(sizes)]

    def model(X: Floats) -> Floats:
        values = X
        for k, W in enumerate(layers):
            values = rounded(rounded(values, precision) @ rounded(W, precision), precision)
            if k < 2:
                values = rounded(np.tanh(values), precision)
        return values[:, 0]

    def slopes(X: Floats) -> Floats:
        a = np.tanh(X @ layers[0])
        b = np.tanh(a @ layers[1])
        found: Floats = ((1 - b * b) * layers[2][:, 0]) @ layers[1].T * (1 - a * a) @ layers[0].T
        return found

    return model, slopes


@pytest.mark.parametrize(("precision", "most"), [("bfloat16", 0.05), ("float16", 0.025)])
@pytest.mark.parametrize("location", [0.0, 3.0])
def test_low_precisions_get_wide_steps_and_errors_that_hold(
    precision: Precision, most: float, location: float
) -> None:
    wrong, inside, signs = [], [], []
    for seed in range(6):
        rng = np.random.default_rng([seed, 2])
        X, background = location + rng.normal(size=(20, 16)), location + rng.normal(size=(100, 16))
        model, slopes = autocast(seed, precision)
        found = t_explain(
            model, X, background=background, precision=precision, piecewise_constant=False
        )
        exact = slopes(X)
        wrong.append(np.linalg.norm(found.gradient - exact) / np.linalg.norm(exact))
        inside.append(np.abs(found.gradient - exact) <= found.gradient_error)
        signs.append(np.sign(found.gradient) != np.sign(exact))
        assert found.precision == precision
    assert np.mean(wrong) < most
    assert np.mean(inside) >= 0.99
    assert np.mean(signs) < 0.03


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_low_precisions_are_found_out(precision: Precision) -> None:
    rng = np.random.default_rng(5)
    X, background = rng.normal(size=(4, 16)), rng.normal(size=(100, 16))
    model, _ = autocast(1, precision)
    told = {"background": background, "piecewise_constant": False}
    assert t_explain(model, X, **told).precision == precision
    assert t_explain(lambda X: model(X).astype(np.float32), X, **told).precision == precision


def test_exact_slopes_of_a_low_precision_have_an_error() -> None:
    rng = np.random.default_rng(5)
    X, background = rng.normal(size=(30, 16)), rng.normal(size=(100, 16))
    model, slopes = autocast(1, "bfloat16")
    exact = slopes(X)
    # As backpropagation through rounded weights and activations gives them.
    off = exact + rng.normal(size=exact.shape) * 0.004 * np.abs(exact).max(axis=1, keepdims=True)
    found = t_explain(
        model, X, background=background, precision="bfloat16", gradient=lambda rows: off
    )
    assert (np.abs(found.gradient - exact) <= found.gradient_error).all()
    assert (found.gradient_error < 0.05 * np.abs(exact).max()).all()
    single = t_explain(
        model, X, background=background, precision="float32", gradient=lambda rows: off
    )
    assert 0.0 < single.gradient_error.max() < 1e-6


# The numbers of a precision.


@given(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300), st.sampled_from(sorted(EPSILON)))
def test_rounding_toward_a_number(at: float, value: float, precision: Precision) -> None:
    (found,) = toward(np.array([at]), np.array([value]), EPSILON[precision])
    assert min(at, value) <= found <= max(at, value)
    if found != at:
        assert held(np.array([found]), precision)
        assert abs(found - value) <= spacing(np.array([value]), EPSILON[precision])[0]


def test_rows_at_zero_have_numbers_of_every_size_about_them() -> None:
    X = np.array([[0.0], [1e-200]])
    background = np.linspace(-2.0, 2.0, 9)[:, None] * 1e-200
    found = t_explain(lambda X: np.tanh(X[:, 0] / 1e-200), X, background=background)
    assert not found.piecewise_constant
    exact = 1.0 / np.cosh(X[:, 0] / 1e-200) ** 2
    np.testing.assert_allclose(found.gradient[:, 0] * 1e-200, exact, rtol=1e-8)


def test_what_a_precision_holds() -> None:
    values = np.random.default_rng(1).normal(size=500)
    kinds: dict[Precision, Callable[[Floats], Floats]] = {
        "float16": lambda v: v.astype(np.float16).astype(np.float64),
        "float32": lambda v: v.astype(np.float32).astype(np.float64),
    }
    for precision, cast in kinds.items():
        large = values[np.abs(values) > 0.01]
        assert held(cast(large), precision)
        assert not held(large, precision)
        np.testing.assert_array_equal(rounded(large, precision), cast(large))
    assert held(np.array([0.0, 1.0, -3.0, 255.0]), "bfloat16")
    assert not held(np.array([257.0]), "bfloat16")
