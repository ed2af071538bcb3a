"""How often the 95 % intervals, computed online, hold the true score."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from attributary.workers.maths.cir import cir
from attributary.workers.maths.grid import Grid
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.maths.window import WindowState
from benchmarks.peers.timing import BATCH
from benchmarks.suite import Options, Suite, table

KINDS = ("Gaussian", "lognormal", "t3", "null", "common 0/1", "rare 0/1")
SLOPES = np.array([0.7, 0.4, 0.7, 0.0, 0.8, 1.0])
SIZES = (200, 2_000)
REPETITIONS = 2_000
FLOOR = 0.93
Z = 1.96


def draw(count: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Return one feature of each kind, and for each an output of its own: slope x + noise."""
    columns = [
        rng.normal(size=count),
        rng.lognormal(size=count),
        rng.standard_t(3, size=count),
        rng.normal(size=count),
        (rng.random(count) < 0.3).astype(np.float64),
        (rng.random(count) < 0.02).astype(np.float64),
    ]
    X = np.column_stack(columns)
    return X, X * SLOPES + rng.normal(size=X.shape)


def truth(parts: int) -> Any:
    """Return the scores (6,) of ``parts`` times 250,000 rows."""
    rng = np.random.default_rng(300)
    return np.mean([cir(*draw(250_000, rng)).score.diagonal() for _ in range(parts)], axis=0)


def delta_interval(X: Any, Y: Any) -> tuple[Any, Any]:
    """Return the ends (6,) of the plain delta method's interval, from the rows themselves."""
    x_low, x_high = np.quantile(X, [0.25, 0.75], axis=0)
    y_low, y_high = np.quantile(Y, [0.25, 0.75], axis=0)
    p = (X - (x_low + x_high) / 2.0) * (Y - (y_low + y_high) / 2.0)
    D = np.abs(p).sum(axis=0)
    ratio = p.sum(axis=0) / np.where(D > 0.0, D, 1.0)
    variance = ((p - ratio * np.abs(p)) ** 2).sum(axis=0) / np.where(D > 0.0, 4.0 * D * D, 1.0)
    score = 0.5 + ratio / 2.0
    return score - Z * np.sqrt(variance), score + Z * np.sqrt(variance)


def measure(count: int, options: Options) -> dict[str, Any]:
    """Return the share of windows, of two serialised panes each, that hold the truth."""
    true = truth(1 if options.quick else 8)
    repetitions = 20 if options.quick else REPETITIONS
    rng = np.random.default_rng(300 + count)
    grid = Grid.from_rows(*draw(BATCH, rng))
    own = np.arange(len(KINDS))
    hits, delta_hits, width = (np.zeros(len(KINDS)) for _ in range(3))
    for _ in range(repetitions):
        X, Y = draw(count, rng)
        total = WindowState(len(KINDS), len(KINDS))
        for rows in np.array_split(np.arange(count), 2):
            sketch = PaneSketch(grid)
            sketch.update(X[rows], Y[rows])
            total.add(PaneSketch.from_bytes(sketch.to_bytes()))
        low, high = np.moveaxis(total.evaluate().scores.interval[own, own], -1, 0)
        hits += (low <= true) & (true <= high)
        width += high - low
        low, high = delta_interval(X, Y)
        delta_hits += (low <= true) & (true <= high)
    return {
        "rows": count,
        "repetitions": repetitions,
        "coverage": (hits / repetitions).tolist(),
        "delta": (delta_hits / repetitions).tolist(),
        "width": (width / repetitions).tolist(),
    }


def cases(options: Options) -> dict[str, Callable[[], Any]]:
    """Return one case for each number of rows."""
    return {
        f"coverage of intervals, {count:,} rows": partial(measure, count, options)
        for count in SIZES
    }


def section(results: dict[str, Any]) -> str:
    """Return the table of coverages."""
    lines = [
        [kind, f"{result['rows']:,}"]
        + [f"{100 * result[key][k]:.1f} %" for key in ("coverage", "delta")]
        + [f"{result['width'][k]:.3f}"]
        for k, kind in enumerate(KINDS)
        for result in results.values()
    ]
    repetitions = max(result["repetitions"] for result in results.values())
    error = 100 * np.sqrt(0.95 * 0.05 / repetitions)
    return "\n\n".join(
        [
            f"The share of {repetitions:,} seeded repetitions in which the 95 % interval of a "
            "window, merged from two panes that travelled as bytes, holds the score of two "
            f"million rows; the standard error of a share near 95 % is {error:.1f} points. At "
            f"least {100 * FLOOR:.0f} % is asked for. Beside it the plain delta method on the same "
            "rows, in batch.",
            table(["feature", "rows", "covered", "delta method", "mean width"], lines),
        ]
    )


SUITE = Suite("coverage", "Intervals that hold the truth", cases, section)
