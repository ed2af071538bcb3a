"""How long MCIR-M takes, stage by stage, beside TreeSHAP and permutation importance on the same rows."""

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

WIDTHS, ROWS, BOOTSTRAPS = (20, 50, 100, 200, 400, 561), 2000, 50
#: Seconds at most with the largest number of features, by stage.
FLOORS = {"scoring": 0.05, "everything": 3.0}
_STAGES = ("ranks and screening", "Auto-Φ", "scoring", "everything")
LIGHT = "a quarter of the rows"
_PEERS = ("TreeSHAP", "permutation importance")


def measure(features: int, options: Options) -> dict[str, Any]:
    """Time every stage and peer on one set of rows, in one process."""
    rows, bootstraps = (300, 5) if options.quick else (ROWS, BOOTSTRAPS)
    peer_repeats = 1 if options.quick else 3
    arguments = (features, rows, bootstraps, options.repeats, peer_repeats, options.peers)
    try:
        python = Path(sys.executable)
        if options.peers:
            python = environments.interpreter("mcir")
        found: dict[str, Any] = environments.run(
            python, "mcir_speed", *(json.dumps(argument) for argument in arguments)
        )
    except environments.PeerError as error:
        return {"failed": str(error)}
    return found


def cases(options: Options) -> dict[str, Callable[[], Any]]:
    """Return one case for each number of features."""
    widths = WIDTHS[:2] if options.quick else WIDTHS
    return {f"MCIR-M, {k} features": partial(measure, k, options) for k in widths}


def section(results: dict[str, Any]) -> str:
    """Return the floors and the tables."""
    found = [result for result in results.values() if "failed" not in result]
    failed = [result["failed"] for result in results.values() if "failed" in result]
    if not found:
        return f"Not measured: {failed[0]}"
    last = found[-1]
    parts = [
        f"{last['rows']:,} rows, features in tens that share a latent factor, the outputs of one model: "
        "100 trees of depth 6 by XGBoost (without peers the target itself). The copula estimator, "
        f"Pearson's screen, {last['bootstraps']} resamples for the sizes 1, 3 and 5, which also give "
        "the intervals. Processor time of one core, the median of the repeats; on the wall in "
        "brackets.",
        _floors(last),
        "For the paper's tables of runtime (17, 29, 38). It reports 5.8 s for screening, calibration "
        "and scoring of 561 features and 2,000 rows, and 451 s in another of its tables, on a machine "
        "that is not known here.",
        _stages(found),
        "`everything` is one call of `mcir`; the stages are its parts, called one by one, and give the "
        f"same scores (largest difference {max(result['apart'] for result in found):.0e}).",
    ]
    if _entry(last, LIGHT):
        times = seconds(last, "everything") / seconds(last, LIGHT)
        parts.append(
            f"A light run, on {LIGHT}, takes {number(1e3 * seconds(last, LIGHT))} ms with "
            f"{last['features']} features, {number(times)} times less."
        )
    if any(_entry(result, _PEERS[0]) for result in found):
        parts += [
            _beside(found),
            "They answer different questions. TreeSHAP explains each row, from the trees themselves: "
            "here all rows, with the trees' own cover as the background. Permutation importance asks "
            "the model anew, five times a feature. MCIR-M sees rows and outputs alone, and its time "
            "does not depend on the model. Training is not in any of the times.",
        ]
    parts += [f"Not measured: {reason}" for reason in failed]
    return "\n\n".join(parts)


def _floors(last: dict[str, Any]) -> str:
    enough = last["features"] == WIDTHS[-1] and last["rows"] == ROWS
    lines = []
    for does, most in FLOORS.items():
        taken = seconds(last, does)
        met = "too few features" if not enough else "yes" if taken <= most else "**no**"
        name = f"seconds of {does}, {last['features']} features"
        lines.append([name, number(most), number(taken), met])
    return table(["floor", "at most", "measured", "met"], lines)


def _stages(found: list[dict[str, Any]]) -> str:
    lines = []
    for result in found:
        whole = _entry(result, "everything")
        assert whole is not None
        lines.append(
            [
                str(result["features"]),
                str(result["size"]),
                *(_both(result, does) for does in _STAGES),
                spread([processor for processor, _ in whole["seconds"]]),
            ]
        )
    head = ["features", "size chosen", *(f"{does}, ms" for does in _STAGES), "spread"]
    return table(head, lines)


def _beside(found: list[dict[str, Any]]) -> str:
    lines = []
    for result in found:
        ours = seconds(result, "everything")
        cells = [str(result["features"]), number(1e3 * ours)]
        for does in _PEERS:
            theirs = seconds(result, does)
            cells += [number(1e3 * theirs), f"{number(theirs / ours)} ×"]
        lines.append(cells)
    entries = [_entry(found[0], does) for does in _PEERS]
    names = [f"{entry['does']}, {entry['who']}, ms" for entry in entries if entry is not None]
    head = ["features", "MCIR-M, ms", names[0], "takes", names[1], "takes"]
    return table(head, lines)


def _entry(result: dict[str, Any], does: str) -> dict[str, Any] | None:
    return next((entry for entry in result["entries"] if entry["does"] == does), None)


def seconds(result: dict[str, Any], does: str, place: int = 0) -> float:
    """Return the median of what was measured: processor time, or with ``place=1`` on the wall."""
    entry = _entry(result, does)
    assert entry is not None
    return median(times[place] for times in entry["seconds"])


def _both(result: dict[str, Any], does: str) -> str:
    processor, wall = (1e3 * seconds(result, does, place) for place in (0, 1))
    return f"{number(processor)} ({number(wall)})"


def figures(results: dict[str, Any]) -> list[Figure]:
    """Return the times over the number of features."""
    found = [result for result in results.values() if "failed" not in result]
    if not found:
        return []
    widths = [result["features"] for result in found]
    series = {
        name: (widths, [seconds(result, does) for result in found])
        for name, does in (
            ("MCIR-M: scoring", "scoring"),
            ("MCIR-M: everything", "everything"),
            *((does, does) for does in _PEERS),
        )
        if all(_entry(result, does) for result in found)
    }
    panel = Panel(
        f"{found[-1]['rows']:,} rows", "features", "seconds", series, log_x=True, log_y=True
    )
    return [Figure("mcir_speed", "Seconds over the number of features", [panel])]


SUITE = Suite("mcir-speed", "Speed of MCIR-M", cases, section, figures=figures)
