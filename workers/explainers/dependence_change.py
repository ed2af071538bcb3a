"""Do features still depend on each other as they did? What neighbourhoods rest on, and nothing else.

Neighbourhoods are chosen by correlations of normal scores, which monotone changes of single features leave
alone: drift of the inputs' distributions says nothing of them. So the correlations themselves are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from attributary.workers.explainers.linear_algebra import Linalg
from attributary.workers.explainers.normal_scores import NormalScores

_CHANCE = 0.01
_MOST = 1.0 - 1e-12


@dataclass(frozen=True)
class DependenceChange:
    """The largest change of a correlation that chance does not explain, and whose it is; 0 and None: none."""

    largest: float
    pair: tuple[int, int] | None


def dependence_change(
    before: npt.ArrayLike,
    now: npt.ArrayLike,
    *,
    threshold: float,
    block_length: int = 1,
    linalg: Linalg | None = None,
) -> DependenceChange:
    """Return how far rows (n, d) ``now`` depend otherwise than rows (m, d) ``before``.

    Pairs count whose absolute correlation is at or above ``threshold`` in either: others are nobody's
    neighbours. A change is beyond chance where Fisher's z of the two correlations differs by more
    than any of as many pairs would in 1 % of comparisons (Bonferroni), rows / ``block_length`` being
    independent. Raises ValueError for shapes or fewer than 2 rows.
    """
    old, new = (np.asarray(rows, dtype=np.float64) for rows in (before, now))
    if old.ndim != 2 or new.ndim != 2 or old.shape[1] != new.shape[1]:
        raise ValueError(
            f"rows have shapes {old.shape} and {new.shape}; expected the same features"
        )
    first, second = np.triu_indices(old.shape[1], 1)
    r, s = (NormalScores(rows).correlation(linalg=linalg)[first, second] for rows in (old, new))
    near = np.flatnonzero(np.maximum(np.abs(r), np.abs(s)) >= threshold)
    rows = [max(len(side) / block_length - 3, 1e-12) for side in (old, new)]
    gap = np.arctanh(np.clip(s[near], -_MOST, _MOST)) - np.arctanh(np.clip(r[near], -_MOST, _MOST))
    critical = -ndtri(_CHANCE / (2 * max(near.size, 1)))
    beyond = near[np.abs(gap) > critical * np.sqrt(1 / rows[0] + 1 / rows[1])]
    if not beyond.size:
        return DependenceChange(0.0, None)
    changes = np.abs(s[beyond] - r[beyond])
    worst = beyond[int(np.argmax(changes))]
    return DependenceChange(float(changes.max()), (int(first[worst]), int(second[worst])))
