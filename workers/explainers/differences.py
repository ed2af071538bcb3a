"""Slopes of a model along single features: central differences, and the step that they take.

The step h is the result of a bisection that is deterministic and the same for a row whatever rows
stand beside it. In units of the feature's robust scale it starts at the round-off floor of the
model's precision, (3ε)^{1/3}. Of the Taylor error f(x ± h/2) - f(x) ∓ φ h/2 only the odd part is an
error of a central difference; as a slope it is |φ(h) - φ(h/2)|, which h lowers as h², while
round-off grows as ν/h, ν the noise of a call. Where probes lie unevenly about x, because they are
rounded to the model's numbers, the curvature times half their unevenness is added. The search ends
where both together are below 4 h_min² (in units of the outputs' spread), where they balance, or
after max_iter steps. It also widens h where the difference vanishes in the noise, since that may be
h's fault alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from attributary.workers.explainers.batched import BatchedModel, Block, axis_block
from attributary.workers.explainers.character import Character
from attributary.workers.explainers.precisions import EPSILON, SPACINGS, toward

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]

#: Differences below so many times the noise of a call are taken for none.
_SIGNIFICANT = 8.0
#: Of the steps that are compared the one with the luckiest noise wins.
_SURE = 2.0
#: Truncation at h = 1 scale, as a share of the slope, that halving h may miss by chance.
_CHANCE = 0.2


@dataclass(frozen=True)
class Axes:
    """Pairs of a row and a feature: ``at`` (k,) its value, ``low`` and ``high`` (k,) its bounds."""

    X: Floats
    row: Integers
    column: Integers
    at: Floats
    scale: Floats
    low: Floats
    high: Floats

    def part(self, chosen: Integers) -> Axes:
        """Return some of the pairs."""
        at, scale, low, high = (v[chosen] for v in (self.at, self.scale, self.low, self.high))
        return Axes(self.X, self.row[chosen], self.column[chosen], at, scale, low, high)


@dataclass(frozen=True)
class Slopes:
    """``slope`` and ``error`` (k, c), the actual half-width ``h`` (k,), and what the search asks.

    ``seen`` (k,): the difference stands out of the noise; ``rough`` (k,): round-off is the larger
    part of the error; ``lost`` (k,): the step is below what the model resolves at x.
    """

    slope: Floats
    error: Floats
    h: Floats
    seen: Flags
    rough: Flags
    lost: Flags


Probe = tuple[list[Block], Callable[[list[Floats]], Slopes]]


def probe(
    axes: Axes, below: Floats, above: Floats, character: Character, *, extrapolate: bool = False
) -> Probe:
    """Return the points at x - below, x + above and halfway, and what makes slopes of their outputs.

    Points are clipped at the bounds and rounded to the model's numbers, toward x; differences are
    divided by the actual distances. A clipped difference is off in proportion to how far its middle
    is from x: ``extrapolate`` takes that part out with the difference of the halfway points. Where a
    step is below the resolution of the model at x, the error is no less than the slope; infinite
    where the step shows nothing.
    """
    epsilon = character.epsilon
    # Inputs of a low precision may still be looked at in float32, say to be standardised.
    numbers = min(epsilon, EPSILON["float32"])

    def point(offset: Floats) -> Floats:
        with np.errstate(over="ignore"):
            value = axes.at + offset
            far = np.abs(value - axes.at) > np.abs(offset)
        value = np.clip(np.where(far, np.nextafter(value, axes.at), value), axes.low, axes.high)
        if character.precision != "float64":
            value = toward(axes.at, value, numbers)
        return value

    points = [point(above), point(-below), point(above / 2.0), point(-below / 2.0)]
    blocks = [axis_block(axes.X, axes.row, axes.column, value) for value in points]
    with np.errstate(over="ignore"):
        lost = np.minimum(above, below) < SPACINGS * epsilon * np.abs(axes.at)

    def slopes(outputs: list[Floats]) -> Slopes:
        up, down, half_up, half_down = outputs
        # Halves of everything: no difference of two numbers overflows.
        h, half = points[0] / 2.0 - points[1] / 2.0, points[2] / 2.0 - points[3] / 2.0
        wide, narrow = _ratio((up - down) / 2.0, h), _ratio((half_up - half_down) / 2.0, half)
        off = points[0] / 2.0 + points[1] / 2.0 - axes.at
        half_off = points[2] / 2.0 + points[3] / 2.0 - axes.at
        uneven = np.abs(off) > 0.1 * h
        # What the unevenness of the wide difference costs, told from the halfway points. Where both
        # are clipped alike they tell nothing, and the slope itself stands for its error.
        gain = np.abs(off - half_off)
        told = gain > 1e-3 * np.abs(off)
        factor = np.where(uneven, np.abs(off) / np.where(told, gain, 1.0), 4.0 / 3.0)
        odd = factor[:, None] * np.abs(wide - narrow)
        odd = np.where((uneven & ~told)[:, None], np.abs(wide), odd)
        odd += _bend(points, outputs, np.maximum(np.abs(off), np.abs(half_off)))
        slope = wide
        if extrapolate:
            even = _ratio((up - half_up) / 2.0 - (half_down - down) / 2.0, h)
            size = np.maximum(np.abs(wide), np.abs(even))
            odd += _CHANCE * ((h / axes.scale) ** 2)[:, None] * size
            steady = uneven & (gain > 0.25 * np.abs(off))
            ahead = np.where(steady, half_off / np.where(steady, off - half_off, 1.0), 0.0)
            slope = np.where(uneven[:, None], narrow + ahead[:, None] * (narrow - wide), wide)
        level = np.maximum(np.abs(up), np.abs(down)) * epsilon
        noise = np.maximum(level, character.noise)
        round_off = _ratio(np.maximum(level, _SURE * character.noise) / 2.0, h)
        seen: Flags = np.any(np.abs(up - down) > _SIGNIFICANT * noise, axis=1)
        # Per output in units of its spread, since one h serves all outputs.
        truncated, rounded = (
            (part * h[:, None] / character.spread).max(axis=1) for part in (odd, round_off)
        )
        # At h/2 the round-off of both slopes is in the odd part.
        error = odd + round_off
        unknown = np.where(seen[:, None], np.maximum(error, np.abs(slope)), np.inf)
        error = np.where(lost[:, None], unknown, error)
        return Slopes(slope, error, h, seen, truncated <= rounded, lost)

    return blocks, slopes


def search(
    model: BatchedModel,
    axes: Axes,
    first: Slopes,
    start: Floats,
    h_max: float,
    max_iter: int,
    character: Character,
) -> Slopes:
    """Return the slopes of ``first``, taken at steps ``start`` (k,), with better ones where needed.

    ``start`` and ``h_max`` in units of the scale.
    """
    slope, error, h = (v.copy() for v in (first.slope, first.error, first.h))
    floor = 4.0 * character.floor**2

    def excess(found: Slopes, scale: Floats) -> Floats:
        worst: Floats = (found.error * scale[:, None] / character.spread).max(axis=1) / floor
        return worst

    best = np.where(first.seen, excess(first, axes.scale), np.inf)
    left = np.flatnonzero(~first.seen | ((best > 1.0) & first.rough))
    left = left[(first.h[left] > 0.0) & (start[left] < h_max)]
    low, high = np.log(start), np.full(len(h), np.log(h_max))
    # Where even the widest step shows nothing, nothing between is tried.
    step = high.copy()
    for turn in range(max_iter):
        if not left.size:
            break
        part = axes.part(left)
        width = np.minimum(np.exp(step[left]), h_max) * part.scale
        blocks, read = probe(part, width, width, character, extrapolate=True)
        found = read(model.evaluate(blocks))
        worth = np.where(found.seen, excess(found, part.scale), np.inf)
        better = (worth < best[left]) | ((worth == best[left]) & found.seen & (found.h < h[left]))
        # Halving a step far too wide may change nothing by chance. Of two that differ by more than
        # their errors the wider is wrong.
        apart = np.abs(found.slope - slope[left]) > found.error + error[left]
        contradict = apart.any(axis=1) & found.seen & np.isfinite(best[left])
        better = np.where(contradict, found.h < h[left], better)
        if turn == 0:
            better |= ~found.seen & np.isinf(best[left])
        changed = left[better]
        slope[changed], error[changed], h[changed] = (
            values[better] for values in (found.slope, found.error, found.h)
        )
        best[changed] = worth[better]
        up = ~found.seen | found.rough
        low[left[up]] = step[left[up]]
        high[left[~up]] = step[left[~up]]
        step[left] = (low[left] + high[left]) / 2.0
        ended = ((worth <= 1.0) & first.seen[left]) | ((turn == 0) & (~found.seen | found.rough))
        left = left[~ended]
    return Slopes(slope, error, h, first.seen, first.rough, first.lost)


def _ratio(values: Floats, distance: Floats) -> Floats:
    """Return values (k, c) by distances (k,), 0 where there is no room to move."""
    room = distance > 0.0
    found: Floats = np.where(room[:, None], values / np.where(room, distance, 1.0)[:, None], 0.0)
    return found


def _bend(points: list[Floats], outputs: list[Floats], off: Floats) -> Floats:
    """Return |f''| off (k, c) as the outer quarters tell, 0 where one of them has no room."""
    up, down, half_up, half_down = points
    right, left = (up - half_up) / 2.0, (half_down - down) / 2.0
    right_slope = _ratio((outputs[0] - outputs[2]) / 2.0, right)
    left_slope = _ratio((outputs[3] - outputs[1]) / 2.0, left)
    room = (right > 0.0) & (left > 0.0)
    apart = (up / 4.0 + half_up / 4.0) - (down / 4.0 + half_down / 4.0)
    share = np.where(room, off / 2.0 / np.where(room, apart, 1.0), 0.0)
    found: Floats = np.abs(right_slope - left_slope) * share[:, None]
    return found
