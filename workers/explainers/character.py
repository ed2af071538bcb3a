"""What a model is like to a difference: its precision, its rounding noise, whether it has slopes at all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from attributary.workers.explainers.batched import (
    BatchedModel,
    ModelOutputError,
    axis_block,
    block,
)
from attributary.workers.explainers.precisions import (
    EPSILON,
    LARGEST,
    Precision,
    held,
    round_off_floor,
    spacing,
)

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]

#: Background rows that are probed, and pairs of row and feature at most.
_ROWS, _PAIRS = 16, 512
#: Steps in robust scales: below the resolution of float32; where the curvature of a smooth model is
#: below the rounding of float32, and of the low precisions; along one axis, too short to meet one of
#: a tree's splits by chance.
_FINE, _COARSE, _LOW, _SHORT = 2.0**-30, 2.0**-13, 2.0**-5, 1e-4
#: The step at which a precision's noise is seen, and the numbers that it is taken along.
_TRIPLES: dict[Precision, tuple[float, Precision]] = {
    "float64": (_FINE, "float64"),
    "float32": (_COARSE, "float32"),
    "float16": (_LOW, "float32"),
    "bfloat16": (_LOW, "float32"),
}
#: Share of the axes which move the output that must be flat at the short step.
_FLAT = 0.9
#: Outputs beyond this have no sums.
_MOST = 2.0**1000


@dataclass(frozen=True)
class Character:
    """``mean`` (c,) and ``spread`` (c,) of the outputs over the background, ``noise`` (c,) of a call."""

    precision: Precision
    noise: Floats
    piecewise_constant: bool
    mean: Floats
    spread: Floats

    @property
    def epsilon(self) -> float:
        """The spacing of the model's numbers at 1."""
        return EPSILON[self.precision]

    @property
    def floor(self) -> float:
        """The least step in robust scales."""
        return round_off_floor(self.precision)


