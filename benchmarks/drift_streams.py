"""Streams with a change at a known row: rows of independent normal features, and a model's outputs.

A model is replaced, an input or the output moves, or nothing happens. Where the model is replaced, the
distribution of every feature and of the output stays what it was: only their dependence changes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

WINDOW_ROWS = 300
#: Windows before and after the change; a rank is compared with an hour ago, so that a model changes later.
BEFORE, HISTORY, AFTER = 20, 64, 24
#: Windows over which a change that is not abrupt goes on.
PASSAGE = 15
FEATURES, MANY = 8, 30

#: Weights of the model before, of x0 to x3; x4 has an even effect, and no other feature any.
WEIGHTS = np.array([2.0, 1.4, 1.0, 0.7])
EVEN = 0.8
SPREAD = float(np.sqrt((WEIGHTS**2).sum() + 2 * EVEN**2))

NULL = {
    "null": "nothing happens",
    "null, autocorrelated": "nothing happens; every feature remembers 0.9 of its last value (AR(1))",
    "null, many features": "nothing happens; 30 features, of which 25 do not move the output",
}
INPUT = {
    "input, abrupt": "the mean of x5 moves by 1 standard deviation (x5 does not move the output)",
    "input, gradual": f"the same, for a share of the rows that grows to all over {PASSAGE} windows",
    "input, incremental": f"the same, in a line over {PASSAGE} windows",
}
CONCEPT = {
    "concept, abrupt": "x0, the first, and x3, the fourth, exchange their effects",
    "concept, incremental": f"the same, turned over {PASSAGE} windows",
    "concept, sign": "the effect of x0, the first, changes its sign",
    "concept, irrelevant": "x0, the first, has no effect any more, those of x1 to x3 grow",
    "concept, even": "an even effect, of the square of x4, goes over to x6",
}
OUTPUT = {
    "output, abrupt": "the output moves by half a standard deviation, the features do not",
}
KINDS = {**NULL, **INPUT, **CONCEPT, **OUTPUT}


class DriftStream(NamedTuple):
    """Rows X (n, d), outputs y (n,), and what they depend on; ``onset`` is a window, None: never.

    ``weights`` (n, d) of the features and ``even`` (n, d) of their squares: the model of every row.
    """

    X: Floats
    y: Floats
    weights: Floats
    even: Floats
    onset: int | None
    window_rows: int

    @property
    def windows(self) -> int:
        """Whole windows."""
        return len(self.X) // self.window_rows


def before_of(kind: str) -> int:
    """Return the windows before the change."""
    return HISTORY if kind in CONCEPT else BEFORE


def make(kind: str, seed: int, before: int, after: int = AFTER) -> DriftStream:
    """Return the stream of a kind; ``before`` and ``after`` its change, in windows."""
    rng = np.random.default_rng([seed, list(KINDS).index(kind)])
    d = MANY if kind == "null, many features" else FEATURES
    # A window is told of once rows of the next one are there.
    count = (before + after) * WINDOW_ROWS + WINDOW_ROWS // 6
    X = rng.standard_normal((count, d))
    if kind == "null, autocorrelated":
        X = _autoregressive(X, 0.9)
    elapsed = (np.arange(count) - before * WINDOW_ROWS) / WINDOW_ROWS
    passed = np.clip(elapsed / PASSAGE, 0.0, 1.0)
    if kind.endswith("gradual"):
        passed = (rng.random(count) < passed).astype(np.float64)
    elif not kind.endswith("incremental"):
        passed = (elapsed >= 0).astype(np.float64)

    weights, even = np.zeros((count, d)), np.zeros((count, d))
    weights[:, :4], even[:, 4] = WEIGHTS, EVEN
    if kind in CONCEPT:
        _change(kind.removeprefix("concept, "), weights, even, passed)
    if kind in INPUT:
        X[:, 5] += passed
    y = (weights * X).sum(axis=1) + (even * (X**2 - 1.0)).sum(axis=1)
    if kind in OUTPUT:
        y += 0.5 * SPREAD * passed
    return DriftStream(X, y, weights, even, None if kind in NULL else before, WINDOW_ROWS)


def _change(how: str, weights: Floats, even: Floats, passed: Floats) -> None:
    """Let the model of every row be the new one as far as it has come, at the same variance."""
    if how == "sign":
        weights[:, 0] *= 1.0 - 2.0 * passed
    elif how == "irrelevant":
        kept = (WEIGHTS**2).sum() / (WEIGHTS[1:] ** 2).sum()
        weights[:, 0] *= 1.0 - passed
        weights[:, 1:4] *= np.sqrt(1.0 + (kept - 1.0) * passed)[:, None]
    elif how == "even":
        even[:, 6] = EVEN * passed
        even[:, 4] *= 1.0 - passed
    else:  # both weights turn on the circle that they lie on
        first, last = WEIGHTS[0], WEIGHTS[3]
        start, end = np.arctan2(last, first), np.arctan2(first, last)
        angle, radius = start + (end - start) * passed, np.hypot(first, last)
        weights[:, 0], weights[:, 3] = radius * np.cos(angle), radius * np.sin(angle)


def _autoregressive(noise: Floats, memory: float) -> Floats:
    """Return columns of variance 1 that remember a share of their last value."""
    found = noise.copy()
    for k in range(1, len(found)):
        found[k] = memory * found[k - 1] + np.sqrt(1.0 - memory**2) * noise[k]
    return found
