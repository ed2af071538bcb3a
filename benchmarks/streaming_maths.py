"""Values per second of digest and grid on one core, beside the peers on the same rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from attributary.workers.maths.grid import Grid
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.maths.tdigest import TDigests
from benchmarks import environments
from benchmarks.peers.timing import BATCH, batches, seconds
from benchmarks.suite import Options, Suite, number, shape, spread, table

ROWS = 16_384
SHAPES = ((20, 1), (20, 10), (100, 1), (100, 10))
#: The shape on which incremental permutation importance is compared.
IMPORTANCE = (10, 1)
PEERS = ("river", "whylogs", "datasketches")

#: Least that must be measured, with what it is called.
VALUES_FLOOR, WHYLOGS_FLOOR, IXAI_FLOOR = 5e6, 10.0, 50.0

OURS = {
    "pane": "pane sketch: t-digests of features and outputs, and the grid of every pair",
    "digest": "t-digests of the features alone",
    "grid": "co-movement grid of every pair alone",
}


def shapes(options: Options) -> tuple[tuple[int, int], ...]:
    """Return the (features, outputs) to measure; one output alone in the quick form."""
    return tuple(pair for pair in SHAPES if pair[1] == 1 or not options.quick)


def rows(columns: int, outputs: int, count: int, seed: int = 1) -> tuple[Any, Any]:
    """Return X (n, d) Gaussian and Y (n, c), each output a noisy mixture of all features."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, columns))
    Y = X @ rng.normal(size=(columns, outputs)) + rng.normal(size=(count, outputs))
    return X, Y


def ours(X: Any, Y: Any) -> dict[str, Callable[[], object]]:
    """Return what is timed, by its key in ``OURS``; every run starts from an empty state."""
    grid = Grid.from_rows(X[:BATCH], Y[:BATCH])
    parts = [(X[at], Y[at]) for at in batches(len(X))]

    def pane() -> PaneSketch:
        state = PaneSketch(grid)
        for x, y in parts:
            state.update(x, y)
        return state

    def digest() -> TDigests:
        state = TDigests(X.shape[1])
        for x, _ in parts:
            state.update(x)
        return state

    def cells() -> object:
        state = grid.comovement()
        for x, y in parts:
            state.update(x, y)
        return state

    return {"pane": pane, "digest": digest, "grid": cells}


def measure(columns: int, outputs: int, peers: tuple[str, ...], options: Options) -> dict[str, Any]:
    """Time our code, then the peers, then our code again, so that neither has the quieter time."""
    count = 2 * BATCH if options.quick else ROWS
    X, Y = rows(columns, outputs, count)
    timed = ours(X, Y)
    found = {key: seconds(run, options.own_repeats) for key, run in timed.items()}
    entries: list[dict[str, Any]] = []
    for peer in peers if options.peers else ():
        share = 0.1 if options.quick else 1.0
        entries += environments.measure(peer, X, Y, options.repeats, share)
    for key, run in timed.items():
        found[key] += seconds(run, options.own_repeats)
    mine = [
        {"who": "attributary", "does": OURS[key], "key": key, "rows": count, "seconds": times}
        for key, times in found.items()
    ]
    return {"columns": columns, "outputs": outputs, "entries": [*mine, *entries]}


def cases(options: Options) -> dict[str, Callable[[], Any]]:
    """Return one case for each shape, and the one of permutation importance."""
    found: dict[str, Callable[[], Any]] = {
        f"throughput, {shape(d, c)}": partial(measure, d, c, PEERS, options) for d, c in SHAPES
    }
    d, c = IMPORTANCE
    found[f"throughput, {shape(d, c)}, beside permutation importance"] = partial(
        measure, d, c, ("ixai",), options
    )
    return found


def per_row(entry: dict[str, Any]) -> float:
    """Return the median seconds per row."""
    return float(median(entry["seconds"])) / float(entry["rows"])


def section(results: dict[str, Any]) -> str:
    """Return the floors and one table for each shape."""
    parts = [
        "One core, float64, plain numpy: nothing of attributary is compiled. Every call gets the "
        f"same rows, {ROWS:,} at most, in batches of {BATCH:,} unless it says otherwise; calls too "
        "slow for that get the first of them. A value is one feature of one row. The time is "
        "processor time, of all threads, so that other work on the machine counts little: the "
        "median of the repeats, each from an empty state, after one that does not count; the "
        "spread is half the distance of the quartiles. `ours ÷ theirs` is how many times as many "
        "rows a second attributary takes with the entry that does the nearest job: the whole "
        "pane, the digests alone or the grid alone; below 1 they are faster. No peer computes "
        "co-movement, so no job is quite the same; what each one does is in the table.",
        _floors(list(results.values())),
    ]
    for result in results.values():
        title = shape(result["columns"], result["outputs"])
        parts.append(f"### {title}\n\n{_entries(result)}")
    return "\n\n".join(parts)


def _entries(result: dict[str, Any]) -> str:
    lines = []
    own = {entry["key"]: entry for entry in result["entries"] if "key" in entry}
    for entry in result["entries"]:
        if "failed" in entry:
            lines.append([entry["who"], entry["failed"], *["–"] * 5])
            continue
        each = per_row(entry)
        beside = entry.get("beside")
        lines.append(
            [
                entry["who"],
                entry["does"],
                f"{entry['rows']:,}",
                number(result["columns"] / each / 1e6),
                number(each * 1e6),
                spread(entry["seconds"]),
                f"{number(each / per_row(own[beside]))} ({beside})" if beside else "",
            ]
        )
    head = ["library", "what", "rows", "million values/s", "µs a row", "spread", "ours ÷ theirs"]
    return table(head, lines, left=2)


def _floors(results: list[dict[str, Any]]) -> str:
    def ratio(columns: int, start: str, does: str = "") -> float | None:
        for result in results:
            if (result["columns"], result["outputs"]) != (columns, 1):
                continue
            theirs = [
                per_row(entry)
                for entry in result["entries"]
                if entry["who"].startswith(start) and does in entry.get("does", "")
            ]
            return min(theirs) / per_row(result["entries"][0]) if theirs else None
        return None

    def line(what: str, floor: float, found: float | None) -> list[str]:
        if found is None:
            return [what, number(floor), "not measured", ""]
        met = "yes" if found >= floor else "**no**"
        return [what, number(floor), number(found), met if whole else "too few rows to say"]

    wide = next(r for r in results if (r["columns"], r["outputs"]) == (100, 1))
    values = 100 / per_row(wide["entries"][0])
    whole = wide["entries"][0]["rows"] == ROWS
    lines = [
        line("million values/s, 100 features, 1 output", VALUES_FLOOR / 1e6, values / 1e6),
        *(
            line(f"times the rows a second of {what}", floor, found)
            for what, floor, found in (
                (
                    "whylogs row by row, 20 features",
                    WHYLOGS_FLOOR,
                    ratio(20, "whylogs", "row by row"),
                ),
                (
                    "whylogs by pandas in the same batches, 20 features",
                    WHYLOGS_FLOOR,
                    ratio(20, "whylogs", "profile of the features, pandas"),
                ),
                (
                    "whylogs by pandas in one data frame, 20 features",
                    WHYLOGS_FLOOR,
                    ratio(20, "whylogs", "one data frame"),
                ),
                ("ixai's incremental PFI, 10 features", IXAI_FLOOR, ratio(10, "ixai")),
            )
        ),
    ]
    return table(["the pane sketch, digests and grid", "at least", "measured", "met"], lines)


SUITE = Suite("throughput", "Throughput of the streaming mathematics", cases, section)
