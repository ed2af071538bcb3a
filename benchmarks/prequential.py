"""A model tested and then trained on real streams: which features lead over time, and what is told."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from attributary.schemas.attribution import WindowAttribution
from benchmarks import alert_rules, environments, prequential_data
from benchmarks.played import play
from benchmarks.prequential_data import ABOUT, BUNDLED, MADE, Labelled
from benchmarks.suite import Figure, Options, Panel, Suite, table

TOP = 3
OURS, PFI, SAGE = "attributary", "PFI", "SAGE"
METHODS = (OURS, PFI, SAGE)


def measure(name: str, options: Options) -> dict[str, Any]:
    """Test and train a model on a stream, and explain its outputs on the way."""
    about: dict[str, Any] = {"stream": name}
    try:
        known = None if name in BUNDLED else prequential_data.load(name, quick=options.quick)
        found = _beside(known) if options.peers else _alone(known)
    except ImportError as error:
        return {**about, "failed": f"a package is missing: {error}"}
    except environments.PeerError as error:
        return {**about, "failed": str(error)}
    X, outputs = found.pop("X"), found.pop("outputs")
    onset = None if known is None else known.onset
    strengths, told = explain(X, outputs, found["names"], found["window_rows"])
    return {**about, **found, "onset": onset, "rows": len(X), "strengths": strengths, **told}


def _beside(known: Labelled | None) -> dict[str, Any]:
    """Return what river's model says of the rows, and ixai of the model."""
    python = environments.interpreter("ixai")
    with tempfile.TemporaryDirectory() as folder:
        rows, written = Path(folder) / "rows.npz", Path(folder) / "outputs.npz"
        fields = {} if known is None else {**known._asdict(), "names": np.array(known.names)}
        np.savez(rows, **{key: value for key, value in fields.items() if value is not None})
        found: dict[str, Any] = environments.run(python, "prequential", rows, written)
        with np.load(written) as held:
            return {**found, "X": held["X"], "outputs": held["outputs"]}


