"""γ of OrdShap in a terminal: a row of blocks, higher where the feature is worth more."""

from __future__ import annotations

from collections.abc import Sequence

from attributary.schemas.explanation import LocalOrder

_BLOCKS = "▁▂▃▄▅▆▇█"
#: More positions than this are averaged in runs.
_COLUMNS = 40


def extremes(local: LocalOrder) -> tuple[float, float]:
    """Return the least and the largest γ of all features, so that their rows compare."""
    known = [cell for one in local.features for cell in one.gamma or [] if cell is not None]
    return min(known, default=0.0), max(known, default=0.0)


def strip(gamma: Sequence[float | None], low: float, high: float) -> str:
    """Return a block for each position, or run of positions; a space where nothing is known."""
    step = -(-len(gamma) // _COLUMNS) if gamma else 1
    drawn = []
    for start in range(0, len(gamma), step):
        run = [value for value in gamma[start : start + step] if value is not None]
        if not run:
            drawn.append(" ")
            continue
        share = (sum(run) / len(run) - low) / (high - low) if high > low else 0.0
        drawn.append(_BLOCKS[min(int(share * len(_BLOCKS)), len(_BLOCKS) - 1)])
    return "".join(drawn)
