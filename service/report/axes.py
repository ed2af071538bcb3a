"""From values to places in a figure, and numbers short enough for its labels."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
        """Return about ``count`` round values inside."""
        span = self.high - self.low
        if not (0 < span < math.inf):
            return [self.low]
        step = 10.0 ** math.floor(math.log10(span / count))
        step *= next(m for m in (1, 2, 5, 10) if span / (m * step) <= count)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [k * step for k in range(first, last + 1)]


def spanning(values: list[float], start: float, stop: float, *, zero: bool = False) -> Axis:
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
