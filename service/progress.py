"""How far a file is: a bar on a terminal, a line every few seconds elsewhere. All on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

_LINE_SECONDS = 5.0

Measure = Callable[[], tuple[int, int]]


class Meter(Protocol):
    """Something to tell that time has passed."""

    def update(self) -> None:
        """Show the present state, where it is time to."""


class _Lines:
    def __init__(self, measure: Measure, rows: Callable[[], int]) -> None:
        self._measure = measure
        self._rows = rows
        self._started = self._shown = time.monotonic()

    def update(self) -> None:
        now = time.monotonic()
        if now - self._shown < _LINE_SECONDS:
            return
        self._shown = now
        done, total = self._measure()
        rows = self._rows()
        share = f"{done / total:.0%} read, " if total else ""
        rate = rows / (now - self._started)
        print(f"{share}{rows:,} rows acknowledged, {rate:,.0f} rows/s", file=sys.stderr, flush=True)


@contextmanager
def meter(measure: Measure, rows: Callable[[], int]) -> Iterator[Meter]:
    """Show ``measure`` (done, total), and how many ``rows`` are acknowledged, while inside."""
    if not sys.stderr.isatty():
        yield _Lines(measure, rows)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    bar = Progress(
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rows]:,} rows, {task.fields[rate]:,.0f} rows/s"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    started = time.monotonic()
    task = bar.add_task("", total=None, rows=0, rate=0.0)

    class _Bar:
        def update(self) -> None:
            done, total = measure()
            acknowledged = rows()
            rate = acknowledged / max(time.monotonic() - started, 1e-3)
            bar.update(task, completed=done, total=total or None, rows=acknowledged, rate=rate)

    with bar:
        yield _Bar()
