"""T-Explainer: the first-order Taylor expansion of a model about a row, as an attribution.

Source: E. S. Ortigossa et al., "T-Explainer: A Model-Agnostic Explainability Framework Based on
Gradients" (arXiv 2404.16495). Differs from the paper:

- A slope is a central difference along one axis; the printed form steps along all axes at once and
  is a directional derivative.
- The step starts at the round-off floor of the model's precision (`precisions`), not at the smallest distance
  between two rows: in 16 dimensions that is about one standard deviation, where the difference of a
  smooth model is wrong in its first digit. The distance bounds the neighbourhood of models
  without slopes instead, which the data must resolve.
- The slope must not vanish only because the step is too small; the printed full-rank test of a
  two-class Jacobian always fails, its rows being ±g.
- Contributions are slope · (x - x̄), with the mean output as base value: the bare slopes, which the
  paper calls contributions, do not add up to the output.
- Categorical features get exact contrasts between their levels instead of retrained models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from attributary.workers.explainers.batched import (
    BatchedModel,
    Block,
    Model,
    ModelOutputError,
    block,
    checked_rows,
)
from attributary.workers.explainers.character import Character, examine
from attributary.workers.explainers.contrasts import Contrast, change, contrast_block, slopes
from attributary.workers.explainers.differences import Axes, Probe, Slopes, probe, search
from attributary.workers.explainers.groups import Categorical, Levels, checked_categorical, levels
from attributary.workers.explainers.precisions import (
    EPSILON,
    LARGEST,
    SPACINGS,
    Precision,
)
from attributary.workers.explainers.scales import (
    closest_pair,
    mean_of,
    neighbourhood,
    robust_scale,
)

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]
Gradient = Callable[[Floats], npt.ArrayLike]
Bounds = tuple[npt.ArrayLike, npt.ArrayLike]

#: Share of the background on each side of a value that a slope is averaged over.
_NEIGHBOURHOOD = 0.25
#: Spacings of the model's numbers that a slope is off by, relative to the row's largest.
_INSIDE = 2.0
#: Background rows at most among which the closest pair is looked for.
_PAIR_ROWS = 2_000


@dataclass(frozen=True)
class TExplanation:
    """Slopes and contributions of n rows; (n, d) for a model of shape (b,), (n, c, d) for (b, c).

    ``gradient``: output units per unit of the feature; of a categorical column a contrast of levels
    (`contrasts.slopes`). ``contributions``: output units, gradient · (x - x̄). ``additivity_gap`` (n,)
    or (n, c): f(x) - base_value - Σ contributions, what the first order leaves unexplained.
    ``gradient_error``, like gradient: truncation as seen by halving the step, and round-off; of
    averaged slopes their change when the neighbourhood is halved. ``h`` (n, d): half the distance
    that the difference really spans, 0 where none was taken. ``unresolved`` (n, d): so far from 0
    that the model's numbers are too far apart for a step up to h_max; the error is at least the
    slope, infinite where nothing was seen. ``piecewise_constant``: the model has no slopes, and the
    gradient is the average over a neighbourhood of quantiles.
    """

    gradient: Floats
    contributions: Floats
    base_value: Floats
    additivity_gap: Floats
    output: Floats
    gradient_error: Floats
    h: Floats
    unresolved: Flags
    contrasts: tuple[Contrast, ...]
    precision: Precision
    piecewise_constant: bool
    model_calls: int
    model_rows: int


def t_explain(
    model: Model,
    X: npt.ArrayLike,
    *,
    background: npt.ArrayLike,
    categorical: Categorical = (),
    bounds: Bounds | None = None,
    batch_size: int = 4096,
    precision: Precision | None = None,
    piecewise_constant: bool | None = None,
    gradient: Gradient | None = None,
    h: npt.ArrayLike | None = None,
    h_max: float = 1.0,
    max_iter: int = 12,
) -> TExplanation:
    """Explain ``X`` (n, d) by slopes of ``model``, (b, d) → (b,) or (b, c), about ``background`` (m, d).

    ``categorical``: a column of integer codes, or a list of columns that is a one-hot group.
    ``bounds``: (low, high), numbers or (d,): no probe leaves them, wider where a row already lies
    outside. ``precision`` and ``piecewise_constant`` are found by probing where they are None.
    ``gradient``: the exact derivative, (b, d) → (b, d) or (b, c, d), used instead of differences.
    ``h``: a fixed step in the features' own units, a number or (d,); the search is left out. ``h_max``
    in robust scales. Missing values may stand in numeric columns of the background alone.

    The model gets batches of at most ``batch_size`` rows. The result does not depend on it, nor on
    the other rows of X, and is the same to the bit every time, as far as the model's answer for
    a row is. Raises ValueError for arguments that do not fit, ModelOutputError for outputs.

    >>> import numpy as np
    >>> square = lambda X: X[:, 0] ** 2 + 2 * X[:, 1] ** 2 + X[:, 0] * X[:, 1]
    >>> t_explain(square, [[1.0, 2.0]], background=np.zeros((1, 2))).gradient.round(6).tolist()
    [[4.0, 9.0]]
    """
    rows = checked_rows("X", X)
    n, d = rows.shape
    others = checked_rows("background", background, d)
    groups = checked_categorical(categorical, d)
    _check_finite(rows, others)
    coded = [index for index, _ in groups]
    numeric = np.setdiff1d(np.arange(d), np.concatenate([np.empty(0, np.intp), *coded]))
    level_sets = [levels(index, one_hot, rows, others) for index, one_hot in groups]
    low, high = _checked_bounds(bounds, rows)
    _check_options(batch_size, precision, h_max, max_iter)

    batched = BatchedModel(model, batch_size)
    scale = robust_scale(others)
    flat = False if gradient is not None or h is not None else piecewise_constant
    character = examine(batched, others, scale, numeric, precision, flat)
    # With exact derivatives there are no axes to probe.
    probed = numeric if gradient is None else numeric[:0]
    axes = _axes(rows, probed, scale, low, high)
    below, above = _steps(axes, others, scale, character, h, h_max)
    searched = h is None and not character.piecewise_constant
    taken = probe(axes, below, above, character, extrapolate=searched)
    output, first, changes = _evaluate(batched, rows, level_sets, taken)
    if searched:
        start = below / axes.scale
        first = search(batched, axes, first, start, h_max, max_iter, character)

    c = output.shape[1]
    slope, error = np.zeros((n, c, d)), np.zeros((n, c, d))
    width, unresolved = np.zeros((n, d)), np.zeros((n, d), dtype=bool)
    slope[axes.row, :, axes.column] = first.slope
    error[axes.row, :, axes.column] = first.error
    width[axes.row, axes.column] = first.h
    unresolved[axes.row, axes.column] = first.lost
    if gradient is not None:
        exact = _exact(gradient, rows, batch_size, c)
        batched.calls += -(-n // batch_size)
        slope[:, :, numeric] = exact[:, :, numeric]
    error += _rounded_inside(slope, scale, numeric, character.epsilon)
    centre = np.array([mean_of(others[:, j]) for j in range(d)])
    # Halves: the largest numbers of both signs are twice as far apart.
    contributions = 2.0 * (slope * (rows / 2.0 - centre / 2.0)[:, None, :])
    for level_set, moved in zip(level_sets, changes, strict=True):
        parts = slopes(level_set, rows, moved)
        slope[:, :, level_set.columns], contributions[:, :, level_set.columns] = parts
    gap = output - character.mean - contributions.sum(axis=2)

    scalar = batched.outputs is None
    return TExplanation(
        gradient=slope[:, 0] if scalar else slope,
        contributions=contributions[:, 0] if scalar else contributions,
        base_value=character.mean[0] if scalar else character.mean,
        additivity_gap=gap[:, 0] if scalar else gap,
        output=output[:, 0] if scalar else output,
        gradient_error=error[:, 0] if scalar else error,
        h=width,
        unresolved=unresolved,
        contrasts=tuple(
            Contrast(s.columns, s.values, s.frequency, moved[:, 0] if scalar else moved)
            for s, moved in zip(level_sets, changes, strict=True)
        ),
        precision=character.precision,
        piecewise_constant=character.piecewise_constant,
        model_calls=batched.calls,
        model_rows=batched.rows,
    )


def _evaluate(
    model: BatchedModel, rows: Floats, level_sets: list[Levels], taken: Probe
) -> tuple[Floats, Slopes, list[Floats]]:
    """Return f(X) (n, c), the slopes of the first probes and the changes (n, c, L) of every categorical.

    All in one round of batches.
    """
    probes, read = taken
    contrasts: list[Block] = [contrast_block(rows, level_set) for level_set in level_sets]
    output, *rest = model.evaluate([block(rows), *probes, *contrasts])
    changes = [
        change(level_set, found, output)
        for level_set, found in zip(level_sets, rest[len(probes) :], strict=True)
    ]
    return output, read(rest[: len(probes)]), changes


def _axes(rows: Floats, columns: Integers, scale: Floats, low: Floats, high: Floats) -> Axes:
    row = np.repeat(np.arange(len(rows)), len(columns))
    column = np.tile(columns, len(rows))
    at = rows[row, column]
    ends = np.minimum(low[column], at), np.maximum(high[column], at)
    return Axes(rows, row, column, at, scale[column], *ends)


def _steps(
    axes: Axes,
    background: Floats,
    scale: Floats,
    character: Character,
    h: npt.ArrayLike | None,
    h_max: float,
) -> tuple[Floats, Floats]:
    """Return how far down and how far up (k,), (k,) the first probes reach, in the features' units."""
    if h is not None:
        fixed = np.asarray(h, dtype=np.float64)
        if fixed.shape not in ((), (len(scale),)) or not (np.isfinite(fixed) & (fixed > 0.0)).all():
            raise ValueError(
                f"h is {h!r}; expected a step > 0, or one for each of {len(scale)} columns"
            )
        step = np.broadcast_to(fixed, scale.shape)[axes.column]
        return step, step
    floor = character.floor
    if not character.piecewise_constant:
        # A step must survive the addition to x.
        step = np.maximum(floor * axes.scale, SPACINGS * character.epsilon * np.abs(axes.at))
        with np.errstate(over="ignore"):
            step = np.minimum(step, np.minimum(h_max * axes.scale, LARGEST))
        return step, step
    spaced = np.linspace(0, len(background) - 1, min(len(background), _PAIR_ROWS)).round()
    known = background[spaced.astype(int)]
    nearest = closest_pair(known[np.isfinite(known).all(axis=1)] / scale) / np.sqrt(len(scale))
    least = np.clip(nearest, floor, 1.0) if nearest > 0.0 else 1.0
    below, above = np.empty(len(axes.at)), np.empty(len(axes.at))
    for j in np.unique(axes.column):
        here = axes.column == j
        ends = neighbourhood(axes.at[here], background[:, j], _NEIGHBOURHOOD, least * scale[j])
        with np.errstate(over="ignore"):
            below[here] = np.minimum(axes.at[here] - ends[0], LARGEST)
            above[here] = np.minimum(ends[1] - axes.at[here], LARGEST)
    return below, above


