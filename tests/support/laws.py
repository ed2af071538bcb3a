"""The accumulators that the law suite in ``tests/maths/test_laws.py`` examines. To add one, append a case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from attributary.workers.maths.comovement import CoMovement
from attributary.workers.maths.grid import Grid
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.maths.sample import RowSample, hash_integers
from attributary.workers.maths.tdigest import TDigests
from attributary.workers.maths.window import WindowState

Result = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Case:
    """One accumulator under test.

    make() returns an empty one, with merge(other), to_bytes() and from_bytes(data). feed(acc, rng,
    n) draws n rows from rng and adds them. result(acc) names what can be read.
    tolerance {name: how far} a result may move when rows are split and merged in another way; names
    that are absent must be equal to the bit. stored says the same of the byte form. Both are
    relative to the largest value where that exceeds 1. magic and version head the bytes.
    """

    name: str
    make: Callable[[], Any]
    feed: Callable[[Any, np.random.Generator, int], None]
    result: Callable[[Any], Result]
    magic: bytes
    version: int = 1
    tolerance: Mapping[str, float] = field(default_factory=dict)
    stored: Mapping[str, float] = field(default_factory=dict)


def _mixed_rows(rng: np.random.Generator, n: int) -> npt.NDArray[np.float64]:
    """Rows of a Gaussian, a heavy-tailed, a discrete and a partly missing column."""
    rows = np.column_stack(
        [
            rng.standard_normal(n),
            rng.standard_t(2, n),
            rng.integers(0, 4, n) / 10,
            np.where(rng.random(n) < 0.2, np.nan, rng.lognormal(size=n)),
        ]
    )
    rows[rng.random(n) < 0.01, 1] = np.inf
    return rows


def _feed_digests(digests: TDigests, rng: np.random.Generator, n: int) -> None:
    digests.update(_mixed_rows(rng, n))


def _feed_weighted(digests: TDigests, rng: np.random.Generator, n: int) -> None:
    rows = _mixed_rows(rng, n)
    digests.update(rows, rng.exponential(size=n))


def _read_digests(digests: TDigests) -> Result:
    return {
        "count": digests.count,
        "nan": digests.nan_count,
        "infinite": digests.inf_count,
        "minimum": digests.minimum,
        "maximum": digests.maximum,
        "weight": digests.weight,
        "discrete": digests.cdf([-0.1, 0.0, 0.1, 0.2, 0.3])[:, 2],
        # In rank, where the digest's error is bounded, rather than in value, where it is not.
        "cdf": digests.cdf(np.linspace(-3, 6, 37)),
    }


def _feed_sample(sample: RowSample, rng: np.random.Generator, n: int) -> None:
    hashes = hash_integers(rng.integers(0, 2**63, n))
    Y = rng.standard_normal((n, 1))
    sample.update(hashes, rng.standard_normal((n, 2)), Y, rng.integers(0, 10**12, n))


def _read_sample(sample: RowSample) -> Result:
    return {"seen": sample.seen, **sample.rows()._asdict()}


def _make_comovement() -> CoMovement:
    edges = np.array([[-1.0, 0.0, 1.0]])
    return CoMovement(np.repeat(edges, 3, axis=0), np.repeat(edges, 2, axis=0))


def _feed_comovement(grid: CoMovement, rng: np.random.Generator, n: int) -> None:
    X = rng.standard_normal((n, 3))
    Y = X[:, :2] + rng.standard_normal((n, 2))
    X[rng.random(n) < 0.1, 2] = np.nan
    grid.update(X, Y)


def _feed_weighted_comovement(grid: CoMovement, rng: np.random.Generator, n: int) -> None:
    X = rng.standard_normal((n, 3))
    grid.update(X, X[:, :2] + rng.standard_normal((n, 2)), rng.exponential(size=n))


def _read_comovement(grid: CoMovement) -> Result:
    sums = grid.sums(np.array([0.1, -0.2, 0.0]), np.array([0.3, 0.0]))
    N, D = grid.evaluate(np.array([0.1, -0.2, 0.0]), np.array([0.3, 0.0]))
    return {
        "N": N,
        "D": D,
        "square": sums.square,
        "signed": sums.signed,
        "rows": sums.rows,
        "x mass": grid.x_mass.copy(),
        "y mass": grid.y_mass.copy(),
        "output squares": grid.output_squares().copy(),
        "range": grid.x_range.copy(),
    }


_GRID = Grid(
    epoch=3,
    x_edges=np.repeat([[-1.0, 0.0, 1.0]], 3, axis=0),
    y_edges=np.repeat([[-1.0, 0.0, 1.0]], 2, axis=0),
    x_reference=np.zeros(3),
    y_reference=np.zeros(2),
)
_BLOCKS = {"first": [0, 1], "all": [0, 1, 2]}


def _make_pane() -> PaneSketch:
    return PaneSketch(_GRID, sample_size=10, blocks=_BLOCKS)


def _feed_pane(pane: PaneSketch, rng: np.random.Generator, n: int) -> None:
    X = rng.standard_normal((n, 3))
    Y = X[:, :2] + rng.standard_normal((n, 2))
    X[rng.random(n) < 0.1, 2] = np.nan
    hashes = hash_integers(rng.integers(0, 2**63, n))
    weights = np.where(rng.random(n) < 0.3, 2.0, 1.0)
    pane.update(X, Y, weights, hashes, rng.integers(0, 10**12, n))


def _feed_window(window: WindowState, rng: np.random.Generator, n: int) -> None:
    pane = _make_pane()
    _feed_pane(pane, rng, n)
    window.add(pane)


def _read_window(window: WindowState) -> Result:
    found = window.evaluate(_BLOCKS)
    assert window.sample is not None
    return {
        "rows": np.array([window.rows, window.weight]),
        "seen": window.seen.copy(),
        "score": found.scores.score,
        "strength": found.scores.strength_low,
        "effect": found.scores.effect,
        "block": found.scores.blocks["all"],
        "block error": found.scores.block_stderr["all"],
        "information": found.mutual_information,
        "hashes": window.sample.rows().hashes.copy(),
    }


def _read_pane(pane: PaneSketch) -> Result:
    return {"cells": pane.comovement.cells.copy(), **_read_window(WindowState.of(pane))}


# Scores move with the centre that the digests give, by their rank error.
_WINDOW_TOLERANCE = {
    "score": 4e-3,
    "strength": 1e-2,
    "effect": 4e-2,
    "block": 4e-3,
    "block error": 4e-3,
    "information": 1e-10,
}
_CELL_TOLERANCE = dict.fromkeys(
    ("N", "D", "square", "signed", "rows", "x mass", "y mass", "output squares"), 1e-12
)

CASES = [
    Case(
        "t-digests",
        lambda: TDigests(4),
        _feed_digests,
        _read_digests,
        b"TDIG",
        # The rank error that merged digests of this compression promise.
        tolerance={"cdf": 1e-2},
    ),
    Case(
        "weighted t-digests",
        lambda: TDigests(4, compression=100),
        _feed_weighted,
        _read_digests,
        b"TDIG",
        tolerance={"cdf": 2e-2, "weight": 1e-12, "discrete": 1e-12},
    ),
    Case("row sample", lambda: RowSample(25, 2, 1), _feed_sample, _read_sample, b"ROWS"),
    Case(
        "stratified row sample",
        lambda: RowSample(25, 2, 1, edges=[-1.5, 1.5]),
        _feed_sample,
        _read_sample,
        b"ROWS",
    ),
    Case(
        "co-movement",
        _make_comovement,
        _feed_comovement,
        _read_comovement,
        b"CMOV",
        tolerance=_CELL_TOLERANCE,
        stored=dict.fromkeys(_CELL_TOLERANCE, 1e-6),
    ),
    Case(
        "weighted co-movement",
        _make_comovement,
        _feed_weighted_comovement,
        _read_comovement,
        b"CMOV",
        tolerance=_CELL_TOLERANCE,
        stored=dict.fromkeys(_CELL_TOLERANCE, 1e-6),
    ),
    Case(
        "pane",
        _make_pane,
        _feed_pane,
        _read_pane,
        b"PANE",
        tolerance={**_WINDOW_TOLERANCE, "cells": 1e-12},
        stored=dict.fromkeys((*_WINDOW_TOLERANCE, "cells"), 1e-6),
    ),
    Case(
        "window",
        lambda: WindowState(3, 2, sample_size=10),
        _feed_window,
        _read_window,
        b"WIND",
        tolerance=_WINDOW_TOLERANCE,
    ),
]
