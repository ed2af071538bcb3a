"""MCIR-M and others where features repeat each other: exact values, household energy, injected "
"copies."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from attributary.workers.explainers.estimators import Columns
from attributary.workers.explainers.mcir import coefficient, mcir
from attributary.workers.maths.agreement import jaccard_at_k, kendall_tau
from benchmarks import mcir_house_energy as house
from benchmarks import mcir_overview
from benchmarks.mcir_baselines import Explained, explain, methods
from benchmarks.mcir_distributions import covariance, gaussian_information
from benchmarks.mcir_redundancy_tables import BY_DISTANCE, figures, section
from benchmarks.suite import Options, Suite

ROWS, SEEDS, RESAMPLES = 2000, 4, 20
#: The seed of the authors' public run, of as many rows as the first household and its model see.
FIRST_SEED = 7
ALPHAS = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
CHAIN_REPETITIONS, CHAIN_RESAMPLES, CHAIN_SEEDS = 50, 50, 2
RHOS = (0.8, 0.9, 0.95, 0.99, 1.0)
FRACTIONS = (0.1, 0.25, 0.5, 0.75)
FULL, LIGHT_REPETITIONS = 4000, 20
HEAD = 8
#: Φ(1), Φ(2) and Φ(3) of the chain.
NEAR = [[1], [0], [0]]


def chains(options: Options) -> dict[str, Any]:
    """Return figures of Q = X₁ + ½X₃ + ε, X₂ a copy of X₁ of correlation α, beside the exact ones."""
    alphas = ALPHAS[3:5] if options.quick else ALPHAS
    seeds = 1 if options.quick else CHAIN_SEEDS
    found = [_chain(alpha, options) for alpha in alphas]
    rows = 2 * found[0]["rows"]
    tables = [_chain_rows(_root(alpha), rows, seed) for alpha in alphas for seed in range(seeds)]
    others, failed = explain(tables, options, of_model=False, neighbourhoods=NEAR, bootstraps=0)
    for k, one in enumerate(found):
        own = [other.scores for other in others[k * seeds : (k + 1) * seeds]]
        one["copy"] = {
            name: [float(scores[name][1] / max(scores[name][0], 1e-300)) for scores in own]
            for name in methods(own[0])
            # All means are 0 here: PCIR, of means and variances alone, is noise.
            if name != "PCIR"
        }
    return {"chains": found, "failed": failed}


def _chain(alpha: float, options: Options) -> dict[str, Any]:
    sigma = covariance(alpha)
    unique = np.array([gaussian_information(sigma, [3], [i], g) for i, g in enumerate(NEAR)])
    joint = np.array([gaussian_information(sigma, [3], [i, *g], []) for i, g in enumerate(NEAR)])
    exact = coefficient(unique, joint)
    rows, repetitions = (300, 4) if options.quick else (ROWS, CHAIN_REPETITIONS)
    scores, held = [], []
    for seed in range(repetitions):
        sample = np.random.default_rng([seed, 11]).normal(size=(rows, 4)) @ _root(alpha).T
        found = mcir(
            sample[:, :3],
            sample[:, 3],
            neighbourhoods=NEAR,
            bootstraps=10 if options.quick else CHAIN_RESAMPLES,
            rng=seed,
        )
        scores.append(found.score)
        low, high = found.interval.T
        held.append((low - 1e-3 <= exact) & (exact <= high + 1e-3))
    return {
        "alpha": alpha,
        "rows": rows,
        "repetitions": repetitions,
        "exact": exact.tolist(),
        "mean": np.mean(scores, axis=0).tolist(),
        "spread": np.std(scores, axis=0, ddof=1).tolist(),
        "held": np.mean(held, axis=0).tolist(),
        "marginal": [gaussian_information(sigma, [3], [i], []) for i in (0, 1)],
    }


def _root(alpha: float) -> Any:
    # A speck on the diagonal: the exact copy has a singular covariance.
    return np.linalg.cholesky(covariance(alpha) + 1e-14 * np.eye(4))


def _chain_rows(root: Any, rows: int, seed: int) -> tuple[Any, Any]:
    sample = np.random.default_rng([seed, 12]).normal(size=(rows, 4)) @ root.T
    return sample[:, :3], sample[:, 3]


def energy(seed: int, options: Options) -> dict[str, Any]:
    """Return every method's importances on one household, without and with copies of some features."""
    rows = 300 if options.quick else ROWS
    rng = np.random.default_rng([seed, 13])
    X, y = house.draw(2 * rows, FIRST_SEED + seed)
    columns = [house.NAMES.index(name) for name in house.COPIED]
    rhos = RHOS[-2:] if options.quick else RHOS
    tables = [(X, y), *((house.with_copies(X, columns, rho, rng), y) for rho in rhos)]
    (base, *copied), failed = explain(
        tables, options, bootstraps=4 if options.quick else RESAMPLES, rng=seed
    )
    d = X.shape[1]
    result: dict[str, Any] = {
        "rows": rows,
        "fit": base.fit,
        "size": base.found.size,
        "failed": failed,
        "neighbourhoods": [[house.NAMES[j] for j in near] for near in base.found.neighbourhoods],
        "base": {name: _plain(base.scores[name]) for name in methods(base.scores)},
        "score": _plain(base.found.score),
        "rho": {},
    }
    for rho, one in zip(rhos, copied, strict=True):
        entry = {}
        for name in methods(one.scores):
            # A score is a share by itself; of C the features without a neighbourhood count with their 1.
            before, after = base.scores[name], one.scores[name]
            if name == "MCIR-M, C":
                before, after = base.found.score, one.found.score
            entry[name] = {
                "before": before[columns].tolist(),
                "original": after[columns].tolist(),
                "copy": after[d:].tolist(),
                "tau": kendall_tau(base.scores[name], one.scores[name][:d]),
            }
        result["rho"][str(rho)] = entry
    before = _by_distance(X[rows:], base, columns)
    for rho, (wide, _), one in zip(rhos, tables[1:], copied, strict=True):
        after = _by_distance(wide[rows:], one, [*columns, *range(d, wide.shape[1])])
        result["rho"][str(rho)][BY_DISTANCE] = {
            "before": before.tolist(),
            "original": after[: len(columns)].tolist(),
            "copy": after[len(columns) :].tolist(),
        }
    return result


