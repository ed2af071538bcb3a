"""How long a change of an input, a model or its output goes untold, and how often there is none."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import alert_rules, drift_streams, environments
from benchmarks.drift_streams import CONCEPT, INPUT, KINDS, NULL, WINDOW_ROWS, DriftStream
from benchmarks.played import play
from benchmarks.suite import Figure, Options, Panel, Suite, table

SEEDS = (0, 1)
#: Windows before the change in which an alarm is false.
WATCHED = 16
#: Peers that take long: on the first seed alone.
SLOW = ("evidently", "whylogs", "ixai")
ALERTS, FIRST = "attributary, alerts", "attributary, first window"
PEERS = {
    "river": tuple(KINDS),
    "alibi": tuple(KINDS),
    "evidently": tuple(KINDS),
    "whylogs": tuple(KINDS),
    "ixai": ("null", *CONCEPT),
}
#: Detectors of columns one by one know nothing of how the output depends on them; ixai, of nothing else.
COLUMNS, DEPENDENCE = "watches columns one by one", "explains the model alone"
WHY_NOT = {
    "river, KSWIN": "tests at every row, hundreds of times the work of ADWIN: left out",
    "river, DDM, EDDM, HDDM": "watch a model's errors: these streams have no labels",
    "alibi-detect, MMD, LSDD, learned kernels": "need torch, TensorFlow or KeOps: not installed",
    "alibi-detect, context-aware MMD": "the same; the one that would look at dependence",
}
WHY = (
    "Why. *alerts* wait out their durations on purpose, so that one window that chance or a batch job makes "
    "wakes nobody; a shorter `for` gives the delay of *first window*, and its false alarms. A window is told "
    "at its end, river's detectors test every row. *concept, even*: CIR is ½ for an effect that is as often "
    "up as down, whatever its strength, so that what rests on CIR does not see it; the binned mutual "
    "information in the messages does, and no alert watches it. *autocorrelated*: tests take dependent rows "
    "for independent ones. Tests of every column at 5 % tell more the more columns there are. Page-Hinkley's "
    "default threshold is passed by the random walk of a column's sum. Importances have no sign, so that "
    "ixai cannot see *sign*, and its smoothing, about a thousand rows, is longer than a window."
)
_PREFIX = {
    "RankFlip": "attribution",
    "AttributionDrift": "attribution",
    "InputDrift": "input",
    "OutputDrift": "output",
}


def size(kind: str, options: Options) -> dict[str, int]:
    """Return how many windows are before and after the change, and in how many alarms are counted before."""
    if options.quick:
        return {"before": 4, "after": 12, "watched": 3}
    return {
        "before": drift_streams.before_of(kind),
        "after": drift_streams.AFTER,
        "watched": WATCHED,
    }


def seeds_of(options: Options, *, slow: bool = False) -> tuple[int, ...]:
    """Return the seeds."""
    return SEEDS[:1] if options.quick or slow else SEEDS


def ours(kind: str, options: Options) -> dict[str, Any]:
    """Return the alarms of our alerts on the streams of a kind."""
    sizes = size(kind, options)
    streams = {}
    for seed in seeds_of(options):
        stream = drift_streams.make(kind, seed, sizes["before"], sizes["after"])
        told = alarms(stream, sizes["before"] - sizes["watched"])
        streams[f"{kind}/{seed}"] = {**sizes, "alarms": told}
    return {"kind": kind, "streams": streams}


def alarms(stream: DriftStream, watch: int) -> dict[str, list[list[Any]]]:
    """Return [row, name] for every window and name that an alert fires for, and that its rule holds for.

    The windows before ``watch`` are left out.
    """
    names = [f"x{j}" for j in range(stream.X.shape[1])]
    played = list(play(stream.X, stream.y, names, stream.window_rows))
    times, scrapes = [each.time for each in played], [each.scrape for each in played]
    found: dict[str, list[list[Any]]] = {ALERTS: [], FIRST: []}
    for rule in alert_rules.load():
        verdict = alert_rules.judge(rule, times, scrapes)
        prefix = _PREFIX[rule.short]
        for detector, told in ((ALERTS, verdict.fires), (FIRST, verdict.holds)):
            for window in range(watch, len(told)):
                row = (window + 1) * stream.window_rows
                # What holds already when the watch begins is told as well: it is on.
                found[detector] += [
                    [row, f"{prefix}:{name}", rule.short] for name in sorted(told[window])
                ]
    return found


def peer(name: str, options: Options) -> dict[str, Any]:
    """Return the alarms of a peer on the same streams, in one process."""
    about = {"peer": name}
    streams: dict[str, Any] = {}
    try:
        python = environments.interpreter(_environment(name))
        with tempfile.TemporaryDirectory() as folder:
            for kind in PEERS[name]:
                sizes = size(kind, options)
                for seed in seeds_of(options, slow=name in SLOW):
                    stream = drift_streams.make(kind, seed, sizes["before"], sizes["after"])
                    path = Path(folder) / f"{len(streams):02}.npz"
                    _write(path, stream, sizes, model=name == "ixai")
                    streams[f"{kind}/{seed}"] = {**sizes, "alarms": path.stem}
            found = environments.run(python, f"drift_{name}", folder)
    except environments.PeerError as error:
        return {**about, "failed": str(error)}
    for entry in streams.values():
        entry["alarms"] = found[entry["alarms"]]
    return {**about, "streams": streams}


def _environment(name: str) -> str:
    return "whylogs-drift" if name == "whylogs" else name


def _write(path: Path, stream: DriftStream, sizes: dict[str, int], *, model: bool) -> None:
    np.savez(
        path,
        X=stream.X,
        y=stream.y,
        window_rows=stream.window_rows,
        watch=sizes["before"] - sizes["watched"],
        windows=stream.windows,
        **({"weights": stream.weights, "even": stream.even} if model else {}),
    )


def cases(options: Options) -> dict[str, Callable[[], Any]]:
    """Return a case for each kind of stream, and one for each peer on all of them."""
    kinds = ("input, abrupt", "concept, abrupt") if options.quick else tuple(KINDS)
    found: dict[str, Callable[[], Any]] = {
        f"drift delay, {kind}": partial(ours, kind, options) for kind in kinds
    }
    if options.peers:
        found |= {f"drift delay beside {name}": partial(peer, name, options) for name in PEERS}
    return found


def right(kind: str, name: str) -> bool:
    """Say whether an alarm of this name is about the change of a stream of this kind."""
    if kind in INPUT:
        return name == "input:x5"
    if kind in CONCEPT:
        return name.startswith("attribution:")
    return name == "output:y"


def delay(kind: str, told: list[list[Any]], onset: int, *, lasting: bool = False) -> int | None:
    """Return the rows from the change, ``onset`` rows after the beginning, to the first right alarm; or None.

    ``lasting``: alarms stay on; one that was on before the change tells of it only once it was off again.
    """
    after = sorted({row for row, *_ in told if row > onset})
    on = {name for row, name, *_ in told if row == onset} if lasting else set()
    last = onset
    for row in after:
        names = {name for r, name, *_ in told if r == row}
        on = on if row - last <= WINDOW_ROWS else set()
        last = row
        if any(right(kind, name) for name in names - on):
            return int(row) - onset
        on &= names
    return None


def false_windows(told: list[list[Any]], first: int, last: int) -> int:
    """Return the windows with an alarm, from one to before another."""
    windows = {(row - 1) // WINDOW_ROWS for row, *_ in told}
    return len([window for window in windows if first <= window < last])


def summary(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return {detector: {kind: delays in rows, or the share of windows with a false alarm}}."""
    found: dict[str, dict[str, Any]] = {}
    for result in results.values():
        for stream, entry_of in result.get("streams", {}).items():
            kind = stream.rpartition("/")[0]
            onset, watched = entry_of["before"], entry_of["watched"]
            last = onset + entry_of["after"]
            for detector, told in entry_of["alarms"].items():
                entry = found.setdefault(detector, {"delays": {}, "false": {}})
                quiet = (onset - watched, last if kind in NULL else onset)
                count = false_windows(told, *quiet)
                for name in (kind, "all") if kind in NULL else ("all",):
                    sums = entry["false"].setdefault(name, [0, 0])
                    sums[0] += count
                    sums[1] += quiet[1] - quiet[0]
                if kind not in NULL:
                    delays = entry["delays"].setdefault(kind, [])
                    lasting = detector == ALERTS
                    delays.append(delay(kind, told, onset * WINDOW_ROWS, lasting=lasting))
    return found


