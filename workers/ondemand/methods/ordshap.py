"""``ordshap``: the card's features as a sequence, each worth something by its value and by its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from attributary.schemas.card import Feature
from attributary.schemas.explanation import (
    ErrorCode,
    LocalOrder,
    OrderImportance,
    OrdShapResult,
)
from attributary.workers.explainers.batched import ModelOutputError
from attributary.workers.explainers.masks import Background
from attributary.workers.explainers.ordshap import OrdShapResult as Found
from attributary.workers.explainers.ordshap import ordshap
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.methods.method import Context, Floats, Method, Model

#: Rows of a model whose outputs are kept, so that its other outputs cost no further calls.
_REMEMBERED = 500_000


class Parameters(BaseModel):
    """What a request may set. ``mask`` null: masked features show what the background's rows hold."""

    model_config = ConfigDict(extra="forbid")

    estimator: Literal["permutation", "least_squares", "exact"] = "permutation"
    permutations: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    subsets: Annotated[int, Field(ge=2, le=10_000_000)] | None = None
    mask: str | float | None = Field(
        default=None, description="What a masked feature shows: a number, or the name of a level."
    )
    fixed: list[str] = Field(default=[], description="Features that never move nor are masked.")
    groups: list[list[str]] | None = Field(
        default=None, description="Neighbouring features that move as one; the others stay."
    )
    positions: list[float] | None = Field(
        default=None, description="Place (time) of each feature, or of each group; ties are visits."
    )
    target_stderr: Annotated[float, Field(gt=0)] | None = None


