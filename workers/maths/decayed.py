"""A window without an end whose rows halve in weight every half-life."""

from __future__ import annotations

from attributary.workers.maths.spans import decay
from attributary.workers.maths.window import WindowState


class DecayedState:
    """Merged panes, each weighing 2^(-age / half-life), ages counted from the newest pane's end.

    Panes may come in any order: a late one is merged at the weight of its age, a newer one first
    ages what is there. Times are milliseconds.
    """

    def __init__(self, window: WindowState, half_life: int, as_of: int | None = None) -> None:
        decay(0, half_life)
        self.window = window
        self.half_life = half_life
        #: End of the newest pane, None before the first; what the weights are relative to.
        self.as_of = as_of

    def add(self, part: WindowState, end: int) -> None:
        """Merge a pane (or several) whose event time ends at ``end``."""
        if self.as_of is None or end > self.as_of:
            if self.as_of is not None:
                self.window = self.window.scaled(decay(end - self.as_of, self.half_life))
            self.as_of = end
            self.window.merge(part)
        else:
            self.window.merge(part.scaled(decay(self.as_of - end, self.half_life)))
