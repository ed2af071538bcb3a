"""``mcir-m``: what each feature says of the outputs that the features like it do not say too.

A window of the stream brings its outputs along, and no model is opened; outputs of instances in the
request are the model's. All outputs that are asked for are one Q. Categoricals are discrete, codes in the
order of their levels with "(other)" first; rows with a missing value are left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from attributary.schemas.explanation import (
    ErrorCode,
    EstimatorScore,
    McirResult,
    NeighbourhoodSize,
    RankStability,
    UniqueInformation,
)
from attributary.workers.explainers.estimators import Kind
from attributary.workers.explainers.mcir import McirResult as Found
from attributary.workers.explainers.mcir import mcir
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.methods.mcir_light import light_run
from attributary.workers.ondemand.methods.mcir_neighbourhoods import choose
from attributary.workers.ondemand.methods.mcir_parameters import McirParameters
from attributary.workers.ondemand.methods.method import Context, Floats, Method, Model
from attributary.workers.ondemand.torch_linalg import linalg_on

_MOST_OUTPUTS = 64
#: Rows times features: with their ranks, about 100 bytes of memory each.
_MOST_CELLS = 5_000_000


def run(
    model: Model,
    instances: Floats,
    background: Floats | None,
    parameters: McirParameters,
    context: Context,
) -> McirResult:
    """Score the features of instances (n, d) in the space "features"."""
    _check_size(instances, context)
    whole: npt.NDArray[np.bool_] = np.all(~np.isnan(instances), axis=1)
    if context.observed is not None:
        whole &= np.all(~np.isnan(context.observed), axis=1)
    _check_whole(whole, instances, context)
    X = instances[whole]
    Q = model(X).reshape(len(X), -1) if context.observed is None else context.observed[whole]
    kinds = _kinds(X, Q, parameters.discrete_levels, context)
    estimator = parameters.estimator
    if estimator is None:
        estimator = "switch" if "discrete" in kinds else "copula"
    linalg = linalg_on(context.device)
    near, source = choose(X, background, parameters, context, linalg)

    def scored(rows: Floats, outputs: Floats, told: Callable[[int, int], None]) -> Found:
        try:
            return mcir(
                rows,
                outputs,
                kinds=kinds,
                neighbourhoods=near,
                sizes=parameters.tried_sizes,
                max_candidates=parameters.max_candidates,
                screen=parameters.screen,
                threshold=parameters.least,
                estimator=estimator,
                ridge=parameters.ridge,
                bootstraps=parameters.resamples(reused=source.origin == "reused"),
                block_length=parameters.block_length,
                head=parameters.head,
                rng=context.rng,
                linalg=linalg,
                progress=told,
            )
        except ValueError as error:
            raise RequestError(ErrorCode.BAD_REQUEST, str(error)) from None

    begun = time.monotonic()
    found = scored(X, Q, context.progress)
    seconds = time.monotonic() - begun
    return McirResult(
        outputs=list(context.outputs),
        observed=context.observed is not None,
        window=context.window,
        rows=len(X),
        rows_left_out=len(instances) - len(X),
        neighbourhoods=source,
        size=found.size,
        sizes=[
            NeighbourhoodSize(
                size=one.size,
                instability=one.instability,
                leftover=one.leftover,
                penalty=one.penalty,
                total=one.total,
            )
            for one in found.criteria
        ],
        stability=None
        if found.stability is None
        else RankStability(
            kendall=found.stability.kendall,
            jaccard=found.stability.jaccard,
            head=found.stability.head,
        ),
        features=_features(found, kinds, context),
        light=None
        if parameters.light is None
        else light_run(
            X,
            Q,
            found,
            seconds,
            lambda rows, outputs: scored(rows, outputs, lambda done, total: context.check()),
            None if context.observed is not None else model,
            kinds,
            parameters.light,
            context,
        ),
        notes=_notes(found, len(instances) - len(X), context),
    )


def _check_size(instances: Floats, context: Context) -> None:
    n, d = instances.shape
    if n * d > _MOST_CELLS:
        raise RequestError(
            ErrorCode.LIMIT_EXCEEDED,
            f"{n} rows of {d} features are {n * d} numbers; at most {_MOST_CELLS} are taken: ask for "
            f"{_MOST_CELLS // d} rows",
        )
    if len(context.outputs) > _MOST_OUTPUTS:
        raise RequestError(
            ErrorCode.LIMIT_EXCEEDED,
            f"the model has {len(context.outputs)} outputs, and mcir-m takes at most {_MOST_OUTPUTS} as "
            "one: name one of them",
        )


def _check_whole(whole: npt.NDArray[np.bool_], instances: Floats, context: Context) -> None:
    if whole.sum() >= 4:
        return
    columns = instances if context.observed is None else np.hstack([instances, context.observed])
    names = [feature.name for feature in context.features] + list(context.outputs)
    missing = np.isnan(columns).sum(axis=0)
    worst = int(np.argmax(missing))
    why = f"; {names[worst]!r} is missing in {missing[worst]} of them" if missing[worst] else ""
    raise RequestError(
        ErrorCode.BAD_REQUEST,
        f"mcir-m needs 4 rows without a missing value, better hundreds; {int(whole.sum())} of "
        f"{len(whole)} are{why}",
    )


def _kinds(X: Floats, Q: Floats, levels: int, context: Context) -> list[Kind]:
    """Return the kind of every feature and one last for the outputs."""
    kinds: list[Kind] = [
        "discrete" if feature.kind != "numeric" or _few_whole(X[:, place], levels) else "continuous"
        for place, feature in enumerate(context.features)
    ]
    discrete = all(_few_whole(column, levels) for column in Q.T)
    return [*kinds, "discrete" if discrete else "continuous"]


def _few_whole(column: Floats, levels: int) -> bool:
    if not levels:
        return False
    distinct = np.unique(column)
    return distinct.size <= levels and bool(np.all(distinct == np.rint(distinct)))


def _features(found: Found, kinds: list[Kind], context: Context) -> list[UniqueInformation]:
    names = [feature.name for feature in context.features]
    ranking = found.ranking()
    rank = {feature: place + 1 for place, feature in enumerate(ranking)}
    others = [i for i in np.argsort(-found.marginal, kind="stable").tolist() if i not in rank]
    return [
        UniqueInformation(
            feature=names[i],
            kind=kinds[i],
            ranked=i in rank,
            rank=rank.get(i),
            score=float(found.score[i]),
            interval=None
            if np.isnan(found.interval[i]).any()
            else (float(found.interval[i, 0]), float(found.interval[i, 1])),
            stderr=_number(found.stderr[i]),
            unique=float(found.unique[i]),
            joint=float(found.joint[i]),
            marginal=float(found.marginal[i]),
            neighbourhood=[names[j] for j in found.neighbourhoods[i]],
            estimator=found.estimator[i],
            by_estimator={
                name: EstimatorScore(score=float(scores[i]), stderr=_number(errors[i]))
                for name, (scores, errors) in found.fixed.items()
                if np.isfinite(scores[i])
            },
            flags=list(found.flags[i]),
        )
        for i in [*ranking, *others]
    ]


def _notes(found: Found, left_out: int, context: Context) -> list[str]:
    notes = []
    if not found.ranked.all():
        notes.append(
            "A feature without a neighbourhood is not ranked: its score would be 1 even if it were "
            "noise. Judge it by its marginal information."
        )
    if left_out:
        notes.append(f"{left_out} rows with a missing value are left out.")
    if len(context.outputs) > 1:
        notes.append("All outputs together are one Q; name an output for that one alone.")
    return notes


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


METHOD = Method(
    space="features", parameters=McirParameters, run=run, background="optional", observes=True
)
