"""How long devices are busy: a counter that knows of calls that are under way still."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from prometheus_client import Counter, Metric


class BusySeconds(Counter):
    """The seconds in which at least one call was under way on a device, its only label.

    Calls at one time count once, and a call counts while it lasts, each time that the counter is read: so
    its rate is never above 1.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._changing = threading.Lock()
        self._calls: dict[str, int] = {}
        self._counted_to: dict[str, float] = {}
        super().__init__(*arguments, **options)

    @contextmanager
    def call(self, device: str) -> Iterator[None]:
        """Count the time inside."""
        with self._changing:
            self._count(device)
            self._calls[device] = self._calls.get(device, 0) + 1
        try:
            yield
        finally:
            with self._changing:
                self._count(device)
                self._calls[device] -= 1

    def collect(self) -> Iterable[Metric]:
        """Return the seconds up to now."""
        with self._changing:
            for device in self._calls:
                self._count(device)
        return super().collect()

    def _count(self, device: str) -> None:
        now = monotonic()
        busy = self._calls.get(device, 0) > 0
        self.labels(device).inc(now - self._counted_to[device] if busy else 0.0)
        self._counted_to[device] = now
