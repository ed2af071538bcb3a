"""The streamed score against the batch score on seven kinds of stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from attributary.workers.maths.cir import cir
from attributary.workers.maths.grid import Grid, departed
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.maths.window import WindowState
from benchmarks.peers.timing import BATCH
from benchmarks.suite import Options, Suite, number, table

KINDS = ("Gaussian", "lognormal", "heavy tails", "linear drift", "3-sd step", "binary", "counts")
ROWS, COLUMNS, PARTS, SEEDS = 50_000, 30, 10, (21, 22, 23)
BOUND, STEP_BOUND = 1e-3, 2e-3


def stream(kind: str, count: int, seed: int) -> tuple[Any, Any]:
    """Return X (n, 30) of one kind, and Y (n, 1) that it drives with slopes from none to strong."""
    rng = np.random.default_rng(seed)
    shape = (count, COLUMNS)
    time = np.linspace(0.0, 1.0, count)[:, None]
    if kind == "heavy tails":
        X = rng.standard_t(3, size=shape)
    elif kind == "binary":
        X = (rng.random(shape) < np.linspace(0.01, 0.9, COLUMNS)).astype(np.float64)
    elif kind == "counts":
        X = rng.poisson(np.linspace(0.3, 9.0, COLUMNS), size=shape).astype(np.float64)
    else:
        X = rng.normal(size=shape)
        if kind == "lognormal":
            X = np.exp(X)
        elif kind == "linear drift":
            X += 2.0 * time
        elif kind == "3-sd step":
            X += 3.0 * (time > 0.5)
    slopes = rng.normal(size=COLUMNS) * np.linspace(0.0, 1.0, COLUMNS)
    return X, (X @ slopes + rng.normal(size=count))[:, None]


def streamed(X: Any, Y: Any) -> tuple[WindowState, int]:
    """Return the window of ten parts, each sent as bytes, and how many bytes they were.

    A part whose data has left the grid starts an epoch of its own, as ingest does.
    """
    total, sent = WindowState(X.shape[1], Y.shape[1]), 0
    grid = Grid.from_rows(X[:BATCH], Y[:BATCH])
    for rows in np.array_split(np.arange(len(X)), PARTS):
        sketch = PaneSketch(grid)
        sketch.update(X[rows], Y[rows])
        if departed(sketch.comovement).any:
            first = rows[:BATCH]
            grid = Grid.from_rows(X[first], Y[first], epoch=grid.epoch + 1)
            sketch = PaneSketch(grid)
            sketch.update(X[rows], Y[rows])
        data = sketch.to_bytes()
        sent += len(data)
        total.add(PaneSketch.from_bytes(data))
    return total, sent


def warm_up_score(X: Any, Y: Any) -> Any:
    """Return the scores (c, d) about the centre of the first 1,024 rows: the simple online way."""
    low, high = np.quantile(X[:BATCH], [0.25, 0.75], axis=0)
    y_low, y_high = np.quantile(Y[:BATCH], [0.25, 0.75], axis=0)
    x, y = X - (low + high) / 2.0, Y - (y_low + y_high) / 2.0
    D = np.abs(y).T @ np.abs(x)
    return 0.5 + np.divide(y.T @ x, 2.0 * D, out=np.zeros_like(D), where=D > 0.0)


def measure(kind: str, options: Options) -> dict[str, Any]:
    """Return the worst gaps over features and seeds."""
    worst, error, simple, epochs, sent = 0.0, 0.0, 0.0, 0, 0
    count = 6_000 if options.quick else ROWS
    for seed in SEEDS[:1] if options.quick else SEEDS:
        X, Y = stream(kind, count, seed)
        total, size = streamed(X, Y)
        found, batch = total.evaluate().scores, cir(X, Y)
        worst = max(worst, float(np.abs(found.score - batch.score).max()))
        error = max(error, float(np.abs(found.stderr / batch.stderr - 1.0).max()))
        simple = max(simple, float(np.abs(warm_up_score(X, Y) - batch.score).max()))
        epochs = max(epochs, len(total.epochs))
        sent = max(sent, size)
    return {
        "kind": kind,
        "worst": worst,
        "stderr": error,
        "warm_up": simple,
        "epochs": epochs,
        "wire": sent / PARTS,
        "rows": count,
    }


def cases(options: Options) -> dict[str, Callable[[], Any]]:
    """Return one case for each kind of stream."""
    return {f"streamed against batch, {kind}": partial(measure, kind, options) for kind in KINDS}


def section(results: dict[str, Any]) -> str:
    """Return the table of the worst gaps."""
    lines = []
    for entry in results.values():
        bound = STEP_BOUND if entry["kind"] == KINDS[4] else BOUND
        lines.append(
            [
                entry["kind"],
                f"{entry['worst']:.1e}",
                f"{bound:.0e}",
                f"{entry['warm_up']:.1e}",
                f"{number(entry['warm_up'] / entry['worst'])} ×",
                f"{100 * entry['stderr']:.2f} %",
                str(entry["epochs"]),
            ]
        )
    count = max(entry["rows"] for entry in results.values())
    head = ["stream", "worst gap", "at most", "about a warm-up centre", "ratio"]
    head += ["standard error, worst gap", "epochs"]
    return "\n\n".join(
        [
            f"{count:,} rows of {COLUMNS} features and one output, K = 16, in {PARTS} parts that "
            "travel as bytes and are merged; the worst difference to the score of all rows at "
            f"once, over features and {len(SEEDS)} seeds. Beside it the simple way to score "
            f"online, sums about the centre of the first {BATCH:,} rows, on the same rows.",
            table(head, lines),
        ]
    )


SUITE = Suite("accuracy", "Streamed scores against batch scores", cases, section)