def _exact(gradient: Gradient, rows: Floats, batch_size: int, outputs: int) -> Floats:
    """Return the derivatives (n, c, d) of the callable."""
    n, d = rows.shape
    parts = []
    for start in range(0, n, batch_size):
        batch = rows[start : start + batch_size].copy()
        part = np.asarray(gradient(batch), dtype=np.float64)
        expected = [(len(batch), outputs, d)] + [(len(batch), d)] * (outputs == 1)
        if part.shape not in expected:
            raise ModelOutputError(
                f"the gradient returned shape {part.shape} for {len(batch)} rows of {d} features and "
                f"{outputs} outputs; expected {expected[0]}"
            )
        parts.append(part.reshape(len(batch), outputs, d))
    found = np.concatenate(parts)
    if not np.isfinite(found).all():
        row, output, column = (int(k) for k in np.argwhere(~np.isfinite(found))[0])
        raise ModelOutputError(
            f"the gradient returned {found[row, output, column]} for row {row}, output {output}, "
            f"column {column}; expected finite numbers"
        )
    return found


def _rounded_inside(slope: Floats, scale: Floats, columns: Integers, epsilon: float) -> Floats:
    """Return the error (n, c, d) of a slope, exact ones too, because weights and sums are rounded.

    A share of the row's largest slope, in scales: all slopes are sums over the same weights.
    """
    moved = slope[:, :, columns] * scale[columns]
    found = np.zeros_like(slope)
    largest = np.abs(moved).max(axis=2, initial=0.0, keepdims=True)
    found[:, :, columns] = _INSIDE * epsilon * largest / scale[columns]
    return found


