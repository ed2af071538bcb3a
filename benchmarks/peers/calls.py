"""Single calls timed on the wall: our process and the peers' use this file. No dependencies."""

from __future__ import annotations

import time
from collections.abc import Callable

FEATURES = 20
WARM_UPS = 200


Times = list[tuple[float, float]]
"""(on the wall, of the calling thread's processor) of each call, in seconds"""


def timed(call: Callable[[], object], calls: int, pause: float) -> Times:
    """Return the times of each of ``calls``, ``pause`` seconds apart where that is above 0."""
    for _ in range(WARM_UPS):
        call()
    found = []
    due = time.perf_counter()
    for _ in range(calls):
        if pause:
            due += pause
            while (left := due - time.perf_counter()) > 0:
                time.sleep(left)
        # In this order: reading the processor's time is a system call, and takes as long as a row.
        used, began = time.thread_time(), time.perf_counter()
        call()
        took = time.perf_counter() - began
        found.append((took, time.thread_time() - used))
    return found


def percentiles(times: Times, rows: int) -> dict[str, float]:
    """Return microseconds a row at several shares of the calls, and how many calls there were."""
    wall, processor = (sorted(part) for part in zip(*times, strict=True))

    def at(ordered: list[float], share: float) -> float:
        return 1e6 * ordered[min(len(ordered) - 1, int(share * len(ordered)))] / rows

    return {
        "calls": len(times), "p50": at(wall, 0.5), "p99": at(wall, 0.99), "p999": at(wall, 0.999),
        "most": wall[-1] * 1e6 / rows,
        "processor50": at(processor, 0.5), "processor99": at(processor, 0.99),
    }  # fmt: skip
