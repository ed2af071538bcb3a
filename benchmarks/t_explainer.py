"""The T-Explainer paper's experiments: stability, faithfulness, additivity and time, beside the peers."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import environments, explained_data
from benchmarks.suite import Figure, Options, Panel, Suite, table
from benchmarks.t_explainer_tables import (
    AGAINST_ZERO,
    PRINTED,
    detailed,
    overviews,
    references,
    standing,
    value,
)

MODELS = ("network", "XGBoost")
#: SHAP Kernel and LIME need a tenth of a second a row: rows x (1 + neighbours) + slow_rows x runs of
#: them, on ten tables and models, are some eight minutes. ``slow_seconds``: of a row.
SETTINGS = {
    "rows": 50,
    "slow_rows": 8,
    "slow_seconds": 0.02,
    "neighbours": 4,
    "size": 0.05,
    "background": 25,
    "runs": 5,
    "epsilon": 0.05,
}
QUICK = {**SETTINGS, "rows": 6, "slow_rows": 2, "neighbours": 2, "runs": 2}


def measure(name: str, model: str, options: Options) -> dict[str, Any]:
    """Train the model on the table and run every explainer on it, in one process."""
    settings = QUICK if options.quick else SETTINGS
    about: dict[str, Any] = {"table": name, "model": model, **settings}
    try:
        python = Path(sys.executable)
        if options.peers:
            python = environments.interpreter("explainers")
        rows = explained_data.load(name)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "table.npz"
            np.savez(path, X=rows.X, y=rows.y, groups=np.array(json.dumps(rows.groups)))
            peers = "peers" if options.peers else "alone"
            found: dict[str, Any] = environments.run(
                python, "explainers", path, model, json.dumps(settings), peers
            )
    except environments.PeerError as error:
        return {**about, "failed": str(error)}
    return {**about, **found}


def cases(options: Options) -> dict[str, Callable[[], Any]]:
    """Return one case for each table and model; tables of other packages only beside the peers."""
    tables = [
        name for name in explained_data.ABOUT if options.peers or name in explained_data.SHIPPED
    ]
    if options.quick:
        tables = tables[:1]
    return {
        f"explainers, {name}, {model}": partial(measure, name, model, options)
        for name in tables
        for model in MODELS
    }


def section(results: dict[str, Any]) -> str:
    """Return the settings, where we stand, and one table for each table and model."""
    ran = [result for result in results.values() if "failed" not in result]
    settings = next(iter(results.values()))
    parts = [
        "The authors' own tables could not be had, so no figure of theirs stands beside ours.",
        f"{settings['rows']} held-out rows, each with {settings['neighbours']} Gaussian neighbours of "
        f"{settings['size']} standard deviations in the numeric features (those of another "
        "predicted class are left out); max and mean over rows of the max and mean over neighbours. RES: "
        f"the largest difference in {settings['runs']} runs of all rows, of the first "
        f"{settings['slow_rows']} where a row takes over {1e3 * settings['slow_seconds']:.0f} ms. PGI on the "
        "1, d/4 and d/2 features with the largest |attribution|, the mean of the three: *keep* is the "
        "paper's text (the rest goes to 0, 1 - |Δf|), *delete* what its "
        "code does (those go to 0, |Δf|); insertion and deletion are areas under the curves to and "
        f"from 0. LAP: the share of rows whose attributions add up to f(x) within "
        f"{settings['epsilon']}. The output is a probability, numeric features are standardised, "
        f"every method has the same background of {settings['background']} training rows (captum: its "
        "mean). The network: three hidden layers of 32 ReLU units; XGBoost: 100 trees of depth 4. "
        "Time is processor time, the median of the same runs. SHAP Kernel and LIME with their default "
        "budgets. ± is the standard error over rows. In bold the best among the methods that see only a "
        "callable; Integrated Gradients, Input × Gradient and DeepLIFT differentiate the network and SHAP "
        "Tree reads the trees. *Against zero*: slopes times values, in place of values less their mean.",
        table(
            ["data", "what"],
            [[name, about] for name, about in explained_data.ABOUT.items()],
            left=2,
        ),
        "The banknote table of the paper is shipped by no package that was found.",
        standing(ran),
        references(ran),
        "Why where it loses. *LAP*: Shapley values and path integrals add up by construction, a "
        "first-order expansion does not, and where a probability is near 0 or 1 its slopes vanish while its "
        "distance to the mean is largest; the gap stands beside every explanation. "
        "*To Input × Gradient, on insertion, deletion, PGI and mean RIS*: the reference, not the slopes. "
        "Times values they give its figures on the numeric tables, to the digits shown. Contributions "
        "are against the mean of the background, and the scores put 0 in its place. Where they put that "
        "mean, insertion and deletion of contributions are as good or better, most so where one-hot "
        "columns have means far from 0 (German credit), and PGI *keep* but for phoneme. RIS divides by "
        "the relative change of x, which is that of slope · x too; slope · (x - x̄) changes most, "
        "relatively, where x is near x̄. "
        "*To Integrated Gradients and DeepLIFT, on RIS and ROS*: the slope of a ReLU network jumps where a "
        "neighbour crosses a kink; paths average over many. SHAP Kernel samples coalitions where there are "
        "many features, and its RIS there is mostly the noise that its RES shows. *To them and to Shapley "
        "values, on insertion and deletion*: features move by several standard deviations, which averages "
        "and paths see and a slope does not. "
        "*XGBoost*: a slope over a neighbourhood is an average of many splits, not the ones that matter to "
        "the row, which SHAP Tree reads exactly. *Time*: Input × Gradient and DeepLIFT need one backward "
        "pass, differences four evaluations a feature; SHAP Tree is compiled.",
        "### Overview\n\n" + overviews(ran),
    ]
    for result in results.values():
        head = f"### {result['table']}, {result['model']}"
        if "failed" in result:
            parts.append(f"{head}\n\nNot measured: {result['failed']}")
        else:
            title = f"{head}\n\n{result['columns']} columns, accuracy {result['accuracy']:.3f}, "
            tops = ", ".join(map(str, result["tops"]))
            parts.append(f"{title}PGI on {tops}.\n\n{detailed(result['entries'])}")
    return "\n\n".join(part for part in parts if part)


def figures(results: dict[str, Any]) -> list[Figure]:
    """Return the measures of the methods on the networks, table by table."""
    ran = [r for r in results.values() if "failed" not in r and r["model"] == "network"]
    if not ran:
        return []
    names = [result["table"] for result in ran]
    methods = [
        entry["who"] for entry in ran[0]["entries"] if entry["who"] not in (PRINTED, AGAINST_ZERO)
    ]

    def panel(key: str, title: str, log: bool) -> Panel:
        series: dict[str, tuple[list[Any], list[float | None]]] = {}
        for who in methods:
            found: list[float | None] = []
            for result in ran:
                own = [value(entry, key) for entry in result["entries"] if entry["who"] == who]
                found.append(own[0] if own and (own[0] > 0 or not log) else None)
            series[who] = (names, found)
        return Panel(title, "", "", series, kind="bars", log_y=log)

    return [
        Figure(
            "t_explainer",
            "Mean relative input stability, insertion area and time a row of every explainer of the "
            "networks, on each table",
            [
                panel("ris_mean", "mean RIS (lower is better)", True),
                panel("insertion", "insertion area (higher is better)", False),
                panel("time", "ms a row", True),
            ],
        )
    ]


SUITE = Suite(
    "t_explainer", "T-Explainer beside its peers", cases, section, page="results", figures=figures
)