def section(results: dict[str, Any]) -> str:
    """Return the streams, the delays, the false alarms, and what they say."""
    found = summary(results)
    failed = {r["peer"]: r["failed"] for r in results.values() if "failed" in r}
    some = [entry for result in results.values() for entry in result.get("streams", {}).values()]
    before = sorted({entry["before"] for entry in some})
    lasting = ", ".join(
        f"{rule.seconds / 60:.0f} minutes ({rule.short})" for rule in alert_rules.load()
    )
    parts = [
        f"Streams of {WINDOW_ROWS} rows a window (a minute at five rows/s, six panes of 10 s): "
        f"{' or '.join(map(str, before))} windows, then the change, then {some[0]['after']} windows, "
        f"read one pane after their end. {len(SEEDS)} seeds; {', '.join(SLOW)} on the first alone. "
        "Eight independent normal features; the output is 2 x0 + 1.4 x1 + x2 + 0.7 x3 + 0.8 (x4² - 1). "
        f"The reference is the first full window for all; alarms in the {some[0]['watched']} windows "
        "before the change are false. Where the concept changes, the distributions of "
        "the features and of the output stay the same.",
        table(["stream", "what happens"], [[k, about] for k, about in KINDS.items()], left=2),
        "*attributary, alerts*: the rows pass through ingest, merge and the gauges, and the rules of "
        "`deploy/prometheus/rules.yml` are evaluated with their durations, so that an alert comes "
        f"{lasting} after the first window that shows the change, or later. *first window*: the same "
        "rules without their durations. The peers run with their defaults; ixai has no rule for a "
        "change, so two are applied to its importances (a new leader that was not "
        "among the first three, or Kendall's tau below ½).",
        _delays(found, failed),
        _false(found),
        verdict(found),
        WHY,
    ]
    return "\n\n".join(parts)


