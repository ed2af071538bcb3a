"""Neighbourhoods of an earlier run: kept while the features depend on each other as they did then.

They belong to the copula of the features, not to their distributions, so what is looked at is the change of
the correlations of normal scores between the rows that they were found on and those at hand.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from attributary.schemas.explanation import DependenceChange, ErrorCode, Neighbourhoods
from attributary.schemas.request import StreamWindow
from attributary.workers.explainers.dependence_change import dependence_change
from attributary.workers.explainers.linear_algebra import Linalg
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.methods.mcir_parameters import McirParameters
from attributary.workers.ondemand.methods.method import Context, Floats

_FEWEST_ROWS = 4
# Of another screen's measure no error is known, so a change cannot be told from chance.
_COMPARED = "pearson"


def choose(
    X: Floats,
    background: Floats | None,
    parameters: McirParameters,
    context: Context,
    linalg: Linalg | None,
) -> tuple[list[list[int]] | None, Neighbourhoods]:
    """Return the neighbourhoods to take, None where they are to be found, and what the answer says of them.

    RequestError: names that are not the model's, or a background that nothing is compared with.
    """
    names = [feature.name for feature in context.features]
    given = parameters.neighbourhoods
    if given is None:
        if background is not None:
            raise RequestError(
                ErrorCode.BAD_REQUEST,
                "mcir-m has no use for a background without the neighbourhoods that were found on it",
            )
        return None, _source("found", context.window, parameters)
    if background is None:
        return _places(given, names), _source("given", None, parameters)
    earlier = background[~np.isnan(background).any(axis=1)]
    if (
        len(earlier) < _FEWEST_ROWS
        or parameters.screen != _COMPARED
        or not set(names) == set(given) >= {name for near in given.values() for name in near}
    ):
        return None, _source("found", context.window, parameters)
    found = dependence_change(
        earlier,
        X,
        threshold=parameters.least,
        block_length=parameters.block_length,
        linalg=linalg,
    )
    change = DependenceChange(
        largest=found.largest,
        pair=None if found.pair is None else (names[found.pair[0]], names[found.pair[1]]),
        limit=parameters.max_change,
        rows_before=len(earlier),
    )
    if change.largest > parameters.max_change:
        return None, _source("found", context.window, parameters, change)
    source = _source("reused", context.background_window, parameters, change)
    return _places(given, names), source


def _source(
    origin: Literal["found", "reused", "given"],
    found_on: StreamWindow | None,
    parameters: McirParameters,
    change: DependenceChange | None = None,
) -> Neighbourhoods:
    return Neighbourhoods(
        origin=origin,
        found_on=found_on,
        screen=parameters.screen,
        threshold=parameters.least,
        max_candidates=parameters.max_candidates,
        sizes=parameters.tried_sizes,
        change=change,
    )


def _places(given: dict[str, list[str]], names: list[str]) -> list[list[int]]:
    place = {name: index for index, name in enumerate(names)}
    unknown = {*given, *(name for near in given.values() for name in near)} - set(place)
    missing = set(place) - set(given)
    if unknown or missing:
        what, which = ("unknown", unknown) if unknown else ("missing", missing)
        raise RequestError(
            ErrorCode.BAD_REQUEST,
            f"parameters: neighbourhoods: {what} features {sorted(which)[:5]}; name every feature of the "
            "model, and for each a list of others",
        )
    return [[place[near] for near in given[name]] for name in names]