def examine(
    model: BatchedModel,
    background: Floats,
    scale: Floats,
    columns: Integers,
    precision: Precision | None,
    piecewise_constant: bool | None,
) -> Character:
    """Evaluate the background (m, d) and probe a few of its rows along the numeric ``columns``.

    A model is float32 where all outputs are (by their type, or as numbers that float16 does not
    hold), where changes of 2^-30 of a scale, or of the spacing of x, do not reach the output but
    larger ones do, or where its noise is far above float64's. It is of a low precision where one of
    the latter two holds and float16 holds all outputs. Noise: second differences over steps so small
    that curvature does not count. Piecewise constant: nearly every axis that moves the output over
    one scale leaves it the same, to the bit, over 1e-4.
    """
    chosen = np.linspace(0, len(background) - 1, min(len(background), _ROWS)).round().astype(int)
    rows = background[np.unique(chosen)]
    moved = np.zeros(background.shape[1])
    moved[columns] = scale[columns] / np.sqrt(max(len(columns), 1))
    asked: list[Precision] = (
        ["float64", "float32", "bfloat16"] if precision is None else [precision]
    )
    tiny = [block(points) for one in asked for points in _triple(rows, moved, scale, one)]
    few = rows[: max(1, _PAIRS // max(len(columns), 1))] if piecewise_constant is None else rows[:0]
    row = np.repeat(np.arange(len(few)), len(columns))
    column = np.tile(columns, len(few))
    at, unit = few[row, column], scale[column]
    # Shorter than the spacing of its numbers, a step shows nothing of the model.
    apart = spacing(at, EPSILON[precision or "float32"])
    short = np.maximum(_SHORT * unit, apart)
    with np.errstate(over="ignore"):
        ends = [np.clip(at + step, -LARGEST, LARGEST) for step in (short, -short, unit, -unit)]
    axes = [axis_block(few, row, column, end) for end in ends]
    values, *rest = model.evaluate([block(background), *tiny, *axes])
    triples = [(rest[k], rest[k + 1], rest[k + 2]) for k in range(0, 3 * len(asked), 3)]
    largest = np.abs(values).max(axis=0)
    if (largest > _MOST).any():
        raise ModelOutputError(f"the outputs over the background reach {largest}; scale them")
    mean = values.mean(axis=0)
    spread = np.abs(values - mean).max(axis=0)
    if precision is None:
        away = np.where(moved > 0.0, _largest(rows) / scale, 0.0).max(initial=0.0)
        precision = _judged(model, triples, largest, away * spread)
    by_precision = dict(zip(asked, triples, strict=True))
    noise = 2.0 * _second(*by_precision.get(precision, triples[-1]))
    if piecewise_constant is None:
        piecewise_constant = _is_flat(apart <= unit, *rest[3 * len(asked) :])
    usable = np.where(spread > 8.0 * noise, spread, np.where(largest > 0.0, largest, 1.0))
    return Character(precision, noise, piecewise_constant, mean, usable)


def _judged(
    model: BatchedModel, triples: list[tuple[Floats, Floats, Floats]], largest: Floats, far: Floats
) -> Precision:
    """Return the precision by the outputs at fine, coarse and wide steps.

    ``far`` (c,): the spread times the inputs' distance from 0 in scales, which round-off grows with.
    """
    fine = triples[0]
    if model.single and model.fine:
        return "float32"
    moves = [np.abs(plus - middle) > 1e-6 * largest for middle, plus, _ in triples[1:]]
    blind = bool((fine[0] == fine[1]).all() and (fine[0] == fine[2]).all() and np.any(moves))
    rough = (_second(*fine) > np.maximum(1e-10 * largest, 2.0**-46 * far)).any()
    if not blind and not rough:
        return "float32" if model.typed else "float64"
    if model.fine:
        return "float32"
    outputs = np.concatenate([part.ravel() for triple in triples for part in triple])
    return "bfloat16" if held(outputs, "bfloat16") else "float16"


def _triple(
    rows: Floats, moved: Floats, scale: Floats, precision: Precision
) -> tuple[Floats, Floats, Floats]:
    """Return rows, rows + step and rows - step, nudged until the precision holds all three exactly.

    Otherwise rounded inputs would look like noise of the model; those of a low precision are part of
    its noise. Features whose numbers are further apart than a scale, and missing values, stay.
    """
    step, numbers = _TRIPLES[precision]
    apart = spacing(_largest(rows), EPSILON[numbers])
    unit = np.maximum(np.ldexp(1.0, np.frexp(step * moved)[1]), apart)
    moves = (moved > 0.0) & (apart <= scale)
    unit = np.where(moves, unit, 0.0)
    grid = np.where(moves, np.maximum(unit / 16.0, apart), 1.0)
    # Steps of one length might fit the model's numbers so well that their rounding does not show.
    longer = unit + np.where(moves, grid, 0.0) * (np.arange(len(rows)) % 3)[:, None]
    with np.errstate(over="ignore"):
        near = np.where(moves, np.round(rows / grid) * grid, rows)
        points = [np.clip(near + sign * longer, -LARGEST, LARGEST) for sign in (0.0, 1.0, -1.0)]
    return points[0], points[1], points[2]


def _largest(rows: Floats) -> Floats:
    found: Floats = np.where(np.isfinite(rows), np.abs(rows), 0.0).max(axis=0)
    return found


def _second(middle: Floats, plus: Floats, minus: Floats) -> Floats:
    """Return the second difference (c,) that one row in ten exceeds."""
    found: Floats = np.quantile(np.abs(plus - 2.0 * middle + minus), 0.9, axis=0)
    return found


def _is_flat(told: Flags, up: Floats, down: Floats, far_up: Floats, far_down: Floats) -> bool:
    matters = ((far_up != far_down) | (far_up != up) | (far_down != down)).any(axis=1) & told
    flat = (up == down).all(axis=1)
    return bool(matters.any() and flat[matters].mean() >= _FLAT)
