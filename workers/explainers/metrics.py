"""How good explanations are: stability against small changes and over runs, faithfulness, additivity.

For any explainer, a callable from rows (k, d) to attributions (k, d); models are batched callables.
Where a function takes attributions, the explainer is not run again.

RIS and ROS: C. Agarwal et al., "Rethinking Stability for Attribution-based Explanations" (2022), in
the T-Explainer paper's form: relative changes, and relative to the output, not to a hidden layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from attributary.workers.explainers.batched import BatchedModel, Model, block, checked_rows

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Explainer = Callable[[Floats], npt.ArrayLike]

#: Divisors nearer to zero than this count as this, with their sign.
_FLOOR = 1e-5
_BATCH = 4096


def neighbours(
    X: npt.ArrayLike, count: int, size: npt.ArrayLike, rng: np.random.Generator
) -> Floats:
    """Return ``count`` Gaussian neighbours (n, count, d) of every row, standard deviation ``size``.

    ``size`` is a number or (d,); features of size 0, such as categorical ones, stay as they are.
    """
    rows = checked_rows("X", X)
    shape = (len(rows), count, rows.shape[1])
    return rows[:, None, :] + rng.normal(size=shape) * np.asarray(size, dtype=np.float64)


def input_stability(
    e: npt.ArrayLike, e_near: npt.ArrayLike, x: npt.ArrayLike, x_near: npt.ArrayLike
) -> Floats:
    """Return RIS (n, k): ‖(e - e′)/e‖ / max(‖(x - x′)/x‖, 1e-5), Euclidean.

    ``e``, ``x`` (n, d) at the rows, ``e_near``, ``x_near`` (n, k, d) at their neighbours. Lower is
    more stable. Components of the divisors within ±1e-5 count as ±1e-5.

    >>> round(float(input_stability([[1, 2]], [[[1.1, 1.8]]], [[1, 1]], [[[1.1, 1]]])[0, 0]), 9)
    1.414213562
    """
    return _relative(e, e_near) / np.maximum(_relative(x, x_near), _FLOOR)


def output_stability(
    e: npt.ArrayLike, e_near: npt.ArrayLike, f: npt.ArrayLike, f_near: npt.ArrayLike
) -> Floats:
    """Return ROS (n, k): ‖(e - e′)/e‖ / max(‖(f - f′)/f‖, 1e-5), for outputs f (n, c), f′ (n, k, c).

    >>> round(float(output_stability([[1, 2]], [[[1.1, 1.8]]], [[.4, .6]], [[[.45, .55]]])[0, 0]), 9)
    0.941357449
    """
    return _relative(e, e_near) / np.maximum(_relative(f, f_near), _FLOOR)


@dataclass(frozen=True)
class Stability:
    """``ris`` and ``ros`` (n, k) of every neighbour, NaN where ``kept`` (n, k) is False.

    Not kept are neighbours of another predicted class. The maxima and means (n,) are over the
    neighbours that are kept, NaN where there is none.
    """

    ris: Floats
    ros: Floats
    kept: Flags

    @property
    def ris_max(self) -> Floats:
        """The largest RIS of a row."""
        return _largest(self.ris, self.kept)

    @property
    def ris_mean(self) -> Floats:
        """The mean RIS of a row."""
        return _mean(self.ris, self.kept)

    @property
    def ros_max(self) -> Floats:
        """The largest ROS of a row."""
        return _largest(self.ros, self.kept)

    @property
    def ros_mean(self) -> Floats:
        """The mean ROS of a row."""
        return _mean(self.ros, self.kept)


def relative_stability(
    explain: Explainer,
    model: Model,
    X: npt.ArrayLike,
    near: npt.ArrayLike,
    *,
    batch_size: int = _BATCH,
) -> Stability:
    """Explain ``X`` (n, d) and its neighbours ``near`` (n, k, d) and compare them.

    The predicted class is the largest of the outputs (b, c), and the side of ½ of an output (b,)
    that is a probability: all of its values within [0, 1]. Other outputs have no classes.
    """
    rows = checked_rows("X", X)
    others = np.asarray(near, dtype=np.float64)
    n, d = rows.shape
    if others.ndim != 3 or others.shape[0] != n or others.shape[2] != d or 0 in others.shape:
        raise ValueError(f"near has shape {others.shape}; expected ({n}, k, {d}), neighbours of X")
    k = others.shape[1]
    flat = others.reshape(-1, d)
    batched = BatchedModel(model, batch_size)
    f, f_near = batched.evaluate([block(rows), block(flat)])
    e = _attributions(explain(rows), n, d)
    e_near = _attributions(explain(flat), n * k, d).reshape(n, k, d)
    own, theirs = _classes(f, f_near)
    kept = np.asarray(own[:, None] == theirs.reshape(n, k))
    nothing = np.where(kept, 0.0, np.nan)
    c = f.shape[1]
    return Stability(
        input_stability(e, e_near, rows, others) + nothing,
        output_stability(e, e_near, f, f_near.reshape(n, k, c)) + nothing,
        kept,
    )


def run_stability(explain: Explainer, X: npt.ArrayLike, runs: int = 10) -> Floats:
    """Return RES (n,): the largest ‖e_1 - e_r‖_∞ over ``runs`` explanations of the same rows.

    0 for an explainer that gives the same answer every time.
    """
    rows = checked_rows("X", X)
    if runs < 2:
        raise ValueError(f"runs is {runs}; expected 2 or more")
    first = _attributions(explain(rows.copy()), *rows.shape).copy()
    found = np.zeros(len(rows))
    for _ in range(runs - 1):
        again = _attributions(explain(rows.copy()), *rows.shape)
        found = np.maximum(found, np.abs(again - first).max(axis=1))
    return found


def prediction_gap(
    model: Model,
    X: npt.ArrayLike,
    attributions: npt.ArrayLike,
    k: int,
    *,
    variant: Literal["keep", "delete"],
    baseline: npt.ArrayLike = 0.0,
    batch_size: int = _BATCH,
) -> Floats:
    """Return PGI (n,) on the ``k`` features of largest |attribution|; ties to the first.

    "keep", the paper's text: they stay, all others go to the baseline, 1 - |f(x) - f(x′)|.
    "delete", the public code: they alone go to the baseline, |f(x) - f(x′)|. Higher is better for
    both. ``model`` returns (b,), for "keep" a probability; ``baseline`` is a number or (d,).
    """
    rows, e = _pair(X, attributions)
    d = rows.shape[1]
    if not 1 <= k <= d:
        raise ValueError(f"k is {k}; expected 1 to {d}")
    if variant not in ("keep", "delete"):
        raise ValueError(f"variant is {variant!r}; expected 'keep' or 'delete'")
    top = _ranks(np.abs(e)) < k
    moved = np.where(top if variant == "delete" else ~top, np.asarray(baseline, np.float64), rows)
    gap = np.abs(_single(model, rows, batch_size) - _single(model, moved, batch_size))
    return 1.0 - gap if variant == "keep" else gap


def local_accuracy(
    output: npt.ArrayLike, base_value: npt.ArrayLike, attributions: npt.ArrayLike, epsilon: float
) -> float:
    """Return LAP: the share of rows with |f(x) - base value - Σ attributions| <= ``epsilon``.

    ``output`` (n,), ``base_value`` a number or (n,), ``attributions`` (n, d).
    """
    e = np.asarray(attributions, dtype=np.float64)
    f = np.asarray(output, dtype=np.float64)
    if e.ndim != 2 or f.shape != e.shape[:1] or 0 in e.shape:
        raise ValueError(f"output {f.shape} and attributions {e.shape}; expected (n,) and (n, d)")
    gap = np.abs(f - np.asarray(base_value, dtype=np.float64) - e.sum(axis=1))
    return float((gap <= epsilon).mean())


@dataclass(frozen=True)
class Curve:
    """``value`` (n, d + 1): the output after 0 to d features, ``share`` (d + 1,) of all features."""

    share: Floats
    value: Floats

    @property
    def area(self) -> Floats:
        """The area (n,) under each curve, by the trapezoidal rule."""
        found: Floats = ((self.value[:, 1:] + self.value[:, :-1]) / 2.0).mean(axis=1)
        return found


def deletion_curve(
    model: Model,
    X: npt.ArrayLike,
    attributions: npt.ArrayLike,
    *,
    baseline: npt.ArrayLike = 0.0,
    batch_size: int = _BATCH,
) -> Curve:
    """Return the output as features go to the baseline, highest attribution first.

    The lower the area, the better. ``model`` returns (b,). V. Petsiuk et al., "RISE" (2018).
    """
    rows, e = _pair(X, attributions)
    return _curve(
        model, np.broadcast_to(np.asarray(baseline, np.float64), rows.shape), rows, e, batch_size
    )


def insertion_curve(
    model: Model,
    X: npt.ArrayLike,
    attributions: npt.ArrayLike,
    *,
    baseline: npt.ArrayLike = 0.0,
    batch_size: int = _BATCH,
) -> Curve:
    """Return the output as features come back from the baseline, highest attribution first.

    The higher the area, the better.
    """
    rows, e = _pair(X, attributions)
    return _curve(
        model, rows, np.broadcast_to(np.asarray(baseline, np.float64), rows.shape), e, batch_size
    )


def _curve(model: Model, goal: Floats, start: Floats, e: Floats, batch_size: int) -> Curve:
    n, d = e.shape
    moved = _ranks(e)[:, None, :] < np.arange(d + 1)[None, :, None]
    points = np.where(moved, goal[:, None, :], start[:, None, :])
    value = _single(model, points.reshape(-1, d), batch_size).reshape(n, d + 1)
    return Curve(np.arange(d + 1) / d, value)


def _ranks(values: Floats) -> npt.NDArray[np.intp]:
    """Return the place (n, d) of each value in its row, 0 the largest; ties in order of columns."""
    order = np.argsort(-values, axis=1, kind="stable")
    return np.argsort(order, axis=1, kind="stable")


def _relative(a: npt.ArrayLike, near: npt.ArrayLike) -> Floats:
    """Return ‖(a - a′)/a‖ (n, k) for a (n, q), a′ (n, k, q)."""
    centre, others = np.asarray(a, dtype=np.float64), np.asarray(near, dtype=np.float64)
    if centre.ndim != 2 or others.ndim != 3 or others.shape[::2] != centre.shape:
        raise ValueError(f"shapes {centre.shape} and {others.shape}; expected (n, q) and (n, k, q)")
    sign = np.where(centre < 0.0, -1.0, 1.0)
    divisor = np.where(np.abs(centre) < _FLOOR, sign * _FLOOR, centre)
    found: Floats = np.linalg.norm((centre[:, None] - others) / divisor[:, None], axis=2)
    return found


def _classes(f: Floats, f_near: Floats) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    if f.shape[1] > 1:
        return f.argmax(axis=1), f_near.argmax(axis=1)
    both = np.concatenate([f, f_near])
    probability = bool((both >= 0.0).all() and (both <= 1.0).all())
    own, theirs = ((values[:, 0] > 0.5) & probability for values in (f, f_near))
    return own.astype(np.intp), theirs.astype(np.intp)


def _largest(values: Floats, kept: Flags) -> Floats:
    found = np.where(kept, values, -np.inf).max(axis=1)
    return np.where(kept.any(axis=1), found, np.nan)


def _mean(values: Floats, kept: Flags) -> Floats:
    total = np.where(kept, values, 0.0).sum(axis=1)
    return np.where(kept.any(axis=1), total / np.maximum(kept.sum(axis=1), 1), np.nan)


def _attributions(values: npt.ArrayLike, n: int, d: int) -> Floats:
    found = np.asarray(values, dtype=np.float64)
    if found.shape != (n, d):
        raise ValueError(f"the explainer returned shape {found.shape}; expected ({n}, {d})")
    if not np.isfinite(found).all():
        raise ValueError(
            f"the explainer returned {int((~np.isfinite(found)).sum())} values not finite"
        )
    return found


def _pair(X: npt.ArrayLike, attributions: npt.ArrayLike) -> tuple[Floats, Floats]:
    rows = checked_rows("X", X)
    e = np.asarray(attributions, dtype=np.float64)
    if e.shape != rows.shape or not np.isfinite(e).all():
        raise ValueError(f"attributions have shape {e.shape}; expected {rows.shape}, all finite")
    return rows, e


def _single(model: Model, X: Floats, batch_size: int) -> Floats:
    batched = BatchedModel(model, batch_size)
    (found,) = batched.evaluate([block(X)])
    if found.shape[1] != 1:
        raise ValueError(f"the model has {found.shape[1]} outputs; pass one that returns (b,)")
    return found[:, 0]
