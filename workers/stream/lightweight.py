"""The lightweight mode: under load, or when told to, a fixed fraction of the rows is sketched.

Every row is still read, checked and counted; which of them enter the sketches is decided by the hash of their
ids (``workers.maths.sample``), so that a replay keeps the same ones, and each stands for 1/fraction rows. The
fraction is fixed when a block is opened. Two owners of one block may choose different fractions: their
sketches are variants of the block, of which merge takes one, whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from attributary.schemas.sketch import SketchHeader
from attributary.workers.stream.options import IngestOptions


@dataclass(frozen=True)
class Counting:
    """How a block's rows are sketched: the fraction, and one to sketch them at besides (or None)."""

    fraction: float = 1.0
    calibration: float | None = None


FULL = Counting()


def counting(options: IngestOptions, block: int, lag: int) -> Counting:
    """Return how to sketch the block that begins at offset ``block``, ``lag`` offsets before the end.

    Whether it is a calibration block is a function of its number alone, so that all owners agree.
    """
    if options.lightweight == "never":
        return FULL
    every = options.calibration_every
    if every and block // options.block_offsets % every == 0:
        return Counting(1.0, options.lightweight_fraction)
    if options.lightweight == "behind" and lag <= options.lightweight_above_lag:
        return FULL
    return Counting(options.lightweight_fraction)


class Variants:
    """Which variant of a block holds: the one that counts the most rows, of equals the larger fraction.

    A variant takes another's place only where it counts no pane less, so that no window ever loses rows; and
    none that counts the same rows takes the place of one that is final. So it is a function of what lies in
    the log in which order, whoever reads it.
    """

    def __init__(self) -> None:
        #: The fraction of the variant that holds.
        self.chosen: float | None = None
        self._rows: dict[float, dict[int, int]] = {}
        self._final: set[float] = set()

    def add(self, fraction: float, rows: Mapping[int, int], *, final: bool) -> None:
        """Note rows by pane, cumulative, of a variant; ``final``: the block has no more rows."""
        known = self._rows.setdefault(fraction, {})
        for pane, count in rows.items():
            known[pane] = max(count, known.get(pane, 0))
        if final:
            self._final.add(fraction)
        if self.chosen is None or self._beats(fraction, self.chosen):
            self.chosen = fraction

    def drop(self, fraction: float, pane: int) -> None:
        """Forget a pane of a variant."""
        self._rows.get(fraction, {}).pop(pane, None)
        held = [each for each in sorted(self._rows) if self._rows[each]]
        if self.chosen not in held:
            self.chosen = held[0] if held else None
        for each in held:
            if self.chosen is not None and self._beats(each, self.chosen):
                self.chosen = each

    def _beats(self, fraction: float, holder: float) -> bool:
        mine, its = self._rows[fraction], self._rows[holder]
        if any(mine.get(pane, 0) < count for pane, count in its.items()):
            return False
        more = sum(mine.values()) > sum(its.values())
        return more or (fraction > holder and holder not in self._final)


@dataclass
class Tally:
    """Rows of a window by the fraction of their sketches, and those that the sketches leave out."""

    rows: Counter[float] = field(default_factory=Counter)
    thinned: Counter[float] = field(default_factory=Counter)

    def add(self, header: SketchHeader) -> None:
        """Count the rows of one sketch."""
        self.rows[header.fraction] += header.rows
        self.thinned[header.fraction] += header.thinned

    @classmethod
    def of(cls, listed: Iterable[tuple[float, int, int]]) -> Tally:
        """Return the tally that ``listed`` gave."""
        tally = cls()
        for fraction, rows, thinned in listed:
            tally.rows[fraction], tally.thinned[fraction] = rows, thinned
        return tally

    def listed(self) -> list[tuple[float, int, int]]:
        """Return (fraction, rows, rows left out) of each fraction."""
        return [(each, self.rows[each], self.thinned[each]) for each in self.fractions]

    def copy(self) -> Tally:
        """Return an independent copy."""
        return Tally(self.rows.copy(), self.thinned.copy())

    @property
    def total(self) -> int:
        """All rows."""
        return self.rows.total()

    @property
    def rows_thinned(self) -> int:
        """Rows that no sketch holds."""
        return self.thinned.total()

    @property
    def fractions(self) -> list[float]:
        """The fractions, ascending."""
        return sorted(self.rows)

    @property
    def effective_share(self) -> float:
        """Kish's effective size of the rows that are held, as a share of them: 1 for a single fraction."""
        held = [(self.rows[f] - self.thinned[f], 1 / f) for f in self.fractions]
        weight = sum(count * each for count, each in held)
        square = sum(count * each * each for count, each in held)
        count = sum(count for count, _ in held)
        return weight * weight / (square * count) if count else 1.0
