"""Prometheus series that come and go, and how many of them a model may have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from prometheus_client import Gauge

Labels = tuple[str, ...]
Row = tuple[str, Sequence[float | None]]

_Item = TypeVar("_Item")

#: Series of a scored (model, output, window) and of a drifting output besides those of single names, at most.
SCORED, DRIFTED = 10, 8
#: Gauges of a feature's score and of a feature's drift.
SCORES, DRIFTS = 9, 5


def show(gauge: Gauge, labels: Labels, value: float | None) -> None:
    """Set a series, or remove it where the value is undefined."""
    if value is None:
        remove(gauge, labels)
    else:
        gauge.labels(*labels).set(value)


def remove(gauge: Gauge, *each: Labels) -> None:
    """Remove series, if they are there."""
    for labels in each:
        try:
            gauge.remove(*labels)
        except KeyError:
            continue


class Family:
    """Gauges with the same labels: a group's, and one name more. Names that drop out are removed.

    ``left_out`` says of each group how many of its names are not shown.
    """

    def __init__(self, left_out: Gauge, *gauges: Gauge) -> None:
        self._left_out = left_out
        self._gauges = gauges
        self._shown: dict[Labels, list[str]] = {}
        self._offered: dict[Labels, int] = {}

    def set(
        self, group: Labels, items: Sequence[_Item], row: Callable[[_Item], Row], most: int
    ) -> None:
        """Show the first items of a group: a name, and a value per gauge; None has no series."""
        kept = dict(map(row, items[:most]))
        self._hide(group, [name for name in self._shown.get(group, []) if name not in kept])
        self._shown[group], self._offered[group] = list(kept), len(items)
        self._left_out.labels(*group).set(len(items) - len(kept))
        for name, values in kept.items():
            for gauge, value in zip(self._gauges, values, strict=True):
                show(gauge, (*group, name), value)

    def limit(self, group: Labels, most: int) -> None:
        """Show no more than the first names of a group from now on."""
        names = self._shown.get(group, [])
        if len(names) > most:
            self._hide(group, names[most:])
            del names[most:]
            self._left_out.labels(*group).set(self._offered[group] - most)

    def forget(self, group: Labels) -> None:
        """Remove a group."""
        self._hide(group, self._shown.pop(group, []))
        self._offered.pop(group, None)
        remove(self._left_out, group)

    def offered(self, group: Labels) -> int:
        """Return how many names a group has, shown or not."""
        return self._offered.get(group, 0)

    def _hide(self, group: Labels, names: Sequence[str]) -> None:
        for gauge in self._gauges:
            remove(gauge, *((*group, name) for name in names))


class Shares(NamedTuple):
    """How many names each group of a model may show."""

    scores: int
    groups: int
    drifts: int


def shares(
    budget: int, most: int, *, scored: int, drifted: int, references: int, groups: int
) -> Shares:
    """Split a model's series among its ``scored`` (output, window), its ``drifted`` (output, window,
    reference), the ``references`` (window, reference) that features drift against, and the most groups of
    features that a scored one has; no name may come more than ``most`` times.
    """
    left = max(0, budget - SCORED * scored - DRIFTED * drifted - references - 2)
    drifts = min(references * DRIFTS * most, left // 3)
    grouped = min(scored * min(groups, most), left // 6)
    each = max(scored, 1)
    return Shares(
        scores=min(most, (left - drifts - grouped) // (each * SCORES)),
        groups=min(most, grouped // each),
        drifts=min(most, drifts // (max(references, 1) * DRIFTS)),
    )


def admitted(budget: int) -> tuple[int, int]:
    """Return how many (output, window), and (output, window, reference), a model may have at all."""
    return budget // 4 // SCORED, budget // 4 // DRIFTED
