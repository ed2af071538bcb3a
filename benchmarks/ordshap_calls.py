"""OrdShap: error against model calls, beside the paper's two estimators; intervals that hold the truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from attributary.workers.explainers.arrangement import Arrangement
from attributary.workers.explainers.evaluation import Evaluator
from attributary.workers.explainers.ordshap import ordshap
from benchmarks import order_games
from benchmarks.suite import Figure, Options, Panel, Suite, table

REPETITIONS = 100
PERMUTATIONS = (24, 32, 64, 128, 256, 512)
CALLS = (250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000)
OURS, SAMPLING, SQUARES = "ours", "the paper's sampling", "the paper's least squares"
GAMES = {
    "hats": "four hats count 3 each, and a pair of gloves 2, only after a bag",
    "order": "tanh of values, places and who comes before whom, random weights",
    "recurrent": "recurrent network of six tanh units, random weights",
    "transformer": "one-layer transformer trained on a score that hangs on order, d = 7",
    "no structure": "a wave over a random sum: the worst case",
}


def game(name: str, quick: bool) -> tuple[order_games.Game, int, float | None]:
    """Return the game, its number of units, and the R² of a trained model."""
    d = 6 if quick else 8
    if name == "hats":
        return order_games.hats, 8, None
    if name == "transformer":
        d = 5 if quick else 7
        model, fit = order_games.small_transformer(d, 30 if quick else 1_500)
        return order_games.tabled(model, d), d, fit
    made = {
        "order": order_games.order,
        "recurrent": order_games.recurrent,
        "no structure": order_games.no_structure,
    }
    return made[name](d), d, None


def paper_sampling(model: order_games.Game, d: int, calls: int, rng: Any) -> tuple[Any, int]:
    """Return (VI, PI) by the paper's sampling, corrected, and its distinct calls.

    For each permutation and each unit one coalition of uniform size among the others gives one
    marginal; γ_iℓ is their mean over the permutations that put i at ℓ (the paper divides by all).
    """
    count = max(1, calls // (2 * d))
    evaluate = Evaluator(model, Arrangement(np.arange(1, d + 1), 0), 4_096)
    order = np.repeat(rng.permuted(np.tile(np.arange(d), (count, 1)), axis=1), d, axis=0)
    unit = np.tile(np.arange(d), count)
    rank = rng.permuted(np.tile(np.arange(d), (len(unit), 1)), axis=1)
    own = rank[np.arange(len(unit)), unit][:, None]
    at = np.take_along_axis(rank, order, axis=1)
    marginal = evaluate(order, at <= own) - evaluate(order, at < own)
    cell = unit * d + np.argmax(order == unit[:, None], axis=1)
    visits = np.bincount(cell, minlength=d * d)
    gamma = np.bincount(cell, marginal, d * d) / np.maximum(visits, 1)
    gamma = gamma.reshape(d, d)
    centred = np.arange(d) - (d - 1) / 2
    return np.array([gamma.mean(axis=1), gamma @ centred / (centred @ centred)]), evaluate.calls


def measure(name: str, options: Options) -> dict[str, Any]:
    """Return root mean squared errors of VI and PI by calls, of every estimator on one game."""
    model, d, fit = game(name, options.quick)
    true = np.array(order_games.truth(model, d))
    repetitions = 3 if options.quick else REPETITIONS
    x = np.arange(1, d + 1)

    def ours(permutations: int, rng: Any) -> tuple[Any, int, Any]:
        found = ordshap(model, x, mask=0, n_permutations=permutations, batch_size=4_096, rng=rng)
        both = np.array([found.value_importance, found.position_importance])
        return both, found.model_calls, np.array([found.value_stderr, found.position_stderr])

    def squares(calls: int, rng: Any) -> tuple[Any, int, Any]:
        found = ordshap(
            model,
            x,
            mask=0,
            method="least_squares",
            n_permutations=calls // 5,
            n_subsets=calls - calls // 5,
            batch_size=4_096,
            rng=rng,
        )
        both = np.array([found.value_importance, found.position_importance])
        return both, found.model_calls, np.array([found.value_stderr, found.position_stderr])

    def sampled(calls: int, rng: Any) -> tuple[Any, int, Any]:
        both, used = paper_sampling(model, d, calls, rng)
        return both, used, np.full_like(both, np.nan)

    budgets = CALLS[:2] if options.quick else CALLS
    lines: dict[str, Any] = {}
    for who, estimator, sizes in (
        (OURS, ours, PERMUTATIONS[:2] if options.quick else PERMUTATIONS),
        (SAMPLING, sampled, budgets),
        (SQUARES, squares, budgets),
    ):
        lines[who] = [_at(estimator, size, true, repetitions) for size in sizes]
    return {
        "game": name,
        "units": d,
        "fit": fit,
        "repetitions": repetitions,
        "spread": true.std(axis=1).tolist(),
        "lines": lines,
    }


def _at(estimator: Any, size: int, true: Any, repetitions: int) -> dict[str, Any]:
    """Return errors, coverage and bias of one estimator at one budget."""
    errors, calls, covered = [], [], []
    for seed in range(repetitions):
        both, used, stderr = estimator(size, np.random.default_rng([seed, size]))
        errors.append(both - true)
        calls.append(used)
        covered.append(np.abs(both - true) <= 1.96 * stderr + 1e-12)
    error = np.array(errors)
    return {
        "calls": float(np.mean(calls)),
        "error": np.sqrt((error**2).mean(axis=(0, 2))).tolist(),
        "bias": np.sqrt((error.mean(axis=0) ** 2).mean(axis=1)).tolist(),
        "covered": np.mean(covered, axis=(0, 2)).tolist(),
    }


def calls_for(line: Sequence[dict[str, Any]], which: int, error: float) -> float | None:
    """Return the calls at which a line reaches ``error``, None where it does not."""
    logs = np.log([[entry["calls"], entry["error"][which]] for entry in line])
    logs[:, 1] = np.minimum.accumulate(logs[:, 1])
    if np.log(error) < logs[-1, 1]:
        return None
    # From the end: the errors fall.
    return float(np.exp(np.interp(np.log(error), logs[::-1, 1], logs[::-1, 0])))


def cases(options: Options) -> dict[str, Callable[[], Any]]:
    """Return one case for each game."""
    names = list(GAMES)[:2] if options.quick else list(GAMES)
    return {f"OrdShap error by calls, {name}": partial(measure, name, options) for name in names}


def section(results: dict[str, Any]) -> str:
    """Return what each budget gives, and how many of our calls a peer needs."""
    repetitions = max(result["repetitions"] for result in results.values())
    parts = [
        "Root mean squared error over units and "
        f"{repetitions} seeded repetitions against exact values; calls are distinct inputs, for every "
        'estimator. *Ours*: `method="permutation"`. *The paper\'s sampling*: one marginal per unit '
        "and permutation, with the division corrected. *The paper's least squares*: corrected, a "
        "fifth of its calls for whole sequences; its PI has a limit of its own wherever the game is "
        "not additive.",
        table(["game", "what"], [[name, GAMES[name]] for name in _names(results)], left=2),
        "Times as many calls as ours for the error that ours has (a line that ends before is marked "
        "with >, a bias that it never gets below with ∞):",
        _ratios(results),
        "Ours, with the share of 95 % intervals that hold the truth:",
        _own(results),
    ]
    fits = [r for r in results.values() if r["fit"] is not None]
    parts += [f"The transformer's R² on held-out sequences: {r['fit']:.3f}." for r in fits]
    return "\n\n".join(parts)


def _names(results: dict[str, Any]) -> list[str]:
    return [result["game"] for result in results.values()]


def _ratios(results: dict[str, Any]) -> str:
    head = ["game", "our calls"]
    head += [f"{who}, {what}" for what in ("VI", "PI") for who in (SAMPLING, SQUARES)]
    lines = []
    for result in results.values():
        for entry in result["lines"][OURS]:
            cells = [result["game"], f"{entry['calls']:,.0f}"]
            for which in range(2):
                for who in (SAMPLING, SQUARES):
                    cells.append(_ratio(who, result["lines"][who], which, entry))
            lines.append(cells)
    return table(head, lines)


def _ratio(who: str, line: list[dict[str, Any]], which: int, ours: dict[str, Any]) -> str:
    error, last = ours["error"][which], line[-1]
    needed = calls_for(line, which, error)
    if needed is not None:
        return f"{needed / ours['calls']:.1f} ×"
    # Its limit is another number: the bias alone is above our error.
    if who == SQUARES and last["bias"][which] > max(error, 0.7 * last["error"][which]):
        return "∞"
    return f"> {last['calls'] / ours['calls']:.0f} ×"


def _own(results: dict[str, Any]) -> str:
    lines = [
        [
            result["game"],
            f"{entry['calls']:,.0f}",
            *[f"{error:.2g}" for error in entry["error"]],
            *[f"{100 * share:.1f} %" for share in entry["covered"]],
        ]
        for result in results.values()
        for entry in result["lines"][OURS]
    ]
    return table(["game", "calls", "error VI", "error PI", "VI held", "PI held"], lines)


def figures(results: dict[str, Any]) -> list[Figure]:
    """Return one picture for each game: VI on the left, PI on the right."""
    return [
        Figure(
            name="ordshap-calls-" + result["game"].replace(" ", "-"),
            alt=f"Error against model calls on the game {result['game']!r}: a line an estimator.",
            panels=[
                Panel(
                    title=f"{result['game']}: {what} importance",
                    x="model calls",
                    y="root mean squared error",
                    log_x=True,
                    log_y=True,
                    series={
                        who: (
                            [entry["calls"] for entry in line],
                            [entry["error"][which] for entry in line],
                        )
                        for who, line in result["lines"].items()
                    },
                )
                for which, what in enumerate(("value", "position"))
            ],
        )
        for result in results.values()
    ]


SUITE = Suite(
    "ordshap-calls",
    "OrdShap: error for calls",
    cases,
    section,
    page="results",
    figures=figures,
)