def _delays(found: dict[str, dict[str, Any]], failed: dict[str, str]) -> str:
    kinds = [kind for kind in KINDS if any(kind in entry["delays"] for entry in found.values())]
    lines = []
    for detector, entry in found.items():
        lines.append([detector, *(_delay_cell(detector, entry, kind) for kind in kinds)])
    dashes = [["–"] * (len(kinds) - 1)] * len(WHY_NOT)
    lines += [[who, why, *dash] for (who, why), dash in zip(WHY_NOT.items(), dashes, strict=True)]
    lines += [[who, why, *["–"] * (len(kinds) - 1)] for who, why in failed.items()]
    return (
        "Rows from the change to the first alarm that names what changed, and in brackets the same in "
        "windows; the median over seeds. *never*: on no seed; *1 of 2*: on the other none in the "
        f"windows that there were. A dash: it {COLUMNS}, or {DEPENDENCE}.\n\n"
        + table(["detector", *kinds], lines)
    )


def _delay_cell(detector: str, entry: dict[str, Any], kind: str) -> str:
    if kind not in entry["delays"] or not can(detector, kind):
        return "–"
    told = [rows for rows in entry["delays"][kind] if rows is not None]
    if not told:
        return "never"
    middle = median(told)
    some = (
        ""
        if len(told) == len(entry["delays"][kind])
        else f", {len(told)} of {len(entry['delays'][kind])}"
    )
    return f"{middle:,.0f} ({middle / WINDOW_ROWS:.1f}{some})"


def can(detector: str, kind: str) -> bool:
    """Say whether a detector looks at what changes."""
    if detector.startswith("attributary"):
        return True
    return detector.startswith("ixai") == (kind in CONCEPT)


def _false(found: dict[str, dict[str, Any]]) -> str:
    names = [*NULL, "all"]
    names = [name for name in names if any(name in entry["false"] for entry in found.values())]
    lines = []
    for detector, entry in found.items():
        cells = []
        for name in names:
            wrong, windows = entry["false"].get(name, (0, 0))
            cells.append(f"{100 * wrong / windows:.1f}" if windows else "–")
        lines.append([detector, *cells])
    head = [name if name != "all" else "all, before a change too" for name in names]
    return (
        "False alarms: windows in which anything is told although nothing has changed, per 100 windows.\n\n"
        + table(["detector", *head], lines)
    )


def rate(entry: dict[str, Any], kind: str = "all") -> float:
    """Return the false windows per 100."""
    wrong, windows = entry["false"].get(kind, (0, 0))
    return 100.0 * float(wrong) / windows if windows else 0.0


def told_of(found: dict[str, Any], detector: str) -> tuple[int, int, float | None]:
    """Return how many streams a detector told of, how many it can see, and its median delay in windows."""
    delays = [
        rows
        for kind, each in found[detector]["delays"].items()
        if can(detector, kind)
        for rows in each
    ]
    told = [rows for rows in delays if rows is not None]
    return len(told), len(delays), median(told) / WINDOW_ROWS if told else None


def verdict(found: dict[str, dict[str, Any]]) -> str:
    """Return what the tables say of each detector, in words that follow from the numbers."""
    lines = []
    for detector in found:
        told, all_, middle = told_of(found, detector)
        late = "" if middle is None else f", after {middle:.1f} windows in the median"
        lines.append(
            f"- {detector}: {told} of the {all_} changes it looks for{late}; "
            f"{rate(found[detector]):.1f} false windows in 100."
        )
    return "In all:\n\n" + "\n".join(lines)


def figures(results: dict[str, Any]) -> list[Figure]:
    """Return delays and false alarms of every detector."""
    found = summary(results)
    if not found:
        return []
    names = list(found)
    late = [told_of(found, name)[2] for name in names]
    return [
        Figure(
            "drift-delay",
            "Median delay in windows, and false windows in 100, of every detector",
            [
                Panel(
                    "median delay, windows", "", "", {"every detector": (names, late)}, kind="bars"
                ),
                Panel(
                    "false windows in 100",
                    "",
                    "",
                    {"every detector": (names, [rate(found[name]) for name in names])},
                    kind="bars",
                ),
            ],
        )
    ]


SUITE = Suite(
    "drift-delay",
    "Delay until a drift is told, and false alarms",
    cases,
    section,
    page="results",
    figures=figures,
)
