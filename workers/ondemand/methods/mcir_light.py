"""The lightweight protocol: the same run on a part of the rows, and how true that is to the full one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from attributary.schemas.explanation import ErrorCode, FidelityComponent, LightRun
from attributary.workers.explainers.estimators import Kind
from attributary.workers.explainers.fidelity import TOLERANCES, fidelity, ranking_curves
from attributary.workers.explainers.light_sample import PrincipalOutputs, light_rows
from attributary.workers.explainers.mcir import McirResult as Found
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.methods.mcir_parameters import LightParameters
from attributary.workers.ondemand.methods.method import Context, Floats, Model

_FEWEST_ROWS = 4
_NOT_RANKED = -1.0


def light_run(
    X: Floats,
    Q: Floats,
    full: Found,
    seconds_full: float,
    scored: Callable[[Floats, Floats], Found],
    model: Model | None,
    kinds: Sequence[Kind],
    asked: LightParameters,
    context: Context,
) -> LightRun:
    """Run ``scored(rows, outputs)`` on a part of rows X (n, d) and outputs Q (n, q), and compare.

    ``model`` None: no curves. RequestError: fewer than four rows or more than there are, more components than
    outputs, or discrete outputs that are to be reduced.
    """
    n = len(X)
    count = asked.rows if asked.rows is not None else round((asked.fraction or 0.0) * n)
    if not _FEWEST_ROWS <= count <= n:
        raise _refused(f"{count} of {n} rows for the light run; it takes {_FEWEST_ROWS} to all")
    reduce = None
    if asked.outputs is not None:
        if kinds[-1] == "discrete":
            raise _refused("the outputs are discrete: they cannot be reduced to components")
        if asked.outputs > Q.shape[1]:
            raise _refused(f"{asked.outputs} components of {Q.shape[1]} outputs")
        reduce = PrincipalOutputs(Q, asked.outputs)
    begun = time.monotonic()
    rows = light_rows(
        Q, count, context.rng, strata=asked.strata if asked.sampling == "stratified" else 0
    )
    light = scored(X[rows], Q[rows] if reduce is None else reduce.of(Q[rows]))
    seconds = time.monotonic() - begun
    ranked = bool(full.ranked.any() or light.ranked.any())
    curves = None
    if model is not None and asked.curve_rows:
        curves = _curves(model, X, Q, [full, light], kinds, ranked, asked.curve_rows, context)
    found = fidelity(
        _strength(full, ranked=ranked),
        _strength(light, ranked=ranked),
        Q,
        Q[rows],
        reduced=None if reduce is None else (reduce.of(Q), reduce.of(Q[rows])),
        curves=curves,
        head=asked.head,
        tolerances={**TOLERANCES, **{str(name): most for name, most in asked.tolerances.items()}},
    )
    return LightRun(
        sampling=asked.sampling,
        rows=len(rows),
        outputs=asked.outputs,
        head=asked.head,
        components=[
            FidelityComponent.model_validate(
                {
                    "name": name,
                    "value": component.value,
                    "tolerance": component.tolerance,
                    "passed": component.passed,
                }
            )
            for name, component in found.items()
        ],
        seconds=seconds,
        seconds_full=seconds_full,
    )


def _refused(why: str) -> RequestError:
    return RequestError(ErrorCode.BAD_REQUEST, f"parameters: light: {why}")


def _strength(found: Found, *, ranked: bool) -> Floats:
    """Return what features are compared by: the score, those not ranked below all; or else the marginal."""
    return np.where(found.ranked, found.score, _NOT_RANKED) if ranked else found.marginal


def _curves(
    model: Model,
    X: Floats,
    Q: Floats,
    runs: Sequence[Found],
    kinds: Sequence[Kind],
    ranked: bool,
    most: int,
    context: Context,
) -> tuple[Floats, Floats]:
    """Return the curves of the full and the light ranking, outputs in units of their deviation."""
    deviation = Q.std(axis=0)
    chosen = X[np.unique(np.linspace(0, len(X) - 1, min(most, len(X))).astype(np.int64))]
    baseline = np.array([_usual(column, kind) for column, kind in zip(X.T, kinds, strict=False)])
    full, light = (
        ranking_curves(
            model,
            chosen,
            np.lexsort((-found.marginal, -_strength(found, ranked=ranked))),
            baseline,
            batch_rows=context.batch_size,
        )
        / np.where(deviation > 0, deviation, 1.0)
        for found in runs
    )
    return full, light


def _usual(column: Floats, kind: Kind) -> float:
    """Return the mean of numbers, the most frequent of levels."""
    if kind == "continuous":
        return float(column.mean())
    values, counts = np.unique(column, return_counts=True)
    return float(values[np.argmax(counts)])
