"""OrdShap: how often the 95 % intervals of VI and PI hold the truth, from the smallest budget on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from attributary.workers.explainers.ordshap import ordshap
from benchmarks import order_games
from benchmarks.suite import Options, Suite, table

#: Permutations asked for (1: the least there is), and how often.
BUDGETS = {1: 300, 32: 300, 64: 200, 256: 60}
LONG = {
    "recurrent, 20 units": (20, 120),
    "recurrent, 50 units": (50, 60),
    "recurrent, 100 units": (100, 40),
}
#: Errors at which the early stop is tried: those of budgets between.
TARGETS = {"order": 0.006, "recurrent": 0.015}
GAMES = ("hats", "order", "recurrent", "no structure")


def measure(name: str, options: Options) -> dict[str, Any]:
    """Return the coverage at every budget on a game of 8 units (6 to try), against exact values."""
    units = 6 if options.quick else 8
    game = order_games.hats if name == "hats" else _made(name)(units)
    true = np.array(order_games.truth(game, units))
    rows = []
    for budget, repetitions in list(BUDGETS.items())[: 2 if options.quick else None]:
        runs = _runs(game, units, 2 if options.quick else repetitions, n_permutations=budget)
        rows.append({"asked": f"{budget}", **_summary(runs, true)})
    if name in TARGETS and not options.quick:
        runs = _runs(game, units, 100, target_stderr=TARGETS[name], n_permutations=2_000)
        rows.append({"asked": f"target_stderr={TARGETS[name]:g}", **_summary(runs, true)})
    return {"game": f"{name}, {units} units", "rows": rows}


def measure_long(name: str, options: Options) -> dict[str, Any]:
    """Return the same at the least budget for more units; the truth is the mean of all runs, which are
    unbiased."""
    units, repetitions = LONG[name]
    game = order_games.recurrent(units)
    runs = _runs(game, units, 2 if options.quick else repetitions, n_permutations=1)
    return {"game": name, "rows": [{"asked": "1", **_summary(runs, runs[1].mean(axis=0))}]}


def _made(name: str) -> Callable[[int], order_games.Game]:
    made = {
        "order": order_games.order,
        "recurrent": order_games.recurrent,
        "no structure": order_games.no_structure,
    }
    return made[name]


def _runs(game: Any, units: int, repetitions: int, **asked: Any) -> tuple[Any, Any, Any]:
    """Return calls (r,), estimates and standard errors (r, 2, units)."""
    calls, found, errors = [], [], []
    for seed in range(repetitions):
        one = ordshap(
            game,
            np.arange(1, units + 1),
            mask=0,
            batch_size=4_096,
            rng=np.random.default_rng([seed, 95]),
            **asked,
        )
        calls.append(one.model_calls)
        found.append([one.value_importance, one.position_importance])
        errors.append([one.value_stderr, one.position_stderr])
    return np.array(calls), np.array(found), np.array(errors)


def _summary(runs: tuple[Any, Any, Any], true: Any) -> dict[str, Any]:
    calls, found, errors = runs
    held = (np.abs(found - true) <= 1.96 * errors + 1e-12).mean(axis=2)
    spread = ((found - true) ** 2).mean(axis=(0, 2))
    return {
        "calls": float(calls.mean()),
        "repetitions": len(calls),
        "held": held.mean(axis=0).tolist(),
        # Values of one run share its calls: runs are what is independent.
        "error": (held.std(axis=0, ddof=1) / np.sqrt(len(calls))).tolist(),
        "stderr": np.sqrt((errors**2).mean(axis=(0, 2)) / np.where(spread > 0, spread, 1)).tolist(),
    }


def cases(options: Options) -> dict[str, Callable[[], Any]]:
    """Return one case for each game."""
    found: dict[str, Callable[[], Any]] = {
        f"OrdShap intervals, {name}": partial(measure, name, options)
        for name in (GAMES[1:2] if options.quick else GAMES)
    }
    for name in () if options.quick else LONG:
        found[f"OrdShap intervals, {name}"] = partial(measure_long, name, options)
    return found


def section(results: dict[str, Any]) -> str:
    """Return the table, and its extremes."""
    lines, shares = [], []
    for result in results.values():
        for row in result["rows"]:
            shares += row["held"]
            lines.append(
                [
                    result["game"],
                    row["asked"],
                    f"{row['calls']:,.0f}",
                    f"{row['repetitions']}",
                    *[
                        f"{100 * held:.1f} ± {100 * error:.1f} %"
                        for held, error in zip(row["held"], row["error"], strict=True)
                    ],
                    *[f"{ratio:.2f}" for ratio in row["stderr"]],
                ]
            )
    return "\n\n".join(
        [
            "Share of the values whose exact importance lies within 1.96 of the reported standard errors, "
            "± its own standard error over repetitions, on the games of the next section. "
            '*Asked for* is `n_permutations` of `method="permutation"`; 1 buys the least there is: '
            "3 blocks of every other shift (of all for 6 units and fewer), or, for more than 64 units, 8 "
            "blocks of 8. For more than 8 units the truth is the mean of all runs. *Error stated* is the "
            "root mean square of the standard error, in units of the real error; it is above 1 where few "
            "blocks, by Student's t, need wide intervals.",
            table(
                [
                    "game",
                    "asked for",
                    "calls",
                    "repetitions",
                    "VI held",
                    "PI held",
                    "error stated, VI",
                    "error stated, PI",
                ],
                lines,
                left=2,
            ),
            f"The least share is {100 * min(shares):.1f} %, the largest {100 * max(shares):.1f} %.",
        ]
    )


SUITE = Suite(
    "ordshap-intervals", "OrdShap: how often intervals hold", cases, section, page="results"
)
