"""From values to places in a figure, and numbers short enough for its labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_LARGEST = 1e300  # what is larger has no finite span


@dataclass(frozen=True)
class Axis:
    """A linear scale from [low, high] to the places [start, stop]."""

    low: float
    high: float
    start: float
    stop: float

    def at(self, value: float) -> float:
        """Return the place of ``value``, inside the figure whatever it is."""
        if not self.high > self.low:
            return (self.start + self.stop) / 2
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Return about ``count`` round values inside: two at least, where floats lie that close."""
        span = self.high - self.low
        if not (0 < span < math.inf):
            return [self.low]
        unit = 10.0 ** math.floor(math.log10(span / count))
        found = [self.low]
        for step in (unit * digits for digits in (10.0, 5.0, 2.0, 1.0, 0.5, 0.2, 0.1)):
            if step == 0 or (span / step > count and len(found) > 1):
                break
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            found = [k * step for k in range(first, last + 1)]
        return found


def spanning(values: Sequence[float], start: float, stop: float, *, zero: bool = False) -> Axis:
    """Return an axis over the finite ones of ``values``, with a little room."""
    found = [min(max(v, -_LARGEST), _LARGEST) for v in values if math.isfinite(v)]
    found += [0.0] if zero else []
    low, high = min(found, default=0.0), max(found, default=1.0)
    room = 0.04 * (high - low) or 0.5 * abs(high) or 1.0
    return Axis(low - room, high + room, start, stop)


def short(value: float | None) -> str:
    """Return a number in few characters; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.4g}" if value else "0"


def labels(values: Sequence[float]) -> list[str]:
    """Return numbers as short as the distances between them allow: they can be told apart, and placed."""
    ordered = sorted(set(values))
    closest = min((high - low for low, high in pairwise(ordered)), default=math.inf)
    for digits in range(4, 17):
        found = [f"{value:.{digits}g}" if value else "0" for value in values]
        if all(abs(float(f) - v) <= 0.1 * closest for f, v in zip(found, values, strict=True)):
            return found
    return list(map(repr, values))
