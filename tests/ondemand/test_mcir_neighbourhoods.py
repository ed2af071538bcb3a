"""Neighbourhoods of an earlier run: kept on a quiet stream, found anew where dependence has changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from method_context import numeric_context

from attributary.schemas.explanation import McirResult
from attributary.schemas.request import StreamWindow
from attributary.workers.explainers.mcir import mcir
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.methods.mcir_m import METHOD
from attributary.workers.ondemand.methods.mcir_parameters import McirParameters
from attributary.workers.ondemand.methods.method import Floats

NAMES = ("a", "b", "c", "d")
BEFORE, NOW = StreamWindow(start=0, end=10, rows=600), StreamWindow(start=10, end=20, rows=600)

NONE: dict[str, list[str]] = {name: [] for name in NAMES}


def stream(seed: int, *, moved: bool = False, n: int = 600) -> tuple[Floats, Floats]:
    """a and b go together and c alone; where moved, a goes with c instead. Distributions stay."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    X[:, 2 if moved else 1] = 0.8 * X[:, 0] + 0.6 * X[:, 2 if moved else 1]
    return X, (X[:, 0] + X[:, 2] + 0.5 * rng.standard_normal(n))[:, None]


def explain(X: Floats, Q: Floats, background: Floats | None = None, **given: Any) -> McirResult:
    context = numeric_context(
        NAMES,
        len(X),
        observed=Q,
        window=NOW,
        background_window=None if background is None else BEFORE,
    )
    parameters = McirParameters(**{"bootstraps": 6, **given})
    found = METHOD.run(lambda rows: rows, X, background, parameters, context)
    assert isinstance(found, McirResult)
    return found


def neighbourhoods(found: McirResult) -> dict[str, list[str]]:
    return {one.feature: one.neighbourhood for one in found.features}


def test_a_quiet_stream_keeps_its_neighbourhoods_and_says_so() -> None:
    earlier = stream(0)
    first = explain(*earlier)
    assert first.neighbourhoods is not None
    assert (first.neighbourhoods.origin, first.neighbourhoods.found_on) == ("found", NOW)
    assert first.neighbourhoods.change is None
    for seed in range(1, 21):
        X, Q = stream(seed)
        found = explain(X, Q, earlier[0], neighbourhoods=neighbourhoods(first))
        source = found.neighbourhoods
        assert source is not None
        assert source.change is not None
        assert (source.origin, source.found_on) == ("reused", BEFORE), source.change
        assert (source.change.limit, source.change.rows_before) == (0.1, 600)
        assert neighbourhoods(found) == neighbourhoods(first)
    direct = mcir(
        X, Q, neighbourhoods=[[1], [0], [], []], bootstraps=6, rng=np.random.default_rng(0)
    )
    assert {one.feature: one.score for one in found.features} == dict(
        zip(NAMES, direct.score.tolist(), strict=True)
    )
    assert {one.feature: one.interval for one in found.features}["a"] == tuple(direct.interval[0])
    assert (found.size, found.sizes) == (None, [])
    fewer = {"neighbourhoods": neighbourhoods(first), "reused_bootstraps": 0}
    alone = explain(X, Q, earlier[0], **fewer)
    assert [one.score for one in alone.features] == [one.score for one in found.features]
    assert {one.interval for one in alone.features} == {None}
    moved = explain(*stream(1, moved=True), earlier[0], **fewer)
    assert None not in {one.interval for one in moved.features}


def test_a_planted_change_of_dependence_finds_them_anew() -> None:
    earlier = stream(0)
    old = neighbourhoods(explain(*earlier))
    for seed in range(1, 11):
        X, Q = stream(seed, moved=True)
        found = explain(X, Q, earlier[0], neighbourhoods=old)
        source = found.neighbourhoods
        assert source is not None
        assert source.change is not None
        assert (source.origin, source.found_on) == ("found", NOW)
        assert source.change.pair in {("a", "b"), ("a", "c")}
        assert source.change.largest > 0.6
        assert neighbourhoods(found) == {"a": ["c"], "b": [], "c": ["a"], "d": []}
        alone = explain(X, Q)
        assert found.features == alone.features
    kept = explain(X, Q, earlier[0], neighbourhoods=old, max_change=1.0)
    assert neighbourhoods(kept) == old


def test_where_nothing_can_be_compared_they_are_found() -> None:
    X, Q = stream(1)
    old = neighbourhoods(explain(*stream(0)))
    other = {**old, "e": []}
    for background, given in (
        (np.empty((0, 4)), {"neighbourhoods": old}),
        (np.full((600, 4), np.nan), {"neighbourhoods": old}),
        (stream(0)[0], {"neighbourhoods": other}),
        (stream(0)[0], {"neighbourhoods": old, "screen": "mutual_information"}),
    ):
        source = explain(X, Q, background, **given).neighbourhoods
        assert source is not None
        assert (source.origin, source.change) == ("found", None)


def test_neighbourhoods_alone_are_taken_as_they_are() -> None:
    X, Q = stream(1)
    found = explain(X, Q, neighbourhoods={"a": ["c", "d"], "b": [], "c": [], "d": ["a"]})
    assert neighbourhoods(found) == {"a": ["c", "d"], "b": [], "c": [], "d": ["a"]}
    assert found.neighbourhoods is not None
    assert (found.neighbourhoods.origin, found.neighbourhoods.found_on) == ("given", None)


@pytest.mark.parametrize(
    ("background", "given", "said"),
    [
        (np.zeros((9, 4)), {}, "no use for a background"),
        (None, {"neighbourhoods": {"a": []}}, "missing features \\['b', 'c', 'd'\\]"),
        (None, {"neighbourhoods": {**NONE, "a": ["z"]}}, "unknown features"),
        (None, {"neighbourhoods": {**NONE, "a": ["a"]}}, "distinct other"),
    ],
)
def test_what_cannot_be_taken_is_named(
    background: Floats | None, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(RequestError, match=said):
        explain(*stream(0), background, **given)
