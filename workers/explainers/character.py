"""What a model is like to a difference: its precision, its rounding noise, whether it has slopes at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from attributary.workers.explainers.batched import (
    BatchedModel,
    ModelOutputError,
    axis_block,
    block,
)

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.intp]
Precision = Literal["float32", "float64"]

#: Background rows that are probed, and pairs of row and feature at most.
_ROWS, _PAIRS = 16, 512
#: Steps in robust scales: below the resolution of float32; where the curvature of a smooth model is
#: below the rounding of float32; along one axis, too short to meet one of a tree's splits by chance.
_FINE, _COARSE, _SHORT = 2.0**-30, 2.0**-13, 1e-4
#: Share of the axes which move the output that must be flat at the short step.
_FLAT = 0.9


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
        return float(np.finfo(self.precision).eps)


def examine(
    model: BatchedModel,
    background: Floats,
    scale: Floats,
    columns: Integers,
    precision: Precision | None,
    piecewise_constant: bool | None,
) -> Character:
    """Evaluate the background (m, d) and probe a few of its rows along the numeric ``columns``.

    A model is float32 where all outputs are (unless float16 would hold them too), where changes of
    2^-30 of a scale do not reach the output but larger ones do, or where its noise is far above
    float64's. Noise: second differences over steps so small
    that curvature does not count. Piecewise constant: nearly every axis that moves the output over
    one scale leaves it the same, to the bit, over 1e-4.
    """
    chosen = np.linspace(0, len(background) - 1, min(len(background), _ROWS)).round().astype(int)
    rows = background[np.unique(chosen)]
    moved = np.zeros(background.shape[1])
    moved[columns] = scale[columns] / np.sqrt(max(len(columns), 1))
    tiny = [block(points) for step in (_FINE, _COARSE) for points in _triple(rows, step * moved)]
    few = rows[: max(1, _PAIRS // max(len(columns), 1))] if piecewise_constant is None else rows[:0]
    row = np.repeat(np.arange(len(few)), len(columns))
    column = np.tile(columns, len(few))
    at, unit = few[row, column], scale[column]
    axes = [axis_block(few, row, column, at + step * unit) for step in (_SHORT, -_SHORT, 1.0, -1.0)]
    values, *rest = model.evaluate([block(background), *tiny, *axes])
    fine, coarse = rest[:3], rest[3:6]
    largest = np.abs(values).max(axis=0)
    if precision is None:
        single = model.single and model.fine
        moves = np.abs(coarse[1] - coarse[0]) > 1e-6 * largest
        blind = bool((fine[0] == fine[1]).all() and (fine[0] == fine[2]).all() and moves.any())
        rough = (_second(*fine) > 1e-10 * largest).any()
        precision = "float32" if single or blind or rough else "float64"
    noise = 2.0 * _second(*(coarse if precision == "float32" else fine))
    if piecewise_constant is None:
        piecewise_constant = _is_flat(*rest[6:])
    spread = np.abs(values - values.mean(axis=0)).max(axis=0)
    usable = np.where(spread > 8.0 * noise, spread, np.where(largest > 0.0, largest, 1.0))
    mean = values.mean(axis=0)
    if not np.isfinite(mean).all():
        raise ModelOutputError(f"the mean output over the background is {mean}; scale the outputs")
    return Character(precision, noise, piecewise_constant, mean, usable)


def _triple(rows: Floats, step: Floats) -> tuple[Floats, Floats, Floats]:
    """Return rows, rows + step and rows - step, nudged until even float32 holds all three exactly.

    Otherwise rounded inputs would look like noise of the model. Missing values stay missing.
    """
    exponent = np.frexp(step)[1]
    unit = np.where(step > 0.0, np.ldexp(1.0, exponent), 0.0)
    grid = np.where(step > 0.0, unit / 16.0, 1.0)
    near = np.where(step > 0.0, np.round(rows / grid) * grid, rows)
    return near, near + unit, near - unit


def _second(middle: Floats, plus: Floats, minus: Floats) -> Floats:
    """Return the typical second difference (c,)."""
    found: Floats = np.median(np.abs(plus - 2.0 * middle + minus), axis=0)
    return found


def _is_flat(up: Floats, down: Floats, far_up: Floats, far_down: Floats) -> bool:
    matters = ((far_up != far_down) | (far_up != up) | (far_down != down)).any(axis=1)
    flat = (up == down).all(axis=1)
    return bool(matters.any() and flat[matters].mean() >= _FLAT)
