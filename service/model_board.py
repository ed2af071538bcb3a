"""The newest results of one model: every kind of window and output, and how fast its rows come."""

from __future__ import annotations

from collections import deque

from attributary.schemas.attribution import Window, WindowAttribution, WindowDrift
from attributary.service.latest import Latest
from attributary.service.subscription import Result
from attributary.service.words import name_window

_RATE_MS = 10_000
_KINDS = ("tumbling", "hopping", "decayed", "lifetime")


class ModelBoard:
    """The newest results of one model, by kind of window."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.outputs: list[str] = []
        self.newest: WindowAttribution | None = None
        self._windows: dict[str, tuple[Window, Latest]] = {}
        self._counts: deque[tuple[int, int]] = deque()

    def add(self, message: Result) -> None:
        """Take a message of this model, in any order and however often."""
        if message.output not in self.outputs:
            self.outputs.append(message.output)
        _, latest = self._windows.setdefault(
            name_window(message.window), (message.window, Latest([]))
        )
        if isinstance(message, WindowDrift):
            latest.add_drift(message)
            return
        latest.add_attribution(message)
        if self.newest is None or message.computed_at >= self.newest.computed_at:
            self.newest = message
            self._count(message)

    @property
    def windows(self) -> list[str]:
        """Names of the windows that it publishes, the shortest first."""

        def length(name: str) -> tuple[int, float]:
            window, _ = self._windows[name]
            return _KINDS.index(window.kind), window.seconds or window.half_life_seconds or 0.0

        return sorted(self._windows, key=length)

    def latest(self, window: str) -> Latest:
        """Return the results of the windows of that name."""
        return self._windows[window][1]

    def rate(self, now: int) -> float:
        """Return the rows a second of the last seconds before ``now`` (milliseconds)."""
        if len(self._counts) < 2 or now - self._counts[-1][0] > _RATE_MS:
            return 0.0
        (since, before), (until, rows) = self._counts[0], self._counts[-1]
        return 1000.0 * max(0, rows - before) / (until - since)

    def _count(self, message: WindowAttribution) -> None:
        books = message.accounting
        rows = books.rows_accepted + sum(books.rows_rejected.values())
        if self._counts and self._counts[-1][0] == message.computed_at:
            self._counts[-1] = message.computed_at, rows
        else:
            self._counts.append((message.computed_at, rows))
        while message.computed_at - self._counts[0][0] > _RATE_MS:
            self._counts.popleft()