class _Remembering:
    """The model with one column for each output, every row asked once whatever the output."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._known: dict[bytes, Floats] = {}

    def __call__(self, X: Floats) -> Floats:
        names = [row.tobytes() for row in np.ascontiguousarray(X)]
        missing = [k for k, name in enumerate(names) if name not in self._known]
        fresh: dict[bytes, Floats] = {}
        if missing:
            answer = self._model(X[missing])
            answer = answer.reshape(len(missing), -1)
            fresh = {names[k]: answer[place] for place, k in enumerate(missing)}
            if len(self._known) < _REMEMBERED:
                self._known.update(fresh)
        return np.array([fresh[name] if name in fresh else self._known[name] for name in names])


def run(
    model: Model,
    instances: Floats,
    background: Floats | None,
    parameters: Parameters,
    context: Context,
) -> OrdShapResult:
    """Explain every instance (n, d) and output; features are the elements of the sequence."""
    _one_kind(context.features, parameters)
    names = [feature.name for feature in context.features]
    fixed = [_index(names, name) for name in parameters.fixed]
    groups: list[list[int]] | None = None
    if parameters.groups is not None:
        groups = [[_index(names, name) for name in group] for group in parameters.groups]
    mask = _mask(parameters, background, context.features)
    steps, done = len(instances) * len(context.outputs), 0
    explanations = []
    for number, x in enumerate(instances):
        asked = _Remembering(model)
        seed = int(context.rng.integers(2**63))
        base = _masked(asked, x, mask, fixed, groups)
        prediction = asked(x[None])[0]
        for output, label in enumerate(context.outputs):
            context.check()
            try:
                found = ordshap(
                    asked,
                    x,
                    mask=mask,
                    method=parameters.estimator,
                    n_permutations=parameters.permutations,
                    n_subsets=parameters.subsets,
                    positions=parameters.positions,
                    fixed=fixed,
                    groups=groups,
                    batch_size=context.batch_size,
                    rng=seed,
                    output=output,
                    target_stderr=parameters.target_stderr,
                    progress=_progress(context, done, steps),
                )
            except ModelOutputError as error:
                raise RequestError(ErrorCode.BAD_OUTPUT, str(error)) from None
            except ValueError as error:
                raise RequestError(ErrorCode.BAD_REQUEST, str(error)) from None
            done += 1
            explanations.append(
                LocalOrder(
                    instance=number,
                    id=context.ids[number],
                    output=label,
                    prediction=float(prediction[output]),
                    base_value=float(base[output]),
                    completeness_gap=found.total - float(found.value_importance.sum()),
                    positions=found.positions.tolist(),
                    features=_importances(found, context, number, groups),
                )
            )
    return OrdShapResult(explanations=explanations, notes=_notes(parameters, mask))


def _progress(context: Context, done: int, steps: int) -> Callable[[int, int], None]:
    """Count in thousandths of the explanations."""

    def tell(calls: int, at_most: int) -> None:
        context.progress(1_000 * done + 1_000 * calls // max(at_most, 1), 1_000 * steps)

    return tell


def _one_kind(features: tuple[Feature, ...], parameters: Parameters) -> None:
    """RequestError where values cannot change places, because their meanings differ."""
    moving = [feature for feature in features if feature.name not in parameters.fixed]
    if parameters.groups is not None:
        grouped = {name for group in parameters.groups for name in group}
        moving = [feature for feature in moving if feature.name in grouped]
    for feature in moving[1:]:
        first = moving[0]
        if (feature.kind == "numeric") != (first.kind == "numeric") or (
            feature.levels != first.levels
        ):
            raise RequestError(
                ErrorCode.BAD_REQUEST,
                f"ordshap moves values from feature to feature, but {first.name!r} and "
                f"{feature.name!r} differ in kind or levels; name one of them in 'fixed', or give "
                "both the same kind and levels on the card",
            )


def _index(names: list[str], name: str) -> int:
    if name not in names:
        raise RequestError(ErrorCode.BAD_REQUEST, f"the model has no feature {name!r}")
    return names.index(name)


def _mask(
    parameters: Parameters, background: Floats | None, features: tuple[Feature, ...]
) -> float | Background:
    if isinstance(parameters.mask, str):
        levels = next((f.levels for f in features if f.levels), [])
        if parameters.mask not in levels:
            raise RequestError(
                ErrorCode.BAD_REQUEST,
                f"mask {parameters.mask!r} is no level of the features; give one, or a number",
            )
        return float(levels.index(parameters.mask))
    if parameters.mask is not None:
        return parameters.mask
    if background is None:
        raise RequestError(
            ErrorCode.BAD_REQUEST,
            "ordshap masks features: give parameters.mask (a number or a level), or a background",
        )
    return Background(background)


def _masked(
    model: _Remembering,
    x: Floats,
    mask: float | Background,
    fixed: list[int],
    groups: list[list[int]] | None,
) -> Floats:
    """Return the outputs (c,) with everything masked that can be."""
    rows = mask.sequences.copy() if isinstance(mask, Background) else np.full((1, len(x)), mask)
    held = list(fixed)
    if groups is not None:
        held += sorted(set(range(len(x))) - {k for group in groups for k in group})
    rows[:, held] = x[held]
    found: Floats = model(rows).mean(axis=0)
    return found


def _importances(
    found: Found, context: Context, number: int, groups: list[list[int]] | None
) -> list[OrderImportance]:
    names = [feature.name for feature in context.features]
    values = context.values[number]
    entries = []
    for row in np.flatnonzero(found.movable):
        members = [int(row)] if groups is None else groups[row]
        gamma = None
        if found.gamma is not None:
            gamma = [None if np.isnan(cell) else float(cell) for cell in found.gamma[row]]
        entries.append(
            OrderImportance(
                feature=" ".join(names[k] for k in members),
                value=values[members[0]]
                if len(members) == 1
                else " ".join(str(values[k]) for k in members),
                value_importance=float(found.value_importance[row]),
                position_importance=float(found.position_importance[row]),
                value_stderr=float(found.value_stderr[row]),
                position_stderr=float(found.position_stderr[row]),
                gamma=gamma,
            )
        )
    return entries


def _notes(parameters: Parameters, mask: float | Background) -> list[str]:
    shown = "a row of the background" if isinstance(mask, Background) else f"{mask:g}"
    notes = [
        f"A masked feature shows {shown}. Position importance is output per unit of place: how "
        "much more the feature is worth one place later."
    ]
    if parameters.estimator == "least_squares":
        notes.append(
            "The position importances are slopes of a linear approximation, which differ from the "
            "slopes of gamma unless the model is additive."
        )
    return notes


METHOD = Method(space="features", parameters=Parameters, run=run, background="optional")
