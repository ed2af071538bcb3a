"""The method ``mcir-m`` of the request workers: what mcir says of the same rows, by the features' names."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from attributary.schemas.card import Feature, ModelCard
from attributary.schemas.explanation import ErrorCode, McirResult
from attributary.schemas.request import Instance
from attributary.workers.explainers.mcir import mcir
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.inputs import Inputs
from attributary.workers.ondemand.methods import find_method
from attributary.workers.ondemand.methods.mcir_m import METHOD, McirParameters
from attributary.workers.ondemand.methods.method import Context

FEATURES = tuple(Feature(name=name) for name in ("age", "years", "income", "noise", "debt"))
RNG = np.random.default_rng(11)
N = 400


def rows() -> tuple[np.ndarray, np.ndarray]:
    """Years is nearly age, debt mostly income, noise like nothing; what the output says of them."""
    age, income = RNG.normal(size=(2, N))
    years = 0.9 * age + 0.3 * RNG.normal(size=N)
    debt = -0.8 * income + 0.5 * RNG.normal(size=N)
    X = np.column_stack([age, years, income, RNG.normal(size=N), debt])
    return X, age + 0.5 * income + 0.3 * RNG.normal(size=N)


X, Q = rows()


def context(**changes: Any) -> Context:
    given: dict[str, Any] = {
        "features": FEATURES,
        "positions": tuple((k,) for k in range(len(FEATURES))),
        "outputs": ("score",),
        "ids": (None,) * N,
        "values": (),
        "rng": np.random.default_rng(0),
        "batch_size": 100,
        "precision": "float64",
        "piecewise_constant": False,
        "observed": Q[:, None],
        **changes,
    }
    return Context(**given)


def not_asked(rows: np.ndarray) -> np.ndarray:
    raise AssertionError("the outputs came with the rows")


def explain(
    instances: np.ndarray = X,
    changes: dict[str, Any] | None = None,
    model: Any = not_asked,
    **parameters: Any,
) -> McirResult:
    given = {"bootstraps": 8, **parameters}
    found = METHOD.run(model, instances, None, McirParameters(**given), context(**(changes or {})))
    assert isinstance(found, McirResult)
    json.loads(found.model_dump_json())
    return found


def test_the_message_is_what_mcir_says_of_the_same_rows() -> None:
    found = explain()
    direct = mcir(X, Q, bootstraps=8, rng=np.random.default_rng(0))
    assert (found.rows, found.rows_left_out, found.observed) == (N, 0, True)
    assert found.outputs == ["score"]
    assert found.size == direct.size
    assert [one.size for one in found.sizes] == [1, 3, 5]
    assert [one.total for one in found.sizes] == [one.total for one in direct.criteria]
    assert found.stability is not None
    assert direct.stability is not None
    assert found.stability.kendall == direct.stability.kendall
    names = [feature.name for feature in FEATURES]
    ranking = direct.ranking()
    assert [one.feature for one in found.features[:4]] == [names[i] for i in ranking]
    assert [one.rank for one in found.features] == [1, 2, 3, 4, None]
    for one in found.features:
        i = names.index(one.feature)
        assert one.ranked == direct.ranked[i]
        assert (one.score, one.unique) == (direct.score[i], direct.unique[i])
        assert (one.joint, one.marginal) == (direct.joint[i], direct.marginal[i])
        assert one.interval == tuple(direct.interval[i])
        assert one.stderr == direct.stderr[i]
        assert one.neighbourhood == [names[j] for j in direct.neighbourhoods[i]]
        assert (one.estimator, one.kind) == ("copula", "continuous")
        assert one.flags == list(direct.flags[i])
    last = found.features[-1]
    assert (last.feature, last.neighbourhood) == ("noise", [])
    assert last.flags == ["no neighbourhood", "small denominator"]
    # What years says age says too; a copy would have all its information shared.
    by_name = {one.feature: one for one in found.features}
    assert by_name["age"].score > 5 * by_name["years"].score
    assert by_name["years"].marginal > 0.3
    assert any("not ranked" in note for note in found.notes)


def test_rows_with_a_missing_value_are_left_out_and_counted() -> None:
    holes, observed = X.copy(), Q[:, None].copy()
    holes[:7, 2] = np.nan
    observed[5:10] = np.nan
    found = explain(holes, {"observed": observed})
    assert (found.rows, found.rows_left_out) == (N - 10, 10)
    assert "10 rows with a missing value are left out." in found.notes
    kept = explain(X[10:], {"observed": Q[10:, None]})
    assert kept.features == found.features


def test_without_observed_outputs_the_model_is_asked_once_for_whole_rows() -> None:
    asked: list[int] = []

    def model(rows: np.ndarray) -> np.ndarray:
        asked.append(len(rows))
        return rows[:, 0] + 0.5 * rows[:, 2]

    holes = X.copy()
    holes[0, 4] = np.nan
    found = explain(holes, {"observed": None}, model)
    assert asked == [N - 1]
    assert not found.observed
    direct = mcir(X[1:], model(X[1:]), bootstraps=8, rng=np.random.default_rng(0))
    assert found.features[0].score == direct.score.max(where=direct.ranked, initial=0)


def test_all_outputs_are_one() -> None:
    both = np.column_stack([Q, X[:, 3]])
    found = explain(changes={"observed": both, "outputs": ("score", "other")})
    direct = mcir(X, both, bootstraps=8, rng=np.random.default_rng(0))
    noise = next(one for one in found.features if one.feature == "noise")
    assert noise.marginal == direct.marginal[3] > 1.0
    assert any("together are one Q" in note for note in found.notes)


CARD = ModelCard(
    model="m",
    features=[
        Feature(name="plan", kind="categorical", levels=["free", "pro"]),
        Feature(name="visits"),
        Feature(name="size"),
    ],
)
INPUTS = Inputs(CARD)


def discrete() -> tuple[np.ndarray, np.ndarray]:
    plans = RNG.choice(["free", "pro", "gold"], size=N)
    visits = np.where(plans == "pro", 3, 1) + RNG.integers(0, 2, size=N)
    instances = [
        Instance(features={"plan": str(plan), "visits": float(count), "size": size})
        for plan, count, size in zip(plans, visits, RNG.normal(size=N).tolist(), strict=True)
    ]
    return INPUTS.to_space(INPUTS.encode(instances, "row"), "features"), visits.astype(float)


def test_kinds_are_the_cards_and_whole_numbers_count_where_the_request_says_so() -> None:
    rows, visits = discrete()
    changes = {"features": INPUTS.features, "observed": (visits > 2).astype(float)[:, None]}
    kinds: dict[int, dict[str, str]] = {}
    for levels in (0, 5):
        found = explain(rows, changes, threshold=0.1, discrete_levels=levels, bootstraps=3)
        kinds[levels] = {one.feature: one.kind for one in found.features}
    assert kinds[0] == {"plan": "discrete", "visits": "continuous", "size": "continuous"}
    assert kinds[5] == {"plan": "discrete", "visits": "discrete", "size": "continuous"}
    by_name = {one.feature: one for one in found.features}
    # Of plan and visits, both discrete as Q is, two estimators may speak: switch shows them all.
    assert set(by_name["visits"].by_estimator) == {"plugin", "mixed"}
    assert by_name["visits"].estimator in by_name["visits"].by_estimator
    assert by_name["visits"].marginal == pytest.approx(
        -np.mean(visits > 2) * np.log(np.mean(visits > 2))
        - np.mean(visits <= 2) * np.log(np.mean(visits <= 2)),
        abs=0.02 if by_name["visits"].estimator == "mixed" else 1e-9,
    )


def test_parameters_reach_the_explainer() -> None:
    found = explain(
        screen="mutual_information", threshold=0.5, max_candidates=2, sizes=[2], ridge=1e-3,
        bootstraps=4, block_length=20,
    )  # fmt: skip
    direct = mcir(
        X, Q, screen="mutual_information", threshold=0.5, max_candidates=2, sizes=[2], ridge=1e-3,
        bootstraps=4, block_length=20, rng=np.random.default_rng(0),
    )  # fmt: skip
    assert [one.score for one in found.features] == [
        direct.score[[f.name for f in FEATURES].index(one.feature)] for one in found.features
    ]
    assert [one.size for one in explain(max_candidates=4).sizes] == [1, 3]
    knn = explain(estimator="knn", bootstraps=2)
    assert {one.estimator for one in knn.features} == {"knn"}


def test_no_resamples_no_intervals() -> None:
    found = explain(bootstraps=0)
    assert found.stability is None
    assert {one.instability for one in found.sizes} == {0.0}
    assert {(one.interval, one.stderr) for one in found.features} == {(None, None)}


def test_progress_is_told_and_what_it_raises_ends_the_work() -> None:
    told: list[tuple[int, int]] = []
    explain(changes={"progress": lambda done, total: told.append((done, total))})
    assert told[0] == (0, 8)
    assert told == sorted(told)
    assert {total for _, total in told} == {8}
    told.clear()
    explain(
        changes={"progress": lambda done, total: told.append((done, total))},
        estimator="knn", bootstraps=2,
    )  # fmt: skip
    assert told == [(0, 7), *((step, 7) for step in range(2, 7))]

    class StopError(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done == 3:
            raise StopError

    with pytest.raises(StopError):
        explain(changes={"progress": stop}, estimator="knn", bootstraps=2)


def test_constants_duplicates_and_one_feature() -> None:
    odd = np.column_stack([X[:, 0], X[:, 0], np.full(N, 7.0), X[:, 3], X[:, 3] ** 3])
    found = explain(odd)
    by_name = {one.feature: one for one in found.features}
    assert by_name["age"].score == by_name["years"].score < 0.01
    assert (by_name["income"].marginal, by_name["income"].ranked) == (0.0, False)
    alone = explain(X[:, :1], {"features": FEATURES[:1]})
    assert [one.rank for one in alone.features] == [None]
    few = explain(X[:4], {"observed": Q[:4, None]})
    assert few.rows == 4


@pytest.mark.parametrize(
    ("instances", "changes", "parameters", "code", "message"),
    [
        (X[:3], {"observed": Q[:3, None]}, {}, "bad_request", "needs 4 rows"),
        (np.full((N, 5), np.nan), {}, {}, "bad_request", "'age' is missing in 400 of them"),
        (X, {"observed": np.full((N, 1), np.nan)}, {}, "bad_request", "'score' is missing in 400"),
        (X, {}, {"estimator": "plugin"}, "bad_request", "needs discrete columns"),
        (X, {}, {"sizes": [7]}, "bad_request", "max_candidates=6"),
        (
            X,
            {"outputs": tuple(map(str, range(65)))},
            {},
            "limit_exceeded",
            "65 outputs, and mcir-m takes at most 64",
        ),
        (np.broadcast_to(0.0, (1_000_001, 5)), {}, {}, "limit_exceeded", "ask for 1000000 rows"),
        (
            np.column_stack([X[:, 0], X[:, 0], X[:, :3]]),
            {},
            {"ridge": 0.0},
            "bad_request",
            "ridge is 0",
        ),
    ],
)
def test_bad_requests_are_named(
    instances: np.ndarray,
    changes: dict[str, Any],
    parameters: dict[str, Any],
    code: str,
    message: str,
) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        explain(instances, changes, **parameters)
    assert caught.value.code is ErrorCode(code)


@pytest.mark.parametrize(
    "parameters",
    [
        {"screen": "spearman"}, {"threshold": 1.5}, {"threshold": float("nan")}, {"sizes": []},
        {"sizes": [0]}, {"max_candidates": 51}, {"estimator": "best"}, {"bootstraps": 1001},
        {"block_length": 0}, {"ridge": -1e-6}, {"ridge": float("inf")}, {"bootstrap": 3},
    ],
)  # fmt: skip
def test_parameters_are_checked(parameters: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        McirParameters(**parameters)


def test_it_is_found_by_name() -> None:
    assert find_method("mcir-m") is METHOD
