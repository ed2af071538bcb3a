"""What ``mcir`` is given, checked. ValueError says what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from attributary.workers.explainers.estimators import ESTIMATORS, Kind
from attributary.workers.explainers.linear_algebra import Floats, Integers


def distinct_sizes(sizes: Sequence[int], most: int) -> list[int]:
    """Return the sizes to try, ascending."""
    if not sizes or min(sizes) < 1 or max(sizes) > most:
        raise ValueError(f"sizes are {list(sizes)}; expected some from 1 to max_candidates={most}")
    return sorted(set(sizes))


def padded(neighbourhoods: Sequence[Sequence[int]], d: int) -> Integers:
    """Return neighbourhoods as rows of columns, (d, the widest), -1 where there is none."""
    if len(neighbourhoods) != d:
        raise ValueError(f"{len(neighbourhoods)} neighbourhoods for {d} features; give one each")
    padded = np.full(
        (d, max((len(near) for near in neighbourhoods), default=0)), -1, dtype=np.int64
    )
    for i, near in enumerate(neighbourhoods):
        if i in near or len(set(near)) != len(near) or not all(0 <= j < d for j in near):
            raise ValueError(
                f"neighbourhood of feature {i} is {list(near)}; expected distinct other columns "
                f"from 0 to {d - 1}"
            )
        padded[i, : len(near)] = near
    return padded


def checked(
    X: npt.ArrayLike,
    Q: npt.ArrayLike,
    kinds: Sequence[Kind] | None,
    estimator: str,
    bootstraps: int,
    head: int,
) -> tuple[Floats, Floats, Sequence[Kind]]:
    """Return X (n, d), Q (n, q) and the d + 1 kinds."""
    features, outputs = np.asarray(X, dtype=np.float64), np.asarray(Q, dtype=np.float64)
    outputs = outputs[:, None] if outputs.ndim == 1 else outputs
    if features.ndim != 2 or outputs.ndim != 2 or features.shape[0] != outputs.shape[0]:
        raise ValueError(
            f"X has shape {features.shape} and Q {np.shape(Q)}; expected (n, d) and (n,) or (n, q)"
        )
    n, d = features.shape
    if n < 4 or d < 1 or outputs.shape[1] < 1:
        raise ValueError(f"{n} rows, {d} features: expected at least 4 rows and 1 feature")
    for name, values in (("X", features), ("Q", outputs)):
        if (bad := np.flatnonzero(np.isnan(values).any(axis=0))).size:
            raise ValueError(
                f"{name} holds NaN in columns {bad[:8].tolist()}: leave such rows out or impute"
            )
    if kinds is None:
        kinds = ["continuous"] * (d + 1)
    if len(kinds) != d + 1 or not set(kinds) <= {"continuous", "discrete"}:
        raise ValueError(
            f'kinds must be {d + 1} times "continuous" or "discrete" (features, then Q), got '
            f"{len(kinds)}: {sorted(set(kinds))}"
        )
    if estimator not in ESTIMATORS:
        raise ValueError(f"estimator is {estimator!r}; choose from {', '.join(ESTIMATORS)}")
    if estimator == "plugin" and "continuous" in kinds:
        raise ValueError(
            'estimator "plugin" counts equal values and needs discrete columns: name their kinds, or '
            'use "mixed" or "switch"'
        )
    if estimator in ("copula", "knn") and "discrete" in kinds:
        raise ValueError(
            f'estimator {estimator!r} needs continuous columns: use "mixed" or "switch"'
        )
    if bootstraps < 0 or head < 1:
        raise ValueError(
            f"bootstraps is {bootstraps} and head {head}; expected 0 or more, and 1 or more"
        )
    return features, outputs, kinds
