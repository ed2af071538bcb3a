"""The stopwatch of both sides: the peers' processes and our own use this file. No dependencies."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

BATCH = 1024


def seconds(run: Callable[[], object], repeats: int, warm_ups: int = 1) -> list[float]:
    """Return the time of each of ``repeats`` runs, after ``warm_ups`` that do not count.

    Processor time of all threads: what one core needs, whether or not others use it meanwhile.
    """
    return [processor for processor, _ in both(run, repeats, warm_ups)]


def both(run: Callable[[], object], repeats: int, warm_ups: int = 1) -> list[tuple[float, float]]:
    """Return the processor time of all threads and the time on the wall, of each run."""
    for _ in range(warm_ups):
        run()
    found = []
    for _ in range(repeats):
        gc.collect()
        gc.disable()
        wall, processor = time.perf_counter(), time.process_time()
        run()
        found.append((time.process_time() - processor, time.perf_counter() - wall))
        gc.enable()
    return found


class Peer:
    """One peer's process: reads the rows and the limits, times, and prints its entries as JSON."""

    def __init__(self, distribution: str) -> None:
        import numpy as np

        self.name = f"{distribution} {version(distribution)}"
        self.entries: list[dict[str, object]] = []
        rows, repeats, share = sys.argv[1:]
        self.repeats, self.share = int(repeats), float(share)
        with np.load(Path(rows)) as arrays:
            self.X, self.Y = arrays["X"], arrays["Y"]

    def rows(self, most: int) -> int:
        """Return how many of the rows a slow call gets: ``most``, or fewer in the quick form."""
        return max(2, min(int(most * self.share), len(self.X)))

    def time(
        self, does: str, run: Callable[[], object], rows: int, beside: str, size: int | None = None
    ) -> None:
        """Time ``run`` on ``rows`` rows; ``beside`` names our entry that does the nearest job."""
        self.entries.append(
            {
                "who": self.name,
                "does": does,
                "rows": rows,
                "seconds": seconds(run, self.repeats),
                "beside": beside,
                "bytes": size,
            }
        )

    def report(self) -> None:
        """Print the entries on the last line of the output."""
        print(json.dumps(self.entries))


def batches(rows: int) -> list[slice]:
    """Return the slices of 1,024 rows that everybody's vectorised calls are fed."""
    return [slice(start, min(start + BATCH, rows)) for start in range(0, rows, BATCH)]
