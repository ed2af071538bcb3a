"""By how much scores have changed beyond what their errors explain."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats


class ScoreChange(NamedTuple):
    """The change that is surest: ``low`` is the least that it is, 0 where chance explains all of them.

    column: whose score it is the change of.
    """

    low: float
    column: int


def largest_change(
    before: npt.ArrayLike,
    before_stderr: npt.ArrayLike,
    now: npt.ArrayLike,
    now_stderr: npt.ArrayLike,
    *,
    level: float = 0.05,
) -> ScoreChange | None:
    """Return the largest lower end of the intervals of |now - before|, all (d,).

    The intervals hold together with probability 1 - ``level`` (Bonferroni's inequality over the scores), for
    normal errors and independent rows on both sides. So where nothing has changed ``low`` exceeds 0 with
    probability ``level`` at most, however many scores there are, which a rank correlation cannot say: scores
    near each other change places by chance. Scores that are not finite on a side, or have no error, are
    left out; None where none is left.
    """
    values = [
        np.asarray(each, dtype=np.float64) for each in (before, before_stderr, now, now_stderr)
    ]
    known = np.flatnonzero(np.all(np.isfinite(values), axis=0))
    if not known.size:
        return None
    a, a_error, b, b_error = (each[known] for each in values)
    z = float(stats.norm.isf(level / (2 * known.size)))
    low = np.abs(b - a) - z * np.hypot(a_error, b_error)
    best = int(np.argmax(low))
    return ScoreChange(max(float(low[best]), 0.0), int(known[best]))
