"""OrdShap: what each element of a sequence is worth to a model, and where it stands.

With ω̃(S, σ) the model's output when every element stands where the permutation σ puts it and
those outside S are masked,

    γ_iℓ = mean over σ that put i at ℓ of the Shapley value of i in S ↦ ω̃(S, σ)
    value importance VI_i = mean of γ_iℓ over slots ℓ
    position importance PI_i = least-squares slope of γ_iℓ on the place of ℓ

Source: OrdShap, Feature Position Importance for Sequential Black-Box Models; the estimators say
where they differ from the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb, factorial

import numpy as np
import numpy.typing as npt

from attributary.workers.explainers.arrangement import Arrangement
from attributary.workers.explainers.evaluation import Evaluator, Model
from attributary.workers.explainers.masks import Background
from attributary.workers.explainers.ordshap_exact import LIMIT, exact
from attributary.workers.explainers.ordshap_least_squares import least_squares
from attributary.workers.explainers.ordshap_permutation import permutation
from attributary.workers.explainers.permutation_design import Design
from attributary.workers.explainers.positions import Positions

Floats = npt.NDArray[np.float64]

METHODS = ("permutation", "least_squares", "exact")
#: Told (calls so far, calls at most) after every batch; what it raises ends the computation.
Progress = Callable[[int, int], None]

# By default several thousand calls for a short sequence, twenty-five thousand for a hundred elements.
_CALLS = 4_096
_PERMUTATIONS = (96, 512)


@dataclass(frozen=True)
class OrdShapResult:
    """One row per element of the sequence, or per group; ``movable`` (d,) says which took part.

    ``gamma`` (d, g) by the distinct places ``positions`` (g,): None for least squares, NaN in cells
    that no permutation led to. Elements that do not move have worth 0. ``value_stderr`` and
    ``position_stderr`` (d,) are standard errors, such that ±1.96 of them hold the truth in 95 %;
    0 for ``exact``. Position importance is in output units per unit of place; with
    ``method="least_squares"`` it is the slope of a linear approximation, not the slope of γ.
    ``model_calls`` counts distinct inputs. ``completeness_gap`` is |ΣVI - total|, and ``total``
    the mean of ω̃(N, σ) - ω̃(∅, σ) over the permutations taken.
    """

    gamma: Floats | None
    value_importance: Floats
    position_importance: Floats
    value_stderr: Floats
    position_stderr: Floats
    model_calls: int
    completeness_gap: float
    total: float
    positions: Floats
    movable: npt.NDArray[np.bool_]
    method: str


def ordshap(
    model: Model,
    x: npt.ArrayLike,
    *,
    mask: npt.ArrayLike | Background,
    method: str = "permutation",
    n_permutations: int | None = None,
    n_subsets: int | None = None,
    positions: npt.ArrayLike | None = None,
    fixed: Sequence[int] = (),
    batch_size: int = 256,
    rng: np.random.Generator | int = 0,
    groups: Sequence[Sequence[int]] | None = None,
    output: int | None = None,
    target_stderr: float | None = None,
    progress: Progress | None = None,
) -> OrdShapResult:
    """Explain ``model``, a callable from a batch (b, d, ...) to (b,) or (b, c), on ``x`` (d, ...).

    ``mask`` is a token id, a vector (the elements' shape) or a ``Background`` to draw from.
    ``method``: "permutation" takes ``n_permutations`` permutations (rounded up to whole blocks),
    each with one order of joining and its reverse, or fewer once every standard error is at most
    ``target_stderr``; "least_squares" fits ``n_subsets`` coalitions under ``n_permutations``
    permutations; "exact" enumerates, for at most 8 movable elements.

    ``groups`` are runs of elements that move and are masked as one (sentences); elements in no
    group stay between their neighbours. ``fixed`` elements never move and are never masked.
    ``positions`` (d,), or one per group, are the places (time stamps) of the slots in the order
    of ``x``; slots with equal places are one visit, averaged in γ. ``output`` picks a column of a
    model with several. Results are the same for every ``batch_size`` and bit-identical for one
    ``rng`` (a generator or a seed).

    Raises ValueError for arguments that do not fit together and for outputs that are not finite.

    >>> def first_wins(batch):  # 3 for token 7 before token 9, both present
    ...     seven, nine = (batch == 7).argmax(1), (batch == 9).argmax(1)
    ...     return 3.0 * ((batch == 7).any(1) & (batch == 9).any(1) & (seven < nine))
    >>> result = ordshap(first_wins, [7, 9], mask=0, method="exact")
    >>> result.value_importance, result.position_importance
    (array([0.75, 0.75]), array([-1.5,  1.5]))
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    if target_stderr is not None and (method != "permutation" or not target_stderr > 0.0):
        raise ValueError(
            f"target_stderr is a number above 0 for method='permutation', got {target_stderr} "
            f"for {method!r}"
        )
    arrangement = Arrangement(x, mask, fixed, groups)
    axis = _axis(arrangement, positions)
    m, generator = arrangement.slots, np.random.default_rng(rng)
    taken = n_permutations or min(max(_CALLS // m, _PERMUTATIONS[0]), _PERMUTATIONS[1])
    subsets = n_subsets or max(_CALLS, 32 * m)
    if n_permutations is None and method == "least_squares":
        taken = subsets // 4
    at_most = arrangement.draws * (_exact_calls(m) if method == "exact" else 1)
    design = Design.for_budget(m, taken)
    if method == "permutation":
        at_most += design.permutations * (2 * m - 1)
    elif method == "least_squares":
        at_most += taken + subsets
    evaluate = Evaluator(
        model,
        arrangement,
        batch_size,
        output,
        None if progress is None else lambda calls: progress(calls, at_most),
    )
    none = np.zeros(m)
    gamma: Floats | None = None
    if method == "exact":
        gamma, total = exact(evaluate)
        value, position, errors = gamma.mean(axis=1), axis.slope(gamma), (none, none)
    elif method == "least_squares":
        fit = least_squares(evaluate, axis, taken, subsets, generator)
        value, position, total = fit.alpha, fit.beta, fit.total
        errors = (fit.alpha_stderr, fit.beta_stderr)
    else:
        found = permutation(evaluate, axis, design, generator, target_stderr)
        gamma, value, position, total = found.gamma, found.value, found.position, found.total
        errors = (found.value_stderr, found.position_stderr)
    spread = _Spread(arrangement)
    return OrdShapResult(
        gamma=None if gamma is None else spread(axis.by_column(gamma)),
        value_importance=spread(value),
        position_importance=spread(position),
        value_stderr=spread(errors[0]),
        position_stderr=spread(errors[1]),
        model_calls=evaluate.calls,
        completeness_gap=abs(float(value.sum()) - total),
        total=total,
        positions=axis.values,
        movable=spread(np.ones(m)) > 0.0,
        method=method,
    )


@dataclass(frozen=True)
class _Spread:
    """Puts values of the movable units (m, ...) into rows of all features (d, ...)."""

    arrangement: Arrangement

    def __call__(self, values: Floats) -> Floats:
        rows = np.zeros((self.arrangement.features, *values.shape[1:]))
        rows[self.arrangement.units] = values
        return rows


def _axis(arrangement: Arrangement, positions: npt.ArrayLike | None) -> Positions:
    if positions is None:
        return Positions.of(arrangement.units.astype(np.float64))
    at = np.asarray(positions, dtype=np.float64)
    if at.shape != (arrangement.features,):
        raise ValueError(
            f"positions are one number per element or group, {arrangement.features}; "
            f"got shape {at.shape}"
        )
    return Positions.of(at[arrangement.units])


def _exact_calls(m: int) -> int:
    """Return how many arrangements of m units differ: the places of every coalition."""
    if m > LIMIT:
        return 0  # refused where it is evaluated
    return sum(comb(m, s) * factorial(m) // factorial(m - s) for s in range(m + 1))


__all__ = ["METHODS", "Background", "Model", "OrdShapResult", "Progress", "ordshap"]