def _alone(known: Labelled | None) -> dict[str, Any]:
    """Return the outputs of a linear model that is trained on every window after it was tested on it."""
    from sklearn.linear_model import SGDRegressor

    if known is None:
        raise environments.PeerError("the stream is bundled with a peer")
    model, rows = (
        SGDRegressor(random_state=0, eta0=0.01, learning_rate="constant"),
        known.window_rows,
    )
    outputs, errors = np.zeros(len(known.X)), []
    for first in range(0, len(known.X), rows):
        at = slice(first, first + rows)
        if first:
            outputs[at] = model.predict(known.X[at])
        else:  # not trained yet: a first pass gives it something to say
            outputs[at] = model.partial_fit(known.X[at], known.y[at]).predict(known.X[at])
        errors.append(float(np.abs(outputs[at] - known.y[at]).mean()))
        model.partial_fit(known.X[at], known.y[at])
    return {
        "names": known.names,
        "window_rows": rows,
        "error": errors[: len(known.X) // rows],
        "changes": [],
        "importances": {},
        "X": known.X,
        "outputs": outputs,
    }


def explain(
    X: Any, outputs: Any, names: Sequence[str], window_rows: int
) -> tuple[list[list[float]], dict[str, Any]]:
    """Return |2·CIR - 1| of every feature by window, and the windows in which each rule holds and fires."""
    strengths: dict[int, list[float]] = {}
    played = list(play(X, outputs, names, window_rows))
    for each in played:
        for message in each.messages:
            if isinstance(message, WindowAttribution):
                scores = {one.name: abs(2 * one.score - 1) for one in message.features}
                strengths[message.window.start] = [scores[name] for name in names]
    times, scrapes = [each.time for each in played], [each.scrape for each in played]
    told: dict[str, Any] = {"holds": {}, "fires": {}}
    for rule in alert_rules.load():
        found = alert_rules.judge(rule, times, scrapes)
        told["holds"][rule.short] = [k for k, some in enumerate(found.holds) if some]
        told["fires"][rule.short] = [k for k, some in enumerate(found.fires) if some]
    return [strengths[start] for start in sorted(strengths)], told


def cases(options: Options) -> dict[str, Callable[[], Any]]:
    """Return a case for each stream; the made one alone where there are no peers, or little time."""
    streams = tuple(ABOUT) if options.peers and not options.quick else (MADE,)
    return {f"prequential, {name}": partial(measure, name, options) for name in streams}


def importances(result: dict[str, Any]) -> dict[str, list[list[float]]]:
    """Return the importances of every method by window, as many windows as all have."""
    found = {OURS: result["strengths"], **result["importances"]}
    windows = min(len(each) for each in found.values())
    return {name: each[:windows] for name, each in found.items()}


def top(window: Sequence[float]) -> set[int]:
    """Return the columns that lead."""
    return set(sorted(range(len(window)), key=lambda j: -window[j])[:TOP])


def agreement(one: list[list[float]], other: list[list[float]]) -> tuple[float, float]:
    """Return the mean Jaccard index of the top columns, and the share of windows with the same first."""
    pairs = list(zip(one, other, strict=True))
    overlap = [len(top(a) & top(b)) / len(top(a) | top(b)) for a, b in pairs]
    same = [int(np.argmax(a)) == int(np.argmax(b)) for a, b in pairs]
    return float(np.mean(overlap)), float(np.mean(same))


def leads(windows: list[list[float]]) -> int:
    """Return how often another column came first than the window before."""
    first = [int(np.argmax(window)) for window in windows]
    return sum(a != b for a, b in pairwise(first))


def section(results: dict[str, Any]) -> str:
    """Return the streams, who agrees with whom, and what was told when."""
    ran = [result for result in results.values() if "failed" not in result]
    parts = [
        "A model predicts every row before it learns from it: river's Hoeffding adaptive tree "
        "(shuttle: its logistic regression, whose output is the log odds). attributary sees the rows "
        "and these outputs through ingest, merge and the gauges, ixai's incremental PFI and SAGE ask "
        "the model itself, at the same rows, with a smoothing of 0.001. Every window is played as a minute.",
        table(["stream", "what"], [[name, about] for name, about in ABOUT.items()], left=2),
    ]
    if ran:
        parts += [_agreements(ran), _told(ran)]
    parts += [
        f"{r['stream']}: not measured, {r['failed']}" for r in results.values() if "failed" in r
    ]
    return "\n\n".join(part for part in parts if part)


WHY = (
    "Where a rule holds in most windows its reference is why: the stream has no card with a baseline, "
    "so it is the first window, in which the model had learned nothing yet and, of a real stream, the "
    "season was another. Such a stream needs a baseline of training rows that hold a whole season, and "
    "a model that is trained all the time a new one now and then. Our windows stand alone, so that "
    "another feature comes first more easily than by ixai's smoothed importances."
)
PAIRS = ((OURS, PFI), (OURS, SAGE), (PFI, SAGE))


def _agreements(ran: list[dict[str, Any]]) -> str:
    lines, means = [], {pair: [] for pair in PAIRS}
    for result in ran:
        found = importances(result)
        cells = [result["stream"], str(len(found[OURS]))]
        for pair in PAIRS:
            if pair[1] in found and pair[0] in found:
                both = agreement(found[pair[0]], found[pair[1]])
                means[pair].append(both[0])
                cells.append(f"{both[0]:.2f}, {100 * both[1]:.0f} %")
            else:
                cells.append("–")
        cells += [str(leads(found[name])) if name in found else "–" for name in METHODS]
        lines.append(cells)
    head = ["stream", "windows", *(f"{a} and {b}" for a, b in PAIRS)]
    head += [f"changes of the first, {name}" for name in METHODS]
    said = ""
    if all(means.values()):
        ours = np.mean([*means[PAIRS[0]], *means[PAIRS[1]]])
        theirs = np.mean(means[PAIRS[2]])
        word = "more" if ours > theirs else "less" if ours < theirs else "as much"
        said = (
            f"Over the streams attributary agrees with ixai's two at {ours:.2f} in the mean, {word} "
            f"{'as' if word == 'as much' else 'than'} they agree with each other ({theirs:.2f}). They "
            "answer different questions: CIR says what moves along with the output in the rows of the "
            "window, correlated features with it; PFI and SAGE what the model loses without a feature, "
            "over about the last thousand rows."
        )
    return (
        f"Agreement on the first {TOP} features of a window (mean Jaccard index), and the share of "
        "windows in which both have the same first; and how often another feature came first "
        "than the window before.\n\n" + table(head, lines) + ("\n\n" + said if said else "")
    )


def _told(ran: list[dict[str, Any]]) -> str:
    lines = []
    for result in ran:
        windows = len(result["strengths"])
        cells = [result["stream"], f"{windows} of {result['window_rows']} rows"]
        for rule in ("RankFlip", "AttributionDrift", "InputDrift", "OutputDrift"):
            cells.append(f"{_windows(result['holds'][rule])}; {len(result['fires'][rule])}")
        cells.append(_windows(sorted(set(result["changes"]))) if result["importances"] else "–")
        lines.append(cells)
    head = ["stream", "windows", "RankFlip", "AttributionDrift", "InputDrift", "OutputDrift"]
    return (
        "Windows in which our rule's expression holds (in brackets the first), then those in which its "
        "alert fires, after its duration. RankFlip compares with sixty windows ago: shorter streams "
        "cannot have it. ADWIN: the windows in which river's detector finds that the model's error has "
        "changed; it needs the labels.\n\n"
        + table([*head, "ADWIN on the error"], lines)
        + "".join(_known(result) for result in ran)
        + f"\n\n{WHY}"
    )


def _known(result: dict[str, Any]) -> str:
    """Return how long a known change went untold."""
    onset = result["onset"]
    if onset is None or not result["importances"]:
        return ""
    held = [k for each in ("RankFlip", "AttributionDrift") for k in result["holds"][each]]
    ours, theirs = _after(held, onset), _after(result["changes"], onset)
    return (
        f"\n\nOf the known change of the stream *{result['stream']}* a rule on attributions says "
        f"something {ours}; ADWIN on the error, which needs labels, {theirs}."
    )


def _after(windows: Sequence[int], onset: int) -> str:
    later = [k - onset + 1 for k in windows if k >= onset]
    return f"at the end of window {min(later)} after it" if later else "never"


def _windows(found: Sequence[int]) -> str:
    return f"{len(found)} (window {found[0]})" if found else "0"


def figures(results: dict[str, Any]) -> list[Figure]:
    """Return the leading features over time by every method, a figure for each stream."""
    drawn = []
    for result in results.values():
        if "failed" in result or not result["importances"]:
            continue
        found = importances(result)
        strongest = np.mean([_shares(windows).mean(axis=0) for windows in found.values()], axis=0)
        columns = np.argsort(-strongest, kind="stable")[:4].tolist()
        panels = []
        for name, windows in found.items():
            shares = _shares(windows)
            x = list(range(len(shares)))
            series: dict[str, tuple[Sequence[Any], Sequence[float | None]]] = {
                result["names"][j]: (x, shares[:, j].tolist()) for j in columns
            }
            marks = [] if result["onset"] is None else [result["onset"]]
            series |= {"change": ([marks[0] - 0.5] * 2, [0.0, 1.0])} if marks else {}
            panels.append(Panel(f"{name}, {result['stream']}", "window", "share", series))
        drawn.append(
            Figure(
                f"prequential-{result['stream']}",
                f"Shares of the leading features of the stream {result['stream']} over time, by method",
                panels,
            )
        )
    return drawn


def _shares(windows: list[list[float]]) -> Any:
    """Return importances (windows, d) as shares of their sum; below 0 counts as 0."""
    values = np.maximum(np.array(windows), 0.0)
    total = values.sum(axis=1, keepdims=True)
    return np.divide(values, total, out=np.zeros_like(values), where=total > 0)


SUITE = Suite(
    "prequential",
    "Leading features over time, tested then trained",
    cases,
    section,
    page="results",
    figures=figures,
)
