"""Distributions of two features and an output whose information is known, for the estimators of MCIR-M.

In nats: U₁ = I(Q; X₁ | X₂), U₂ = I(Q; X₂ | X₁), J = I(Q; X₁, X₂). Gaussian and Student by their closed forms,
discrete ones by adding up, the rest by quadrature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import digamma, gammaln, ndtr, xlogy

from attributary.workers.explainers.estimators import Kind

Floats = npt.NDArray[np.float64]
Draw = Callable[[int, np.random.Generator], tuple[Floats, Floats]]
_ALPHA, _NOISE = 0.75, 0.5
_NUMBERS: tuple[Kind, ...] = ("continuous", "continuous", "continuous")
_LEVELS: tuple[Kind, ...] = ("discrete", "discrete", "discrete")


@dataclass(frozen=True)
class Known:
    """``draw(n, rng)`` gives X (n, 2) and Q (n,); ``unique`` (U₁, U₂) and ``joint`` are exact."""

    about: str
    kinds: tuple[Kind, ...]
    draw: Draw
    unique: tuple[float, float]
    joint: float


def covariance(alpha: float) -> Floats:
    """Return that of X₁, X₂ = αX₁ + √(1 − α²) E, X₃ and Q = X₁ + ½X₃ + ε, Var ε = ¼."""
    sigma = np.eye(4)
    sigma[0, 1] = sigma[1, 0] = sigma[1, 3] = sigma[3, 1] = alpha
    sigma[0, 3] = sigma[3, 0] = 1.0
    sigma[2, 3] = sigma[3, 2] = 0.5
    sigma[3, 3] = 1.5
    return sigma


def gaussian_information(sigma: Floats, a: list[int], b: list[int], given: list[int]) -> float:
    """Return I(A; B | given) of a Gaussian; a singular block counts by what is left of its rank."""

    def entropy(block: list[int]) -> float:
        values = np.linalg.eigvalsh(sigma[np.ix_(block, block)]) if block else np.ones(1)
        return float(np.log(values[values > 1e-12]).sum()) / 2

    return (
        entropy([*a, *given]) + entropy([*b, *given]) - entropy(given) - entropy([*a, *b, *given])
    )


def student_information(
    sigma: Floats, degrees: float, a: list[int], b: list[int], given: list[int]
) -> float:
    """Return I(A; B | given) of a multivariate Student distribution with this scale matrix."""

    def entropy(block: list[int]) -> float:
        if not block:
            return 0.0
        d, half = len(block), (degrees + len(block)) / 2
        constant = gammaln(degrees / 2) - gammaln(half) + d / 2 * np.log(degrees * np.pi)
        tail = half * (digamma(half) - digamma(degrees / 2))
        return float(constant + tail + np.linalg.slogdet(sigma[np.ix_(block, block)])[1] / 2)

    return (
        entropy([*a, *given]) + entropy([*b, *given]) - entropy(given) - entropy([*a, *b, *given])
    )


def table_information(p: Floats) -> tuple[float, float, float]:
    """Return (U₁, U₂, J) of probabilities p[x₁, x₂, q]."""

    def entropy(*out: int) -> float:
        part = p.sum(axis=out)
        return float(-xlogy(part, part).sum())

    everything, output = entropy(), entropy(0, 1)
    return (
        entropy(2) + entropy(0) - entropy(0, 2) - everything,
        entropy(2) + entropy(1) - entropy(1, 2) - everything,
        entropy(2) + output - everything,
    )


@cache
def known() -> dict[str, Known]:
    """Return the distributions by name."""
    gaussian = _gaussian_values(gaussian_information)
    student = _gaussian_values(lambda s, a, b, g: student_information(s, 3.0, a, b, g))
    made = {
        "Gaussian": Known(
            "X₂ = ¾X₁ + noise, Q = X₁ + ½X₃ + noise", _NUMBERS, _draw_gaussian, *gaussian
        ),
        "Gaussian, monotone maps": Known(
            "the same as exp X₁, X₂³, sinh 2Q", _NUMBERS, _draw_mapped, *gaussian
        ),
        "Student": Known(
            "the same scale matrix, three degrees of freedom", _NUMBERS, _draw_student, *student
        ),
        "square": Known("X₂ = ¾X₁ + noise, Q = X₁² + ½E", _NUMBERS, _draw_square, *_square()),
        "product": Known("X₁, X₂ independent, Q = X₁X₂ + ½E", _NUMBERS, _draw_product, *_product()),
        "half zeros": Known(
            "X₁ = Z or 0, X₂ = Z + ½E, Q = X₁ + ½E", _NUMBERS, _draw_zeros, *_zeros()
        ),
    }
    for name, (about, p) in _tables().items():
        first, second, joint = table_information(p)
        made[name] = Known(about, _LEVELS, _draw_table(p), (first, second), joint)
    made["coin and number"] = Known(
        "X₁ a coin, X₂ it or with 20 % the other side, Q = X₁ + ½E",
        ("discrete", "discrete", "continuous"),
        _draw_coin,
        *_coin(),
    )
    made["numbers and class"] = Known(
        "X₂ = ¾X₁ + noise, Q = 1[X₁ + ½E > 0]",
        ("continuous", "continuous", "discrete"),
        _draw_class,
        *_class(),
    )
    return made


def _gaussian_values(measure: Callable[..., float]) -> tuple[tuple[float, float], float]:
    sigma = covariance(_ALPHA)
    unique = measure(sigma, [3], [0], [1]), measure(sigma, [3], [1], [0])
    return unique, measure(sigma, [3], [0, 1], [])


def _normal(n: int, rng: np.random.Generator, columns: int) -> Any:
    return rng.normal(size=(columns, n))


def _pair(n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    x, e = _normal(n, rng, 2)
    return x, _ALPHA * x + np.sqrt(1 - _ALPHA**2) * e


def _draw_gaussian(n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    first, second = _pair(n, rng)
    third, noise = _normal(n, rng, 2)
    return np.column_stack([first, second]), first + 0.5 * third + _NOISE * noise


def _draw_mapped(n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    X, Q = _draw_gaussian(n, rng)
    return np.column_stack([np.exp(X[:, 0]), X[:, 1] ** 3]), np.sinh(2 * Q)


def _draw_student(n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    X, Q = _draw_gaussian(n, rng)
    stretch = np.sqrt(3.0 / rng.chisquare(3.0, size=n))
    return X * stretch[:, None], Q * stretch


def _draw_square(n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    first, second = _pair(n, rng)
    return np.column_stack([first, second]), first**2 + _NOISE * rng.normal(size=n)


def _draw_product(n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    first, second, noise = _normal(n, rng, 3)
    return np.column_stack([first, second]), first * second + _NOISE * noise


def _draw_zeros(n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    z, e, noise = _normal(n, rng, 3)
    first = z * rng.integers(0, 2, size=n)
    return np.column_stack([first, z + 0.5 * e]), first + _NOISE * noise


def _draw_coin(n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    first = rng.integers(0, 2, size=n).astype(np.float64)
    second = np.where(rng.random(n) < 0.2, 1 - first, first)
    return np.column_stack([first, second]), first + _NOISE * rng.normal(size=n)


def _draw_class(n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    first, second = _pair(n, rng)
    output = first + _NOISE * rng.normal(size=n) > 0
    return np.column_stack([first, second]), output.astype(np.float64)


def _draw_table(p: Floats) -> Draw:
    def draw(n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        cells = np.unravel_index(rng.choice(p.size, size=n, p=p.ravel()), p.shape)
        first, second, output = (cell.astype(np.float64) for cell in cells)
        return np.column_stack([first, second]), output

    return draw


def _tables() -> dict[str, tuple[str, Floats]]:
    coins = np.indices((2, 2, 2))
    right = {"XOR": coins[0] ^ coins[1], "AND": coins[0] & coins[1]}
    error = {"XOR": 0.1, "AND": 0.0}
    tables = {
        name: np.where(coins[2] == truth, 1 - error[name], error[name]) / 4
        for name, truth in right.items()
    }
    tables["copy"] = np.where(coins[0] == coins[1], 0.45, 0.05) * (coins[1] == coins[2])
    first, second, output = np.indices((10, 10, 10))
    near = np.isin((second - first) % 10, (0, 1)) / 20
    tables["ten levels"] = near * np.isin((output - first) % 10, (0, 1, 2, 3)) / 4
    about = {
        "XOR": "two coins, their XOR, wrong with 10 %",
        "AND": "two coins and their AND",
        "copy": "Q = X₂, X₁ the same, wrong with 10 %",
        "ten levels": "X₁ of 10, X₂ = X₁ + 0..1, Q = X₁ + 0..3, modulo 10",
    }
    return {name: (about[name], np.asarray(p, dtype=np.float64)) for name, p in tables.items()}


# Quadrature: the density of Q on a fine grid, by the trapezoid rule.


def _bell(x: Any, mean: Any, variance: Any) -> Any:
    return np.exp(-((x - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)


def _entropy(density: Any, step: float) -> Any:
    """Return the entropy of densities on a grid, along the first axis."""
    return -xlogy(density, density).sum(axis=0) * step


def _weights() -> tuple[Any, Any]:
    """Return nodes and weights of the standard normal distribution."""
    nodes = np.linspace(-8.0, 8.0, 801)
    weights = _bell(nodes, 0.0, 1.0)
    return nodes, weights / weights.sum()


_OF_NOISE = 0.5 * float(np.log(2 * np.pi * np.e * _NOISE**2))


def _square() -> tuple[tuple[float, float], float]:
    nodes, weights = _weights()
    q = np.arange(-3.0, 40.0, 0.05)
    kernel = _bell(q[:, None], nodes[None, :] ** 2, _NOISE**2)
    given = _bell(nodes[:, None], _ALPHA * nodes[None, :], 1 - _ALPHA**2)
    density = kernel @ (given / given.sum(axis=0))
    unique = float(weights @ _entropy(density, 0.05)) - _OF_NOISE
    return (unique, 0.0), float(_entropy(kernel @ weights, 0.05)) - _OF_NOISE


def _product() -> tuple[tuple[float, float], float]:
    nodes, weights = _weights()
    q = np.arange(-40.0, 40.0, 0.02)
    density = _bell(q[:, None], 0.0, nodes[None, :] ** 2 + _NOISE**2) @ weights
    unique = float(weights @ np.log1p(nodes**2 / _NOISE**2)) / 2
    return (unique, unique), float(_entropy(density, 0.02)) - _OF_NOISE


def _zeros() -> tuple[tuple[float, float], float]:
    nodes, weights = _weights()
    second = nodes * np.sqrt(1.25)
    q = np.arange(-12.0, 12.0, 0.02)[:, None]
    noise = _NOISE**2
    given = (_bell(q, 0.0, noise) + _bell(q, second[None, :] / 1.25, 0.2 + noise)) / 2
    whole = (_bell(q, 0.0, noise) + _bell(q, 0.0, 1 + noise)) / 2
    unique = float(weights @ _entropy(given, 0.02)) - _OF_NOISE
    return (unique, 0.0), float(_entropy(whole[:, 0], 0.02)) - _OF_NOISE


def _coin() -> tuple[tuple[float, float], float]:
    q = np.arange(-5.0, 6.0, 0.01)
    tail, head = _bell(q, 0.0, _NOISE**2), _bell(q, 1.0, _NOISE**2)
    unique = float(_entropy(0.8 * tail + 0.2 * head, 0.01)) - _OF_NOISE
    return (unique, 0.0), float(_entropy((tail + head) / 2, 0.01)) - _OF_NOISE


def _class() -> tuple[tuple[float, float], float]:
    nodes, weights = _weights()

    def doubt(chance: Any) -> float:
        return float(-(weights @ (xlogy(chance, chance) + xlogy(1 - chance, 1 - chance))))

    own = doubt(ndtr(nodes / _NOISE))
    other = doubt(ndtr(_ALPHA * nodes / np.sqrt(1 - _ALPHA**2 + _NOISE**2)))
    return (other - own, 0.0), float(np.log(2)) - own
