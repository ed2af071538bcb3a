"""The newest results of one model, folded from its messages: what live views, reports and checks read."""

from __future__ import annotations

from typing import Literal

from attributary.schemas.attribution import WindowAttribution, WindowDrift

Reference = Literal["baseline", "preceding"]

REFERENCES: tuple[Reference, ...] = ("baseline", "preceding")
_DRIFTS_KEPT = 16


class Latest:
    """Keeps, per output: the lifetime and decayed views, the newest final window, the open ones, their drift.

    Messages may come in any order and repeatedly: of two for one window and output the higher
    revision holds. Bounded: open windows are forgotten once they, or later ones, are final.
    """

    def __init__(self, outputs: list[str]) -> None:
        self.outputs = list(outputs)
        self.lifetime: dict[str, WindowAttribution] = {}
        self.decayed: dict[str, WindowAttribution] = {}
        self.final: dict[str, WindowAttribution] = {}
        self.watermark: int | None = None
        self._open: dict[tuple[str, int, int], WindowAttribution] = {}
        self._drift: dict[tuple[str, str], dict[tuple[int, int], WindowDrift]] = {}

    def add_attribution(self, message: WindowAttribution) -> None:
        """Take a message of the attributions topic."""
        if message.watermark is not None:
            self.watermark = max(message.watermark, self.watermark or message.watermark)
        output, window = message.output, message.window
        if window.kind in ("lifetime", "decayed"):
            view = self.lifetime if window.kind == "lifetime" else self.decayed
            known = view.get(output)
            if known is None or message.revision >= known.revision:
                view[output] = message
            return
        key = (output, window.start, window.end)
        if message.final:
            newest = self.final.get(output)
            if newest is None or _newer(message, newest):
                self.final[output] = message
                self._forget(output, window.end)
            return
        closed = self.final.get(output)
        known = self._open.get(key)
        if (closed is None or window.end > closed.window.end) and (
            known is None or message.revision >= known.revision
        ):
            self._open[key] = message

    def add_drift(self, message: WindowDrift) -> None:
        """Take a message of the drift topic."""
        if message.window.kind == "lifetime":
            return
        found = self._drift.setdefault((message.output, message.reference), {})
        window = (message.window.end, message.window.start)
        known = found.get(window)
        if known is None or message.revision >= known.revision:
            found[window] = message
        while len(found) > _DRIFTS_KEPT:
            del found[min(found)]

    def shown(self, output: str) -> WindowAttribution | None:
        """Return the window to show: the newest final one, else the open one that ends first."""
        if output in self.final:
            return self.final[output]
        waiting = [message for (named, _, _), message in self._open.items() if named == output]
        first = min(waiting, key=lambda message: message.window.end, default=None)
        return first or self.decayed.get(output) or self.lifetime.get(output)

    def drift(self, output: str, reference: Reference | None = None) -> WindowDrift | None:
        """Return the drift of the window shown; by default against the baseline where there is one."""
        shown = self.shown(output)
        if shown is None:
            return None
        window = (shown.window.end, shown.window.start)
        wanted = REFERENCES if reference is None else (reference,)
        found = [self._drift.get((output, name), {}).get(window) for name in wanted]
        return next((message for message in found if message is not None), None)

    def rows(self) -> int:
        """Return the rows that the lifetime view of every output counts."""
        found = [self.lifetime[name] for name in self.outputs if name in self.lifetime]
        counted = [message.accounting.rows for message in found]
        return min(counted) if len(counted) == len(self.outputs) else 0

    def _forget(self, output: str, end: int) -> None:
        for key in [key for key in self._open if key[0] == output and key[2] <= end]:
            del self._open[key]


def _newer(message: WindowAttribution, known: WindowAttribution) -> bool:
    return (message.window.end, message.revision) >= (known.window.end, known.revision)
