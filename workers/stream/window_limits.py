"""How many windows may be open: rows of scattered event times would open one each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from attributary.workers.stream.model_merge import ModelMerge
from attributary.workers.stream.options import MergeOptions


class WindowLimits:
    """Settles the oldest windows where a model, or all of them, have too many that can still change.

    ``report`` is told of each model once.
    """

    def __init__(self, options: MergeOptions, report: Callable[[str], None]) -> None:
        self._most = options.max_windows
        self._in_all = options.max_windows_in_all
        self._report = report
        self._open: Counter[str] = Counter()
        self._told: set[str] = set()

    def count(self, models: Mapping[str, ModelMerge]) -> None:
        """Count anew; settled windows are not noted otherwise."""
        for name, merge in models.items():
            self._open[name] = merge.open_windows

    def check(self, name: str, models: Mapping[str, ModelMerge]) -> None:
        """Look at a model that has taken a sketch."""
        if (mine := models[name].open_windows) == self._open.get(name, 0):
            return
        self._open[name] = mine
        if mine > self._most:
            self._settle(name, models[name], self._most, mine - self._most)
        if self._open.total() <= self._in_all:
            return
        self.count(models)
        while (excess := self._open.total() - self._in_all) > 0:
            widest = max(self._open, key=lambda each: (self._open[each], each))
            # A tenth of them at least, so that this is not asked for every sketch.
            windows = max(excess, self._open[widest] // 10)
            self._settle(widest, models[widest], self._in_all, windows)

    def _settle(self, name: str, merge: ModelMerge, most: int, windows: int) -> None:
        merge.settle_early(windows)
        self._open[name] = merge.open_windows
        if name not in self._told:
            self._told.add(name)
            self._report(
                f"rows of {name!r} lie in so many windows that more than {most} are open "
                "(merge.max_windows, merge.max_windows_in_all): the oldest are published before their "
                "time, and rows that still come for them count as late"
            )
