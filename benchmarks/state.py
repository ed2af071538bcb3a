"""What a pane costs: bytes in memory and on the wire, and the time of what is done with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from attributary.workers.maths.grid import Grid
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.maths.window import WindowState
from attributary.workers.stream.epoch import cells_for
from benchmarks.peers.timing import BATCH, batches, seconds
from benchmarks.streaming_maths import rows, shapes
from benchmarks.suite import Options, Suite, number, shape, size, spread, table

#: Rows of a pane that fills a whole block, and of one that fills an eighth.
ROWS = (8192, 1024)
LEVELS = 10


def one_hot(columns: int, outputs: int, count: int) -> tuple[Any, Any]:
    """Return categorical features of ten levels each, one column a level, and their outputs."""
    rng = np.random.default_rng(2)
    shares = np.arange(1.0, LEVELS + 1)
    chosen = rng.choice(LEVELS, size=(count, columns // LEVELS), p=shares / shares.sum())
    X = (chosen[:, :, None] == np.arange(LEVELS)).reshape(count, columns).astype(np.float64)
    Y = X @ rng.normal(size=(columns, outputs)) + rng.normal(size=(count, outputs))
    return X, Y


KINDS = {"continuous": rows, "one-hot": one_hot}


def memory(state: object) -> int:
    """Return the bytes of all arrays that an object holds, each counted once."""
    seen: dict[int, int] = {}

    def visit(part: object) -> None:
        if isinstance(part, np.ndarray):
            owner = part if part.base is None else part.base
            seen[id(owner)] = getattr(owner, "nbytes", part.nbytes)
        elif isinstance(part, dict):
            for value in part.values():
                visit(value)
        elif isinstance(part, (list, tuple)):
            for value in part:
                visit(value)
        elif hasattr(part, "__dict__"):
            visit(vars(part))

    visit(state)
    return sum(seen.values())


def filled(kind: str, columns: int, outputs: int, count: int) -> PaneSketch:
    """Return a pane of ``count`` rows on the grid that ingest would choose."""
    X, Y = KINDS[kind](columns, outputs, count)
    blocks = {}
    if kind == "one-hot":
        blocks = {
            f"g{start}": list(range(start, start + LEVELS)) for start in range(0, columns, LEVELS)
        }
    grid = Grid.from_rows(X[:BATCH], Y[:BATCH], cells=cells_for(columns, outputs))
    pane = PaneSketch(grid, blocks=blocks)
    for at in batches(count):
        pane.update(X[at], Y[at])
    return pane


def sizes(kind: str, columns: int, outputs: int, options: Options) -> dict[str, Any]:
    """Return the bytes of panes of each number of rows."""
    found = []
    for count in ROWS[1:] if options.quick else ROWS:
        pane = filled(kind, columns, outputs, count)
        found.append(
            {
                "kind": kind,
                "columns": columns,
                "outputs": outputs,
                "cells": pane.grid.cells,
                "rows": count,
                "memory": memory(pane),
                "memory_cells": memory(pane.comovement),
                "memory_digests": memory(pane.x_digests) + memory(pane.y_digests),
                "wire": len(pane.to_bytes()),
                "wire_cells": len(pane.comovement.to_bytes()),
                "wire_digests": len(pane.x_digests.to_bytes()) + len(pane.y_digests.to_bytes()),
            }
        )
    return {"sizes": found}


def operations(columns: int, outputs: int, options: Options) -> dict[str, Any]:
    """Time what ingest and merge do with a pane of continuous rows that fills a block."""
    pane = filled("continuous", columns, outputs, ROWS[-1] if options.quick else ROWS[0])
    data = pane.to_bytes()
    received = PaneSketch.from_bytes(data)
    window = WindowState(columns, outputs)
    window.add(received)
    window.add(received)
    timed: dict[str, Callable[[], object]] = {
        "to_bytes": pane.to_bytes,
        "from_bytes": lambda: PaneSketch.from_bytes(data),
        "merge": lambda: window.add(received),
        "evaluate": window.evaluate,
    }
    repeats = options.own_repeats
    found = {name: seconds(run, repeats, warm_ups=2) for name, run in timed.items()}
    return {
        "columns": columns,
        "outputs": outputs,
        "cells": pane.grid.cells,
        "wire": len(data),
        "operations": found,
    }


def cases(options: Options) -> dict[str, Callable[[], Any]]:
    """Return one case for each kind of data and shape, and one for the operations of each shape."""
    found: dict[str, Callable[[], Any]] = {
        f"bytes of a pane, {kind}, {shape(d, c)}": partial(sizes, kind, d, c, options)
        for kind in KINDS
        for d, c in shapes(options)
    }
    for d, c in shapes(options):
        name = f"operations on a pane, {shape(d, c)}"
        found[name] = partial(operations, d, c, options)
    return found


def section(results: dict[str, Any]) -> str:
    """Return the table of bytes and the table of operations."""
    lines = []
    for entry in (entry for result in results.values() for entry in result.get("sizes", ())):
        pairs = entry["columns"] * entry["outputs"]
        series = entry["columns"] + entry["outputs"]
        lines.append(
            [
                entry["kind"],
                str(entry["columns"]),
                str(entry["outputs"]),
                str(entry["cells"]),
                f"{entry['rows']:,}",
                size(entry["memory"]),
                size(entry["wire"]),
                number(entry["memory_cells"] / pairs),
                number(entry["wire_cells"] / pairs),
                number(entry["memory_digests"] / series),
                number(entry["wire_digests"] / series),
            ]
        )
    head = ["data", "features", "outputs", "K", "rows", "pane, memory", "pane, wire"]
    head += ["cells a pair, memory (B)", "wire (B)", "digest a column, memory (B)", "wire (B)"]
    timed = [result for result in results.values() if "operations" in result]
    names = {
        "to_bytes": "`PaneSketch.to_bytes`",
        "from_bytes": "`PaneSketch.from_bytes`",
        "merge": "`WindowState.add`, of a pane received",
        "evaluate": "`WindowState.evaluate`",
    }
    work = [
        [names[name], f"{result['columns']} × {result['outputs']}", str(result["cells"])]
        + [number(median(times) * 1e3), spread(times)]
        for name in names
        for result in timed
        for times in [result["operations"][name]]
    ]
    return "\n\n".join(
        [
            "A pane sketch after its rows: in memory float64, on the wire float32 sums, the "
            "occupied cells alone. K is the number of cells a side that ingest chooses for the "
            f"shape. One-hot data are categorical features of {LEVELS} levels, one column a "
            "level, with the sums that the error of a group needs. A pair is one feature and one "
            "output; grid edges and references travel with the cells and are counted there.",
            table(head, lines),
            "### What is done with a pane\n\nContinuous data, a pane that fills a block; "
            "processor time, median. No peer keeps windows of panes, so nothing stands beside it.",
            table(["operation", "features × outputs", "K", "ms", "spread"], work),
        ]
    )


SUITE = Suite("state", "Bytes of a pane, and work on it", cases, section)
