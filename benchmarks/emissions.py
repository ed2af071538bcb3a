"""How often a model's sketches are sent from one source partition, and how many rows are in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# Of the longest of block, pane and flush: what the averages are taken over.
_PERIODS = 40
_MOST_CELLS = 20_000


@dataclass(frozen=True)
class Emissions:
    """Sketches of one (model, source partition): each kind with its ``weight`` a second and its ``rows``.

    ``final`` ones are those of blocks that have ended. ``cells`` are (block, pane) pairs begun a second,
    with any row.
    """

    weight: Any
    rows: Any
    final: Any

    @property
    def sketches(self) -> float:
        """Sketches a second."""
        return float(self.weight.sum())

    @property
    def cells(self) -> float:
        """Final sketches a second."""
        return float(self.weight[self.final].sum())

    def mean(self, cost: Any, *, final: bool | None = None) -> float:
        """Return what a second of sketches costs: ``cost`` (rows) each."""
        if final is None:
            return float(self.weight @ cost(self.rows))
        chosen = self.final == final
        return float(self.weight[chosen] @ cost(self.rows[chosen]))


def emissions(
    rate: float, block: float, pane: float, flush: float, message_rows: float = 1.0
) -> Emissions:
    """Return the sketches of rows that come at ``rate`` a second, in messages of ``message_rows``.

    ``block``, ``pane`` and ``flush`` are seconds. Messages come as a Poisson process; blocks and panes are
    regular and out of step. What counts no row is not sent; a block's panes are sent once more when it ends.
    """
    span = min(_PERIODS * max(block, pane, flush), _MOST_CELLS / (1 / block + 1 / pane))
    span = max(span, 2 * block, 2 * flush)
    blocks = np.arange(0.0, span + block, block)
    # The golden ratio keeps the two series of ends apart.
    panes = np.arange(0.618 * pane, span, pane)
    edges = np.unique(np.concatenate([blocks, panes]))
    start, end = edges[:-1], edges[1:]
    keep = end - start > 1e-9
    start, end = start[keep], end[keep]
    ends = (np.floor(start / block + 1e-9) + 1) * block
    whole = ends <= span + 1e-9
    start, end, ends = start[whole], end[whole], ends[whole]
    covered = ends[-1]
    messages = rate / message_rows

    def some(seconds: Any) -> Any:
        return -np.expm1(-messages * seconds)

    shares = some(end - start)
    weight, rows, final = [shares], [rate * (end - start) / shares], [np.ones(len(start), bool)]
    for turn in range(int(np.ceil((end - start).max() / flush)) + 1):
        at = (np.floor(start / flush) + 1 + turn) * flush
        new = np.minimum(at, end) - np.maximum(at - flush, start)
        open_still = (new > 1e-9) & (at < ends)
        counted = rate * (np.minimum(at, end) - start)[open_still]
        changed = some(new[open_still])
        weight.append(changed)
        rows.append(counted / some(counted / rate))
        final.append(np.zeros(len(changed), bool))
    return Emissions(np.concatenate(weight) / covered, np.concatenate(rows), np.concatenate(final))
