"""The arithmetic of event-time windows over aligned panes.

Times are whole milliseconds since the epoch, negative ones included; every interval is half-open,
[start, end). Panes start at multiples of their width, windows at multiples of their hop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Span(NamedTuple):
    """[start, end) in milliseconds since the epoch."""

    start: int
    end: int

    def holds(self, time: int) -> bool:
        """Say whether ``time`` lies in the span."""
        return self.start <= time < self.end


def pane_of(time: int, width: int) -> Span:
    """Return the pane of ``width`` that ``time`` falls in."""
    start = time // width * width
    return Span(start, start + width)


@dataclass(frozen=True)
class Hopping:
    """Windows of ``width`` that start every ``hop``, over panes of ``pane``; tumbling if equal.

    Raises ValueError unless width is a multiple of hop and hop one of pane, so that every window
    is a whole number of panes and every pane is in the same number of windows.

    >>> Hopping(width=60_000, hop=20_000, pane=10_000).spans_of(50_000)
    [Span(start=0, end=60000), Span(start=20000, end=80000), Span(start=40000, end=100000)]
    """

    width: int
    hop: int
    pane: int

    def __post_init__(self) -> None:
        if not (0 < self.pane <= self.hop <= self.width) or (
            self.hop % self.pane or self.width % self.hop
        ):
            raise ValueError(
                f"window {self.width} ms, hop {self.hop} ms, pane {self.pane} ms: expected "
                "positive widths, the hop a multiple of the pane and the window one of the hop"
            )

    @classmethod
    def tumbling(cls, width: int, pane: int) -> Hopping:
        """Return windows that do not overlap."""
        return cls(width, width, pane)

    def spans_of(self, time: int) -> list[Span]:
        """Return the windows that hold ``time`` (or the pane that starts there), oldest first."""
        last = time // self.hop * self.hop
        first = last - self.width + self.hop
        return [Span(start, start + self.width) for start in range(first, last + 1, self.hop)]

    def panes(self, span: Span) -> range:
        """Return the starts of the panes that a window is merged from."""
        return range(span.start, span.end, self.pane)

    def closed(self, after: int | None, watermark: int, oldest: int) -> list[Span]:
        """Return the windows that a watermark closes, oldest first.

        A window closes when the watermark reaches its end. ``after`` is the end of the last window
        already closed (None: none yet), ``oldest`` the earliest event time seen, before which no
        window has data.
        """
        first = self.spans_of(oldest)[0].end
        if after is not None:
            first = max(first, after + self.hop)
        last = watermark // self.hop * self.hop
        return [Span(end - self.width, end) for end in range(first, last + 1, self.hop)]

    def needed_from(self, watermark: int, lateness: int = 0) -> int:
        """Return the start of the oldest pane that an open window can still hold.

        Rows up to ``lateness`` behind the watermark may revise a window, so panes are kept
        until no window of that age holds them.
        """
        return self.spans_of(watermark - lateness)[0].start


def decay(elapsed: int, half_life: int) -> float:
    """Return what a row weighs after ``elapsed`` ms where it halves every ``half_life`` ms."""
    if half_life <= 0:
        raise ValueError(f"a half-life is a positive number of milliseconds, got {half_life}")
    return float(2.0 ** (-max(elapsed, 0) / half_life))
