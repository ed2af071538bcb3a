"""T-Explainer on request: slopes of the model about each instance, and what they contribute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from attributary.schemas.explanation import (
    Contribution,
    ErrorCode,
    LocalContributions,
    TExplainerResult,
)
from attributary.workers.explainers.batched import ModelOutputError
from attributary.workers.explainers.precisions import is_low
from attributary.workers.explainers.scales import robust_scale
from attributary.workers.explainers.t_explainer import TExplanation, t_explain
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.methods.method import Context, Floats, Method, Model

_CHUNK = 50
_AVERAGED = (
    "The model is piecewise constant, as trees are: a gradient is the average slope over a "
    "neighbourhood of quantiles, and 'step' says how wide it is."
)
_MISSING = (
    "Where an instance lacks a number it is held missing: what that is worth is in base_value, and "
    "its contribution is null."
)


_LOW = (
    "The model computes in {precision}, so that a gradient has few digits, and the sign of a small one "
    "may be wrong: {weak} of {all} have an error as large as themselves. {how}"
)
_EXACT = "They are the model's own derivatives."
_DIFFERENCES = (
    "They are differences over tenths of a feature's spread and more, where a curved model bends."
)
_UNRESOLVED = (
    "{count} gradients cannot be told from rounding: the feature's values are so far from 0, for their "
    "spread, that {precision} does not tell neighbours apart. Send values less a constant."
)


class TExplainerParameters(BaseModel):
    """``step``: a fixed half width in robust scales of each feature; null: searched for.

    ``derivatives``: "exact" takes the model's own, which torch models of numbers alone have; null:
    those where the model has them and computes in a low precision, else "differences".
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] | None = None
    max_step: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] = 1.0
    derivatives: Literal["differences", "exact"] | None = None
    max_iterations: Annotated[int, Field(ge=1, le=100)] = 12


def run(
    model: Model,
    instances: Floats,
    background: Floats | None,
    parameters: TExplainerParameters,
    context: Context,
) -> TExplainerResult:
    """Explain instances (n, d) about the background (m, d), both in the space "columns"."""
    assert background is not None  # noqa: S101 - this method needs one
    X, others = instances.copy(), background.copy()
    categorical = [
        list(places)
        for feature, places in zip(context.features, context.positions, strict=True)
        if feature.kind != "numeric"
    ]
    for rows in (X, others):
        for places in categorical:
            # A missing category is none of the levels.
            missing = np.isnan(rows[:, places]).any(axis=1)
            rows[np.ix_(np.flatnonzero(missing), np.array(places))] = 0.0
            rows[missing, places[-1]] = 1.0
    _check_background(others, context)
    found: list[LocalContributions] = []
    patterns, pattern = np.unique(np.isnan(X), axis=0, return_inverse=True)
    chunks = [
        (held, rows[start : start + _CHUNK])
        for number, held in enumerate(patterns)
        for rows in [np.flatnonzero(pattern.ravel() == number)]
        for start in range(0, len(rows), _CHUNK)
    ]
    done = 0
    slopes: list[TExplanation] = []
    for held, rows in chunks:
        context.progress(done, len(X))
        explained = _explain(model, X[rows], others, held, categorical, parameters, context)
        slopes.append(explained)
        found += _contributions(explained, rows, ~held, context)
        done += len(rows)
    notes = [_AVERAGED] if context.piecewise_constant else []
    if np.isnan(X).any():
        notes.append(_MISSING)
    notes += _doubts(slopes, _takes_exact(parameters, context), context)
    found.sort(key=lambda one: (one.instance, context.outputs.index(one.output)))
    return TExplainerResult(explanations=found, notes=notes)


def _takes_exact(parameters: TExplainerParameters, context: Context) -> bool:
    """Return whether the model's own derivatives are wanted.

    By default of a low precision only: differences there lose a digit more than derivatives do.
    """
    if parameters.derivatives is None:
        return (
            is_low(context.precision) and context.gradient is not None and parameters.step is None
        )
    return parameters.derivatives == "exact"


def _doubts(slopes: list[TExplanation], exact: bool, context: Context) -> list[str]:
    """Return what is to be said of gradients that the model's precision leaves in doubt."""
    notes = []
    unresolved = sum(int(part.unresolved.sum()) for part in slopes)
    if is_low(context.precision):
        errors = np.concatenate([part.gradient_error.ravel() for part in slopes])
        sizes = np.concatenate([np.abs(part.gradient).ravel() for part in slopes])
        # Contrasts of levels have none.
        sloped = errors > 0.0
        notes.append(
            _LOW.format(
                precision=context.precision,
                weak=int((sizes <= errors)[sloped].sum()),
                all=int(sloped.sum()),
                how=_EXACT if exact else _DIFFERENCES,
            )
        )
    if unresolved:
        notes.append(_UNRESOLVED.format(count=unresolved, precision=context.precision))
    return notes


