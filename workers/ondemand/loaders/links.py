"""Log-odds of probabilities: what adds up, where probabilities saturate."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from attributary.schemas.explanation import ErrorCode
from attributary.workers.ondemand.errors import RequestError

#: Probabilities are kept this far from 0 and 1: log-odds of at most ±13.8.
CLIP = 1e-6
_SLACK = 1e-4


def log_odds(P: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return log(p / (1 - p)) of probabilities (n,) or (n, c), each class against the rest.

    Two columns become the one of the second class, (n,). RequestError (bad_output): not probabilities.
    """
    P = np.asarray(P, np.float64)
    if P.ndim == 2 and P.shape[1] == 2:
        P = P[:, 1]
    outside = ~((P >= -_SLACK) & (P <= 1 + _SLACK))
    if outside.any():
        raise RequestError(
            ErrorCode.BAD_OUTPUT,
            f"the model answered with {P[outside].flat[0]:g} where log-odds need a probability: "
            "set the artefact's link to 'identity'",
        )
    P = np.clip(P, CLIP, 1 - CLIP)
    odds: npt.NDArray[np.float64] = np.log(P) - np.log1p(-P)
    return odds