def _check_finite(rows: Floats, background: Floats) -> None:
    if not np.isfinite(rows).all():
        row, column = (int(k) for k in np.argwhere(~np.isfinite(rows))[0])
        raise ValueError(
            f"X has {rows[row, column]} in row {row}, column {column}; a slope there does not exist: "
            "fill the value, or leave the row out"
        )
    if np.isinf(background).any():
        row, column = (int(k) for k in np.argwhere(np.isinf(background))[0])
        raise ValueError(f"background has an infinity in row {row}, column {column}; leave it out")
    empty = np.flatnonzero(np.isnan(background).all(axis=0))
    if empty.size:
        raise ValueError(f"column {empty[0]} is missing in every row of the background")


def _checked_bounds(bounds: Bounds | None, rows: Floats) -> tuple[Floats, Floats]:
    d = rows.shape[1]
    if bounds is None:
        return np.full(d, -LARGEST), np.full(d, LARGEST)
    try:
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (d,)) for end in bounds)
    except (TypeError, ValueError):
        raise ValueError(f"bounds must be (low, high), numbers or ({d},) each") from None
    wrong = np.flatnonzero(~(low <= high))
    if wrong.size:
        j = wrong[0]
        raise ValueError(f"bounds of column {j} are {low[j]} and {high[j]}; expected low <= high")
    return np.clip(low, -LARGEST, LARGEST), np.clip(high, -LARGEST, LARGEST)


def _check_options(batch_size: int, precision: str | None, h_max: float, max_iter: int) -> None:
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; expected 1 or more")
    if precision not in (None, *EPSILON):
        raise ValueError(f"precision is {precision!r}; expected one of {', '.join(EPSILON)}")
    if not 0.0 < h_max < np.inf or max_iter < 0:
        raise ValueError(
            f"h_max is {h_max}, max_iter {max_iter}; expected h_max > 0, max_iter >= 0"
        )
