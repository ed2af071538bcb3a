"""What the ExCIR suites share: one importance a feature, blocks, and the public claims they stand beside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attributary.workers.maths.scores import CirScores, strength_bound

HEAD = 8
#: What is known of the papers, for every section.
SOURCE = (
    "The tables and figures of the papers (arXiv 2511.16482, 2601.06701) could not be had; their "
    "abstracts and their authors' public description of the code could, and what is said of the papers "
    "below is from these."
)
RANKING = (
    "A feature's importance is the lower end of the 95 % interval of |2 CIR - 1| (below 0 where the "
    "interval of CIR holds ½), mean over the outputs (margins of a classifier, one for each class of "
    "more than two)"
)


def importance(found: CirScores) -> Any:
    """Return how features are ranked over all outputs (d,): the mean of each output's lower end.

    Below 0 where ½ is inside the interval, which keeps features apart that no output tells from ½.
    """
    return strength_bound(found.interval).mean(axis=0)


def correlations(X: Any, Y: Any) -> Any:
    """Return Pearson's |r| (d, c) of every feature and output, 0 where one is constant."""
    x, y = X - X.mean(axis=0), Y - Y.mean(axis=0)
    size = np.sqrt((x * x).sum(axis=0))[:, None] * np.sqrt((y * y).sum(axis=0))
    return np.abs(x.T @ y) / np.where(size > 0, size, 1.0)


def summary(values: Sequence[float | None]) -> list[float] | None:
    """Return mean, standard deviation and least of what is defined, None where nothing is."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    spread = float(np.std(known, ddof=1)) if len(known) > 1 else 0.0
    return [float(np.mean(known)), spread, float(np.min(known))]


def cell(entry: Sequence[float] | None, digits: int = 2) -> str:
    """Return "mean ± standard deviation", or nothing."""
    return "" if entry is None else f"{entry[0]:.{digits}f} ± {entry[1]:.{digits}f}"


def listed(items: Sequence[str]) -> str:
    """Return "a, b and c", or "none"."""
    if len(items) < 2:
        return items[0] if items else "none"
    return ", ".join(items[:-1]) + " and " + items[-1]