def _check_background(background: Floats, context: Context) -> None:
    for feature, places in zip(context.features, context.positions, strict=True):
        if not np.isfinite(background[:, list(places)]).any():
            raise RequestError(
                ErrorCode.BAD_REQUEST,
                f"no row of the background has a value of {feature.name!r}; send one that does",
            )


def _explain(
    model: Model,
    X: Floats,
    background: Floats,
    held: np.ndarray[tuple[int], np.dtype[np.bool_]],
    categorical: list[list[int]],
    parameters: TExplainerParameters,
    context: Context,
) -> TExplanation:
    """Explain rows that lack the same columns ``held``, as rows of the others."""
    free = np.flatnonzero(~held)
    place_of = {int(column): place for place, column in enumerate(free)}

    def of_free(rows: Floats) -> Floats:
        whole = np.full((len(rows), len(held)), np.nan)
        whole[:, free] = rows
        return model(whole)

    step: Floats | None = None
    if parameters.step is not None:
        step = parameters.step * robust_scale(background[:, free])
    exact: Callable[[Floats], Floats] | None = None
    if _takes_exact(parameters, context):
        exact = _exact(context, free, len(held))
    bounds = None if context.bounds is None else tuple(side[free] for side in context.bounds)
    try:
        return t_explain(
            of_free if held.any() else model,
            X[:, free],
            background=background[:, free],
            categorical=[[place_of[column] for column in places] for places in categorical],
            bounds=None if bounds is None else (bounds[0], bounds[1]),
            batch_size=context.batch_size,
            precision=context.precision,
            piecewise_constant=context.piecewise_constant,
            gradient=exact,
            h=step,
            h_max=parameters.max_step,
            max_iter=parameters.max_iterations,
        )
    except ModelOutputError as error:
        raise RequestError(ErrorCode.BAD_OUTPUT, str(error)) from None
    except ValueError as error:
        raise RequestError(ErrorCode.BAD_REQUEST, str(error)) from None


def _exact(
    context: Context, free: np.ndarray[tuple[int], np.dtype[np.intp]], columns: int
) -> Callable[[Floats], Floats]:
    """Return the model's own derivatives (n, c, free) for rows of the free columns."""
    gradient = context.gradient
    if gradient is None:
        raise RequestError(
            ErrorCode.BAD_REQUEST,
            "parameters: derivatives: this model has no exact ones; they need a torch model, and "
            "features that are all numbers",
        )

    def of_free(rows: Floats) -> Floats:
        whole = np.full((len(rows), columns), np.nan)
        whole[:, free] = rows
        return gradient(whole)[:, :, free]

    return of_free


def _contributions(
    found: TExplanation,
    rows: np.ndarray[tuple[int], np.dtype[np.intp]],
    free: np.ndarray[tuple[int], np.dtype[np.bool_]],
    context: Context,
) -> list[LocalContributions]:
    n, c = len(rows), len(context.outputs)
    d = len(free)
    contributions, gradient = np.full((n, c, d), np.nan), np.full((n, c, d), np.nan)
    steps = np.full((n, d), np.nan)
    contributions[:, :, free] = found.contributions.reshape(n, c, -1)
    gradient[:, :, free] = found.gradient.reshape(n, c, -1)
    steps[:, free] = found.h
    prediction = found.output.reshape(n, c)
    gap = found.additivity_gap.reshape(n, c)
    base = np.broadcast_to(np.asarray(found.base_value), (c,))
    return [
        LocalContributions(
            instance=int(row),
            id=context.ids[row],
            output=name,
            prediction=float(prediction[i, o]),
            base_value=float(base[o]),
            additivity_gap=float(gap[i, o]),
            features=[
                Contribution(
                    feature=feature.name,
                    value=context.values[row][place],
                    contribution=_number(contributions[i, o, list(places)].sum()),
                    gradient=_number(gradient[i, o, places[0]])
                    if feature.kind == "numeric"
                    else None,
                    step=_number(steps[i, places[0]]) if feature.kind == "numeric" else None,
                )
                for place, (feature, places) in enumerate(
                    zip(context.features, context.positions, strict=True)
                )
            ],
        )
        for i, row in enumerate(rows)
        for o, name in enumerate(context.outputs)
    ]


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


METHOD = Method(space="columns", parameters=TExplainerParameters, run=run, background="needed")
