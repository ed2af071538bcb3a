"""How long 100 explanations of a 16-feature network take, beside shap and captum."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import environments
from benchmarks.suite import Figure, Options, Panel, Suite, number, spread, table

ROWS, BACKGROUNDS = 100, (1, 100)
#: How many times as fast as KernelExplainer, by rows of the background.
FLOORS = {1: 10.0, 100: 100.0}


def measure(options: Options) -> dict[str, Any]:
    """Time every explainer on the same network and rows, in one process."""
    rows = 5 if options.quick else ROWS
    backgrounds = BACKGROUNDS[:1] if options.quick else BACKGROUNDS
    arguments = (rows, options.repeats, list(backgrounds), options.peers)
    try:
        python = Path(sys.executable)
        if options.peers:
            python = environments.interpreter("explainers")
        found: dict[str, Any] = environments.run(
            python, "explain_speed", *(json.dumps(argument) for argument in arguments)
        )
    except environments.PeerError as error:
        return {"failed": str(error)}
    return found


def cases(options: Options) -> dict[str, Callable[[], Any]]:
    """Return the one case."""
    return {f"{ROWS} explanations of a network": partial(measure, options)}


def times(result: dict[str, Any]) -> dict[tuple[str, str, int], list[float]]:
    """Return the seconds of every (library, explainer, background), our two turns together."""
    found: dict[tuple[str, str, int], list[float]] = {}
    for entry in result["entries"]:
        key = (entry["who"], entry["does"], entry["background"])
        found.setdefault(key, []).extend(entry["seconds"])
    return found


def section(results: dict[str, Any]) -> str:
    """Return the floors and the table."""
    (result,) = results.values()
    if "failed" in result:
        return f"Not measured: {result['failed']}"
    found = times(result)
    own = {size: median(t) for (who, _, size), t in found.items() if who == "attributary"}
    floors, lines = [], []
    for (who, does, size), taken in found.items():
        each = median(taken)
        ratio = each / own[size]
        lines.append(
            [
                who,
                does,
                str(size),
                number(1e3 * each),
                number(1e3 * each / result["rows"]),
                spread(taken) if len(taken) > 1 else "once",
                "" if who == "attributary" else f"{number(ratio)} ×",
            ]
        )
        if does == "KernelExplainer":
            met = (
                ("yes" if ratio >= FLOORS[size] else "**no**")
                if result["rows"] == ROWS
                else "too few rows"
            )
            what = f"times as fast as shap's KernelExplainer, background of {size}"
            floors.append([what, number(FLOORS[size]), number(ratio), met])
    head = [
        "library",
        "explainer",
        "background",
        "ms",
        "ms a row",
        "spread",
        "T-Explainer is faster by",
    ]
    parts = [
        f"{result['rows']} rows in one call, a tanh network 16-64-64-1 in torch, float32. All but captum get "
        "it as a callable. Default budgets: KernelExplainer 2,080 coalitions of every row of the "
        "background, PermutationExplainer at most 500, Integrated Gradients 50 steps; "
        "captum's baseline is zero. T-Explainer finds out the model's precision and that it has slopes in "
        f"the same call: {result['model_rows']:,} rows evaluated with a background of "
        f"{max(own)}. Processor time on one core.",
        table(["floor", "at least", "measured", "met"], floors) if floors else "Without peers.",
        table(head, lines, left=2),
    ]
    if "worst" in result:
        parts.append(
            f"Largest difference of its slopes to automatic differentiation: {result['worst']:.1e}. "
            "The explainers answer different questions: Shapley values average over coalitions, a "
            "slope is local. Integrated Gradients needs the network itself and is the only one whose "
            "time is near; with a `gradient` of its own T-Explainer needs one backward pass."
        )
    return "\n\n".join(parts)


def figures(results: dict[str, Any]) -> list[Figure]:
    """Return the times as bars."""
    (result,) = results.values()
    if "failed" in result:
        return []
    found = times(result)
    names = list(dict.fromkeys(f"{does}" for _, does, _ in found))
    sizes = sorted({size for _, _, size in found})
    series: dict[str, tuple[list[Any], list[float | None]]] = {}
    for size in sizes:
        taken: list[float | None] = []
        for name in names:
            each = [median(t) for (_, does, s), t in found.items() if does == name and s == size]
            taken.append(1e3 * each[0] / result["rows"] if each else None)
        series[f"background of {size}"] = (names, taken)
    panel = Panel(
        "100 explanations of a 16-feature network", "", "ms a row", series, "bars", log_y=True
    )
    return [Figure("speed", "Milliseconds a row of every explainer, for both backgrounds", [panel])]


SUITE = Suite("speed", "Speed of explanations", cases, section, page="results", figures=figures)
