"""MCIR-M's estimators and the switch between them, against information that is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from attributary.workers.explainers.estimators import Estimator, compatible
from attributary.workers.explainers.mcir import coefficient, mcir
from benchmarks.mcir_distributions import Known, known
from benchmarks.suite import Options, Suite, table

#: Rows {n: repetitions}, and the halves whose spread the switch goes by.
SIZES = {500: 20, 2000: 8}
HALVES = 10
NAMES: tuple[Estimator, ...] = ("copula", "knn", "plugin", "mixed")
NEIGHBOURS = [[1], [0]]
#: A difference of error that is not worth a word.
_CLOSE = 0.005


def measure(name: str, options: Options) -> dict[str, Any]:
    """Return the errors of every estimator and of the switch on one distribution, by rows."""
    case = known()[name]
    unique, joint = np.array(case.unique), np.array([case.joint] * 2)
    exact = np.array([coefficient(unique, joint), unique, joint])
    sizes, halves = ({200: 2}, 3) if options.quick else (SIZES, HALVES)
    return {
        "about": case.about,
        "exact": exact.tolist(),
        "fitting": list(compatible(case.kinds)),
        "halves": halves,
        "rows": {str(n): _at(case, exact, n, some, halves) for n, some in sizes.items()},
    }


def _at(case: Known, exact: Any, n: int, repetitions: int, halves: int) -> dict[str, Any]:
    fitting = compatible(case.kinds)
    # Nearest neighbours that count ties take any columns: measured where the switch has no use of them.
    fixed = [*fitting, *(() if "mixed" in fitting else ("mixed",))]
    errors: dict[str, list[Any]] = {name: [] for name in [*fixed, "switch"]}
    chosen: Counter[str] = Counter()
    for seed in range(repetitions):
        X, Q = case.draw(n, np.random.default_rng([seed, n]))
        for name in [*fixed, "switch"]:
            found = mcir(
                X,
                Q,
                kinds=case.kinds,
                neighbourhoods=NEIGHBOURS,
                estimator=name,  # type: ignore[arg-type]
                bootstraps=halves if name == "switch" else 0,
                rng=seed,
            )
            errors[name].append(np.array([found.score, found.unique, found.joint]) - exact)
            if name == "switch":
                chosen.update(found.estimator)
    summaries = {name: _summary(np.array(error)) for name, error in errors.items()}
    return {"repetitions": repetitions, "estimators": summaries, "chosen": dict(chosen)}


def _summary(error: Any) -> dict[str, Any]:
    """Return bias and spread of C, U and J of each feature, and the error of C over both."""
    square = (error[:, 0] ** 2).mean(axis=1)
    root = float(np.sqrt(square.mean()))
    doubt = float(square.std(ddof=1)) / np.sqrt(square.size) / (2 * root) if root else 0.0
    return {
        "bias": error.mean(axis=0).tolist(),
        "spread": error.std(axis=0, ddof=1).tolist(),
        "rmse": root,
        "rmse_error": doubt,
    }


def cases(options: Options) -> dict[str, Callable[[], Any]]:
    """Return one case for each distribution."""
    return {f"MCIR-M estimators, {name}": partial(measure, name, options) for name in known()}


def section(results: dict[str, Any]) -> str:
    """Return the tables of C for every size, and of U and J for the last."""
    found = {name.split(", ", 1)[1]: result for name, result in results.items()}
    sizes = list(next(iter(found.values()))["rows"])
    last = sizes[-1]
    halves = next(iter(found.values()))["halves"]
    parts = [
        "For the paper's tables of estimators (15, 34 to 37), with distributions of our own, because "
        "its text could not be had: its numbers cannot stand beside these. Two features, each the "
        "other's neighbourhood; E is standard normal. `switch` takes the smallest standard error over "
        f"{halves} random halves of the rows (50 are the default).",
        _exact(found),
    ]
    for n in sizes:
        some = next(iter(found.values()))["rows"][n]["repetitions"]
        parts += [
            f"Root mean squared error of C over both features, ± its standard error, {int(n):,} rows, "
            f"{some} repetitions; in bold the least of those that the switch may take, in brackets what "
            "it may not take:",
            _scores(found, n),
            _verdict(found, n),
        ]
    parts += [
        f"What C is made of, {int(last):,} rows: error of U₁ and of J in nats, mean ± standard "
        "deviation:",
        _parts(found, last),
        "**Beside the paper.** Of its tables no more is known than that its switch goes by bootstrap "
        "error. So does this one, with random halves in place of resamples, because ties mislead "
        "nearest neighbours. A standard error does not see a bias: a misfit of the copula that moves C "
        "little from half to half goes unnoticed, however many the rows.",
    ]
    return "\n\n".join(parts)


def _exact(found: dict[str, Any]) -> str:
    lines = []
    for name, result in found.items():
        (first, second), (own, other), (joint, _) = result["exact"]
        cells = [f"{abs(value):.4f}" for value in (first, second, own, other, joint)]
        lines.append([name, result["about"], *cells])
    return table(["distribution", "what", "C₁", "C₂", "U₁", "U₂", "J"], lines, left=2)


def _scores(found: dict[str, Any], n: str) -> str:
    lines = []
    for name, result in found.items():
        at = result["rows"][n]
        least = min(at["estimators"][one]["rmse"] for one in result["fitting"])
        cells = []
        for one in (*NAMES, "switch"):
            entry = at["estimators"].get(one)
            if entry is None:
                cells.append("")
                continue
            text = f"{entry['rmse']:.3f} ± {entry['rmse_error']:.3f}"
            if one in result["fitting"]:
                text = f"**{text}**" if entry["rmse"] == least else text
            elif one != "switch":
                text = f"({text})"
            cells.append(text)
        lines.append([name, *cells, _chosen(at["chosen"])])
    return table(["distribution", *NAMES, "switch", "switch took"], lines)


def _chosen(chosen: dict[str, int]) -> str:
    total = sum(chosen.values())
    ordered = sorted(chosen.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {100 * count / total:.0f} %" for name, count in ordered)


def worse_than_best(found: dict[str, Any], n: str) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return where the switch has a choice, and where it is worse than the best that it could take: the
    distribution, its error, the best one and its error."""
    choice, worse = [], []
    for name, result in found.items():
        if len(result["fitting"]) < 2:
            continue
        choice.append(name)
        at = result["rows"][n]["estimators"]
        best = min(result["fitting"], key=lambda one: at[one]["rmse"])
        switch, least = at["switch"], at[best]
        doubt = np.hypot(switch["rmse_error"], least["rmse_error"])
        if switch["rmse"] - least["rmse"] > max(2 * doubt, _CLOSE):
            worse.append((name, f"{switch['rmse']:.3f}", best, f"{least['rmse']:.3f}"))
    return choice, worse


