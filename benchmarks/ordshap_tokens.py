"""The OrdShap paper's synthetic experiment: which of seven tokens is it, told by its importances alone."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from attributary.workers.explainers.ordshap import ordshap
from benchmarks import environments
from benchmarks.peers.order_tokens import DRIFT, LENGTH, MODELS, TOKENS, WORTH
from benchmarks.suite import Figure, Options, Panel, Suite, table

SEQUENCES = 200
PERMUTATIONS = 160


def measure(model: str, options: Options) -> dict[str, Any]:
    """Return, per token, means and spreads of the importances, and how often they give it away."""
    count = 10 if options.quick else SEQUENCES
    rng = np.random.default_rng(6)
    sequences = rng.integers(1, len(TOKENS) + 1, size=(count, LENGTH))
    found = [
        ordshap(MODELS[model], x, mask=0, n_permutations=PERMUTATIONS, batch_size=4_096)
        for x in sequences
    ]
    values = np.array([[r.value_importance, r.position_importance] for r in found])
    result: dict[str, Any] = {
        "model": model,
        "sequences": count,
        "calls": float(np.mean([r.model_calls for r in found])),
        "ordshap": _summary(sequences, np.swapaxes(values, 1, 2)),
    }
    if options.peers:
        try:
            python = environments.interpreter("explainers")
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "sequences.npy"
                np.save(path, sequences)
                shap = environments.run(python, "order_tokens", path, model)
            result["shap"] = _summary(sequences, np.array(shap)[..., None])
        except environments.PeerError as error:
            result["failed"] = str(error)
    return result


def _summary(sequences: Any, values: Any) -> dict[str, Any]:
    """Return means and spreads (7, k) of ``values`` (n, d, k) by token, and the shares recognised.

    A token of one half of the sequences is taken for the one whose mean in the other half is nearest,
    in units of the spread within tokens; means of the test half are never used.
    """
    half = len(sequences) // 2
    train, test = sequences[:half].ravel(), sequences[half:].ravel()
    known = values[:half].reshape(len(train), -1)
    asked = values[half:].reshape(len(test), -1)
    names = np.arange(1, len(TOKENS) + 1)
    means = np.array([known[train == name].mean(axis=0) for name in names])
    within = np.sqrt(((known - means[train - 1]) ** 2).mean(axis=0)) + 1e-9
    distance = (((asked[:, None] - means) / within) ** 2).sum(axis=2)
    guessed = names[distance.argmin(axis=1)]
    flat, every = values.reshape(-1, values.shape[-1]), sequences.ravel()
    return {
        "mean": [flat[every == name].mean(axis=0).tolist() for name in names],
        "spread": [flat[every == name].std(axis=0).tolist() for name in names],
        "recognised": [float((guessed[test == name] == name).mean()) for name in names],
    }


def cases(options: Options) -> dict[str, Callable[[], Any]]:
    """Return one case for each model."""
    return {f"OrdShap tokens, {name}": partial(measure, name, options) for name in MODELS}


def section(results: dict[str, Any]) -> str:
    """Return the experiment, and one table for each model."""
    count = max(result["sequences"] for result in results.values())
    parts = [
        f"{count} sequences of {LENGTH} tokens, drawn from seven. A token adds its worth and its drift "
        "times (place - mean place); *linear* is the sum, *sigmoid* the sum through a sigmoid. The "
        "coefficients are ours. A token's importances give it away where they are nearer to the "
        "means of that token in the other half of the sequences than to any other's (chance: 14 %). "
        "OrdShap gives two numbers, SHAP Kernel (all coalitions, in the order as it stands) one."
    ]
    for result in results.values():
        head = f"### {result['model']} model\n\n{result['calls']:,.0f} calls a sequence."
        if "failed" in result:
            head += f" SHAP: {result['failed']}."
        parts.append(f"{head}\n\n{_table(result)}")
    return "\n\n".join(parts)


def _table(result: dict[str, Any]) -> str:
    head = ["token", "worth", "drift", "VI", "PI", "told by VI and PI"]
    peers = "shap" in result
    if peers:
        head += ["SHAP Kernel", "told by SHAP"]
    lines = []
    for k, token in enumerate(TOKENS):
        ours = result["ordshap"]
        cells = [token, f"{WORTH[k + 1]:g}", f"{DRIFT[k + 1]:g}"]
        cells += [
            f"{_shown(mean)} ± {spread:.3f}"
            for mean, spread in zip(ours["mean"][k], ours["spread"][k], strict=True)
        ]
        cells.append(f"{100 * ours['recognised'][k]:.0f} %")
        if peers:
            shap = result["shap"]
            cells.append(f"{_shown(shap['mean'][k][0])} ± {shap['spread'][k][0]:.3f}")
            cells.append(f"{100 * shap['recognised'][k]:.0f} %")
        lines.append(cells)
    return table(head, lines)


def _shown(value: float) -> str:
    return f"{round(value, 3) + 0.0:.3f}"


def figures(results: dict[str, Any]) -> list[Figure]:
    """Return one picture: the share of tokens told apart, a panel for each model."""
    who = {"ordshap": "OrdShap, VI and PI", "shap": "SHAP Kernel"}
    return [
        Figure(
            name="ordshap-tokens",
            alt="Share of tokens told by their importances: bars per token, OrdShap and SHAP Kernel.",
            panels=[
                Panel(
                    title=f"{result['model']} model",
                    x="token",
                    y="share told",
                    kind="bars",
                    series={
                        label: (list(TOKENS), result[key]["recognised"])
                        for key, label in who.items()
                        if key in result
                    },
                )
                for result in results.values()
            ],
        )
    ]


SUITE = Suite(
    "ordshap-tokens",
    "OrdShap: value and position told apart",
    cases,
    section,
    page="results",
    figures=figures,
)
