"""The lightweight protocol: is a light sample's picture close enough to the full one?

Distances between a full and a light run, each against its tolerance, pass or fail by component: the
outputs' law (Wasserstein-1), the same of the components that reduced outputs keep, the ranking ((1 − τ_b)/2),
the head (1 − Jaccard@K) and the largest gap between deletion or insertion curves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import wasserstein_distance

from attributary.workers.maths.agreement import jaccard_at_k, kendall_tau

Floats = npt.NDArray[np.float64]

Model = Callable[[Floats], Floats]

TOLERANCES: Mapping[str, float] = {
    "outputs": 0.05, "projected": 0.05, "rank": 0.1, "head": 0.35, "curves": 0.05,
}  # fmt: skip
_PROJECTIONS = 64


@dataclass(frozen=True)
class Component:
    """One distance; ``value`` is None where it is undefined (all scores tied, no curves given)."""

    value: float | None
    tolerance: float

    @property
    def passed(self) -> bool | None:
        """Whether the distance is within its tolerance."""
        return None if self.value is None else self.value <= self.tolerance


def output_distance(full: npt.ArrayLike, light: npt.ArrayLike) -> float:
    """Return the Wasserstein-1 distance of outputs (n,) and (m,) in units of the full ones' deviation.

    Outputs (n, q) and (m, q): the mean over 64 fixed directions of the projected distance, after every
    dimension was divided by its deviation. 0 where the full outputs are constant and the light equal.
    """
    a, b = (np.asarray(v, dtype=np.float64) for v in (full, light))
    a, b = (v[:, None] if v.ndim == 1 else v for v in (a, b))
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or 0 in (a.size, b.size):
        raise ValueError(
            f"outputs have shapes {np.shape(full)} and {np.shape(light)}; not one kind"
        )
    deviation = a.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1.0)
    a, b = a / scale, b / scale
    if a.shape[1] == 1:
        return float(wasserstein_distance(a[:, 0], b[:, 0]))
    directions = np.random.default_rng(0).standard_normal((a.shape[1], _PROJECTIONS))
    directions /= np.linalg.norm(directions, axis=0)
    pairs = zip((a @ directions).T, (b @ directions).T, strict=True)
    return float(np.mean([wasserstein_distance(x, y) for x, y in pairs]))


def fidelity(
    full_scores: npt.ArrayLike,
    light_scores: npt.ArrayLike,
    full_outputs: npt.ArrayLike,
    light_outputs: npt.ArrayLike,
    *,
    reduced: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    curves: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    head: int = 8,
    tolerances: Mapping[str, float] = TOLERANCES,
) -> dict[str, Component]:
    """Return the components by name: "outputs", "projected", "rank", "head", "curves".

    Scores (d,) of the same features; ``reduced`` full and light outputs (n, r) and (m, r) as the light run
    takes them; ``curves`` of the full and the light ranking, of one shape and on one scale. A head of all
    features is undefined. Raises ValueError for shapes or a missing tolerance.
    """
    if missing := sorted(set(TOLERANCES) - set(tolerances)):
        raise ValueError(f"no tolerance for {', '.join(missing)}")
    a, b = np.asarray(full_scores, dtype=np.float64), np.asarray(light_scores, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1:
        raise ValueError(f"scores have shapes {a.shape} and {b.shape}; expected (d,) twice")
    tau, shared = kendall_tau(a, b), jaccard_at_k(a, b, head)
    values: dict[str, float | None] = {
        "outputs": output_distance(full_outputs, light_outputs),
        "projected": None if reduced is None else output_distance(*reduced),
        "rank": None if tau is None else (1 - tau) / 2,
        "head": None if shared is None else 1 - shared,
        "curves": None if curves is None else _curve_gap(*curves),
    }
    return {name: Component(value, tolerances[name]) for name, value in values.items()}


def _curve_gap(full: npt.ArrayLike, light: npt.ArrayLike) -> float:
    a, b = np.asarray(full, dtype=np.float64), np.asarray(light, dtype=np.float64)
    if a.shape != b.shape:
        raise ValueError(f"curves have shapes {a.shape} and {b.shape}; expected one")
    return float(np.abs(a - b).max())


def ranking_curves(
    model: Model, X: Floats, order: npt.ArrayLike, baseline: Floats, *, batch_rows: int = 4096
) -> Floats:
    """Return mean outputs (2, d + 1, c) as the features of rows (n, d) go to the baseline (d,) in this order,
    one after the other (deletion), and as they come back from it (insertion).

    The model returns (b,) or (b, c). Unlike the curves of ``metrics``, of one ranking for all rows.
    """
    n, d = X.shape
    place = np.empty(d, dtype=np.int64)
    place[np.asarray(order)] = np.arange(d)
    gone = place < np.arange(d + 1)[:, None]
    # An insertion is a deletion from the other end, with rows and baseline exchanged.
    masks = np.concatenate([gone, ~gone])
    step = max(1, batch_rows // n)
    parts = []
    for start in range(0, len(masks), step):
        mask = masks[start : start + step, None, :]
        points = np.where(mask, baseline, X).reshape(-1, d)
        parts.append(model(points).reshape(len(mask), n, -1).mean(axis=1))
    return np.concatenate(parts).reshape(2, d + 1, -1)