def _verdict(found: dict[str, Any], n: str) -> str:
    choice, worse = worse_than_best(found, n)
    good = len(choice) - len(worse)
    text = f"With {int(n):,} rows the switch's error is within two standard errors, or {_CLOSE}, of the "
    text += f"best one's in {good} of the {len(choice)} distributions that leave a choice"
    where = [f"{name} ({ours}, by {best} {least})" for name, ours, best, least in worse]
    return text + (f"; it is worse on {_listed(where)}." if where else ".")


def _listed(items: Sequence[str]) -> str:
    return ", ".join(items[:-1]) + " and " + items[-1] if len(items) > 1 else items[0]


def _parts(found: dict[str, Any], n: str) -> str:
    lines = []
    for name, result in found.items():
        at = result["rows"][n]["estimators"]
        cells = []
        for what in (1, 2):
            for one in NAMES:
                entry = at.get(one)
                if entry is None:
                    cells.append("")
                    continue
                cells.append(f"{entry['bias'][what][0]:+.3f} ± {entry['spread'][what][0]:.3f}")
        lines.append([name, *cells])
    head = ["distribution", *(f"{what}, {one}" for what in ("U₁", "J") for one in NAMES)]
    return table(head, lines)


SUITE = Suite(
    "mcir-estimators",
    "MCIR-M: estimators against known information",
    cases,
    section,
    page="results",
)
