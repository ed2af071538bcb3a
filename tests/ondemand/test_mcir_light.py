"""The lightweight protocol in ``mcir-m``'s answer: what runs, what is compared, and how it is shown."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from method_context import numeric_context
from rich.console import Console

from attributary.schemas.explanation import Explanation, LightRun, McirResult
from attributary.service.explanation_tables import explanation_view
from attributary.workers.explainers.fidelity import TOLERANCES, fidelity, output_distance
from attributary.workers.explainers.light_sample import PrincipalOutputs, light_rows
from attributary.workers.explainers.mcir import mcir
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.methods.mcir_m import METHOD
from attributary.workers.ondemand.methods.mcir_parameters import McirParameters
from attributary.workers.ondemand.methods.method import Floats

N, D = 800, 10
NAMES = tuple(f"f{k}" for k in range(D))
RNG = np.random.default_rng(5)
#: Five pairs, each nearly one feature twice; what they say of the outputs falls from pair to pair.
COMMON = np.repeat(RNG.standard_normal((N, D // 2)), 2, axis=1)
X = COMMON + np.tile([0.2, 0.5], D // 2) * RNG.standard_normal((N, D))
Q = X @ np.array([2.0, 0, 1.5, 0, 1.1, 0, 0.8, 0, 0.5, 0])[:, None]
Q = np.hstack([Q + RNG.standard_normal((N, 1)), 0.5 * Q + 0.2 * RNG.standard_normal((N, 1))])


def model(rows: Floats) -> Floats:
    return np.stack([2 * rows[:, 0] + np.sin(rows[:, 2]), rows[:, 4] * rows[:, 0]], axis=1)


def explain(
    light: dict[str, Any] | None,
    outputs: Floats | None = Q,
    rows: Floats = X,
    asked: Any = None,
    **given: Any,
) -> McirResult:
    context = numeric_context(NAMES, len(rows), outputs=("y", "z"), observed=outputs)
    parameters = McirParameters(**{"bootstraps": 6, "light": light, **given})
    found = METHOD.run(asked or model, rows, None, parameters, context)
    assert isinstance(found, McirResult)
    return found


def components(found: McirResult) -> dict[str, float | None]:
    assert found.light is not None
    return {one.name: one.value for one in found.light.components}


def strengths(found: Any) -> Floats:
    return np.where(found.ranked, found.score, -1.0)


@pytest.mark.parametrize("sampling", ["uniform", "stratified"])
def test_the_light_run_is_mcir_of_its_rows(sampling: str) -> None:
    found = explain({"fraction": 0.25, "sampling": sampling, "head": 3})
    assert found.features == explain(None).features, "the full run is as it is without"
    rng = np.random.default_rng(0)
    full = mcir(X, Q, bootstraps=6, rng=rng)
    rows = light_rows(Q, 200, rng, strata=10 if sampling == "stratified" else 0)
    light = mcir(X[rows], Q[rows], bootstraps=6, rng=rng)
    direct = fidelity(strengths(full), strengths(light), Q, Q[rows], head=3)
    assert components(found) == {name: one.value for name, one in direct.items()}
    assert found.light is not None
    assert (found.light.rows, found.light.sampling, found.light.head) == (200, sampling, 3)
    for one in found.light.components:
        assert one.tolerance == TOLERANCES[one.name]
        assert one.passed == (None if one.value is None else one.value <= one.tolerance)
    assert components(found)["curves"] is None, "no model is asked"
    assert components(found)["projected"] is None


def test_all_rows_pass_every_component_and_tolerances_decide() -> None:
    found = explain({"rows": N})
    # Only the resamples differ: they choose a size of neighbourhoods.
    same = {"outputs": 0.0, "projected": None, "rank": 0.0, "head": 0.0, "curves": None}
    assert components(found) == pytest.approx(same, abs=1e-12)
    strict = explain({"fraction": 0.1, "tolerances": {"outputs": 1e-9, "rank": 1.0}}).light
    assert strict is not None
    by_name = {one.name: one for one in strict.components}
    assert (by_name["outputs"].tolerance, by_name["outputs"].passed) == (1e-9, False)
    assert (by_name["rank"].tolerance, by_name["rank"].passed) == (1.0, True)
    assert by_name["head"].tolerance == TOLERANCES["head"]


def test_reduced_outputs_are_what_the_light_run_sees() -> None:
    found = explain({"fraction": 0.5, "outputs": 1})
    rng = np.random.default_rng(0)
    full = mcir(X, Q, bootstraps=6, rng=rng)
    rows, reduce = light_rows(Q, 400, rng), PrincipalOutputs(Q, 1)
    light = mcir(X[rows], reduce.of(Q[rows]), bootstraps=6, rng=rng)
    direct = fidelity(strengths(full), strengths(light), Q, Q[rows])
    assert components(found)["rank"] == direct["rank"].value
    assert components(found)["outputs"] == direct["outputs"].value
    assert components(found)["projected"] == output_distance(reduce.of(Q), reduce.of(Q[rows]))
    assert found.light is not None
    assert found.light.outputs == 1


def test_with_a_model_curves_tell_a_wrong_ranking() -> None:
    asked: list[int] = []

    def counted(rows: Floats) -> Floats:
        asked.append(len(rows))
        return model(rows)

    same = explain({"rows": N, "curve_rows": 20}, None, asked=counted)
    assert components(same)["curves"] == 0.0
    # Two rankings, two curves, D + 1 points of 20 rows each.
    assert sum(asked) == N + 2 * 2 * (D + 1) * 20
    few = explain({"rows": 12, "curve_rows": 20}, None)
    assert components(few)["curves"] is not None
    assert (components(few)["curves"] or 0) > 0.05
    assert components(explain({"rows": 12, "curve_rows": 0}, None))["curves"] is None


def test_nothing_ranked_is_compared_by_the_marginals() -> None:
    alone = np.random.default_rng(6).standard_normal((N, D))
    outputs = alone @ np.linspace(2, 0, D)[:, None]
    found = explain({"fraction": 0.5}, np.hstack([outputs, outputs]), alone)
    assert {one.ranked for one in found.features} == {False}
    rank = components(found)["rank"]
    assert rank is not None
    assert rank < 0.2


@pytest.mark.parametrize(
    ("light", "said"),
    [
        ({"rows": N + 1}, "801 of 800 rows"),
        ({"fraction": 0.001}, "1 of 800 rows"),
        ({"fraction": 0.5, "outputs": 3}, "3 components of 2 outputs"),
    ],
)
def test_a_light_run_that_cannot_be_is_named(light: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        explain(light)


def test_discrete_outputs_are_not_reduced() -> None:
    with pytest.raises(RequestError, match="outputs are discrete"):
        explain({"fraction": 0.5, "outputs": 1}, np.sign(Q)[:60], X[:60], discrete_levels=2)


@pytest.mark.parametrize(
    "light",
    [
        {}, {"fraction": 0.5, "rows": 100}, {"fraction": 0.0}, {"fraction": 1.5}, {"rows": 3},
        {"fraction": 0.5, "sampling": "random"}, {"fraction": 0.5, "tolerances": {"speed": 1.0}},
        {"fraction": 0.5, "tolerances": {"rank": -1.0}}, {"fraction": 0.5, "strata": 1},
    ],
)  # fmt: skip
def test_parameters_are_checked(light: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="light"):
        McirParameters(light=light)  # type: ignore[arg-type]


def test_the_table_shows_each_component_with_its_verdict() -> None:
    found = explain({"fraction": 0.25, "sampling": "stratified", "head": 3, "outputs": 1})
    assert isinstance(found.light, LightRun)
    answer = Explanation(
        id="r", model="churn", method="mcir-m", outcome="result", result=found,
        requested_at=0, computed_at=1, seconds=0.25,
    )  # fmt: skip
    assert Explanation.from_bytes(answer.to_bytes()) == answer
    console = Console(file=io.StringIO(), width=120, highlight=False)
    console.print(explanation_view(answer, 3))
    text = console.file.getvalue()
    assert "light run: 200 of 800 rows, stratified, outputs reduced to 1;" in text
    lines = {line.split("  ")[0]: line.split() for line in text.splitlines()}
    for one, start in zip(
        found.light.components,
        ("outputs (Wasserstein, in deviations)", "reduced outputs (the same)",
         "ranking ((1 − τ) / 2)", "first 3 features (1 − Jaccard)", "deletion and insertion curves"),
        strict=True,
    ):  # fmt: skip
        cells = lines[start]
        if one.value is None:
            assert cells[-1] == "undefined"
        else:
            verdict = "pass" if one.passed else "fail"
            assert cells[-3:] == [f"{one.value:.3g}", f"{one.tolerance:g}", verdict]