def _by_distance(X: Any, one: Explained, features: list[int]) -> Any:
    """Return C of some features by nearest neighbours, with the neighbourhoods that the copula found."""
    d = X.shape[1]
    columns = Columns(X, one.outputs[:, None], ["continuous"] * (d + 1))
    found = [columns.information(i, one.found.neighbourhoods[i], "knn") for i in features]
    return coefficient([f.unique for f in found], [f.joint for f in found])


def _plain(values: Any) -> list[float | None]:
    return [round(float(value), 6) if np.isfinite(value) else None for value in values]


def lightweight(options: Options) -> dict[str, Any]:
    """Return how far MCIR-M on a share of the rows agrees with all of them; the energy is the output."""
    full, repetitions = (600, 2) if options.quick else (FULL, LIGHT_REPETITIONS)
    found: dict[str, dict[str, list[float]]] = {}
    for seed in range(repetitions):
        rng = np.random.default_rng([seed, 14])
        X, y = house.draw(full, FIRST_SEED + seed)
        whole = mcir(X, y, bootstraps=RESAMPLES, rng=seed)
        near = whole.neighbourhoods
        for fraction in FRACTIONS:
            rows = np.sort(rng.choice(full, int(fraction * full), replace=False))
            anew = mcir(X[rows], y[rows], bootstraps=RESAMPLES, rng=seed)
            kept = mcir(X[rows], y[rows], bootstraps=0, neighbourhoods=near)
            into = found.setdefault(str(fraction), {})
            for name, light in (("anew", anew), ("kept", kept)):
                scores = [np.where(one.ranked, one.score, np.nan) for one in (whole, light)]
                uniques = [np.maximum(one.unique, 0.0) for one in (whole, light)]
                for what, (a, b) in (("C", scores), ("U", uniques)):
                    for measure, value in (
                        ("tau", kendall_tau(a, b)),
                        ("head", jaccard_at_k(a, b, HEAD)),
                    ):
                        if value is not None:
                            into.setdefault(f"{name}, {what}, {measure}", []).append(value)
    return {
        "rows": full,
        "repetitions": repetitions,
        "fractions": {
            fraction: {
                name: [float(np.mean(values)), float(np.std(values, ddof=1))]
                for name, values in entries.items()
            }
            for fraction, entries in found.items()
        },
    }


def cases(options: Options) -> dict[str, Callable[[], Any]]:
    """Return the cases: the exact values, one for each household, and the light samples."""
    seeds = range(2 if options.quick else SEEDS)
    return {
        "MCIR-M redundancy, exact values": partial(chains, options),
        **{
            f"MCIR-M redundancy, household {seed}": partial(energy, seed, options) for seed in seeds
        },
        "MCIR-M redundancy, light samples": partial(lightweight, options),
    }


SUITE = Suite(
    "mcir-redundancy",
    "MCIR-M: features that repeat each other",
    cases,
    section,
    page="results",
    figures=figures,
    lead=mcir_overview.section,
)
