"""The T-Explainer paper's experiments: stability, faithfulness, additivity and time, beside the peers."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import environments, explained_data
from benchmarks.suite import Figure, Options, Panel, Suite, number, table

MODELS = ("network", "XGBoost")
SETTINGS = {
    "rows": 15,
    "neighbours": 4,
    "size": 0.05,
    "background": 25,
    "runs": 3,
    "epsilon": 0.05,
}
QUICK = {**SETTINGS, "rows": 4, "neighbours": 2, "runs": 2}

#: Measures of a method: key, name in the tables, whether less is better.
COLUMNS = (
    ("ris_max", "max RIS", True),
    ("ris_mean", "mean RIS", True),
    ("ros_max", "max ROS", True),
    ("ros_mean", "mean ROS", True),
    ("res", "RES", True),
    ("pgi_keep", "PGI, keep", False),
    ("pgi_delete", "PGI, delete", False),
    ("insertion", "insertion", False),
    ("deletion", "deletion", True),
    ("lap", "LAP", False),
    ("time", "ms a row", True),
)
OURS = "T-Explainer"
PRINTED = "T-Explainer, slopes as printed"


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


def value(entry: dict[str, Any], key: str) -> float:
    """Return a measure of a method."""
    if key == "time":
        return 1e3 * median(entry["seconds"]) / float(entry["rows"])
    return float(entry[key])


def section(results: dict[str, Any]) -> str:
    """Return the settings, where we stand, and one table for each table and model."""
    ran = [result for result in results.values() if "failed" not in result]
    settings = next(iter(results.values()))
    parts = [
        f"{settings['rows']} held-out rows, each with {settings['neighbours']} Gaussian neighbours of "
        f"{settings['size']} standard deviations in the numeric features (those of another "
        "predicted class are left out); max and mean over rows and neighbours. RES: the largest "
        f"difference in {settings['runs']} runs. PGI on the quarter of the features with the largest "
        "|attribution|: *keep* is the paper's text (the rest goes to 0, 1 - |Δf|), *delete* what its "
        "code does (those go to 0, |Δf|); insertion and deletion are areas under the curves to and "
        f"from 0. LAP: the share of rows whose attributions add up to f(x) within "
        f"{settings['epsilon']}. The output is a probability, numeric features are standardised, "
        f"every method has the same background of {settings['background']} training rows (captum: its "
        "mean). The network: three hidden layers of 32 ReLU units; XGBoost: 100 trees of depth 4. "
        "Time is processor time of one call with all rows. SHAP Kernel and LIME with their default "
        "budgets. In bold the best of a column among the methods that see only a callable; "
        "Integrated Gradients, Input × Gradient and DeepLIFT differentiate the network and SHAP Tree "
        "reads the trees.",
        table(
            ["data", "what"],
            [[name, about] for name, about in explained_data.ABOUT.items()],
            left=2,
        ),
        "The banknote table of the paper is shipped by no package that was found.",
        _standing(ran),
        "Why where it loses. *LAP*: Shapley values and path integrals add up by construction, a "
        "first-order expansion does not, and where a probability is near 0 or 1 its slopes vanish while its "
        "distance to the mean is largest; the gap stands beside every explanation. "
        "*RIS and ROS*: the slope of a ReLU network jumps where a neighbour crosses a kink; paths "
        "and samples average over many. SHAP Kernel samples coalitions where there are many features, "
        "and its RIS there is mostly the noise that its RES shows. *PGI, insertion, deletion* move features "
        "by several standard deviations: averages over the background see that, a slope does not. "
        "*XGBoost*: a slope over a neighbourhood is an average of many splits, not the ones that matter to "
        "the row, which SHAP Tree reads exactly. *Time*: Input × Gradient and DeepLIFT need one backward "
        "pass, differences four evaluations a feature; SHAP Tree is compiled.",
    ]
    for result in results.values():
        head = f"### {result['table']}, {result['model']}"
        if "failed" in result:
            parts.append(f"{head}\n\nNot measured: {result['failed']}")
        else:
            title = f"{head}\n\n{result['columns']} columns, accuracy {result['accuracy']:.3f}, "
            parts.append(f"{title}PGI on {result['top']}.\n\n{_table(result['entries'])}")
    return "\n\n".join(parts)


#: Methods that need the inside of a model.
INSIDE = ("SHAP Tree", "Integrated Gradients", "Input × Gradient", "DeepLIFT")


def _table(entries: list[dict[str, Any]]) -> str:
    outside = [entry for entry in entries if entry["who"] not in INSIDE]
    best = {
        key: (min if less else max)(value(entry, key) for entry in outside)
        for key, _, less in COLUMNS
    }
    lines = []
    for entry in entries:
        cells = [entry["who"]]
        for key, _, _ in COLUMNS:
            found = value(entry, key)
            text = f"{100 * found:.0f} %" if key == "lap" else number(found)
            cells.append(f"**{text}**" if entry in outside and found == best[key] else text)
        lines.append(cells)
    return table(["explainer", *(name for _, name, _ in COLUMNS)], lines)


def _standing(results: list[dict[str, Any]]) -> str:
    """Return how often T-Explainer's contributions are at least as good as each peer."""
    peers: dict[str, list[list[int]]] = {}
    for result in results:
        (own,) = (entry for entry in result["entries"] if entry["who"] == OURS)
        for entry in result["entries"]:
            if entry["who"] in (OURS, PRINTED):
                continue
            wins = peers.setdefault(entry["who"], [[0, 0] for _ in COLUMNS])
            for count, (key, _, less) in zip(wins, COLUMNS, strict=True):
                a, b = value(own, key), value(entry, key)
                count[0] += a <= b if less else a >= b
                count[1] += 1
    if not peers:
        return "Measured alone, without the peers."
    lines = [
        [who, *(f"{good} of {all_}" for good, all_ in wins)]
        for who, wins in sorted(peers.items(), key=lambda item: item[0] in INSIDE)
    ]
    return (
        "How often T-Explainer's contributions are at least as good, over tables and models:\n\n"
        + table(["than", *(name for _, name, _ in COLUMNS)], lines)
    )


def figures(results: dict[str, Any]) -> list[Figure]:
    """Return the measures of the methods on the networks, table by table."""
    ran = [r for r in results.values() if "failed" not in r and r["model"] == "network"]
    if not ran:
        return []
    names = [result["table"] for result in ran]
    methods = [entry["who"] for entry in ran[0]["entries"] if entry["who"] != PRINTED]

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
