"""Long work on the event loop, in turns: heartbeats, fetches and scrapes go on meanwhile."""

from __future__ import annotations

import asyncio
import time


class Turn:
    """Work that may run for ``seconds`` before the loop looks after everything else."""

    def __init__(self, seconds: float = 0.02) -> None:
        self._seconds = seconds
        self._began = time.monotonic()

    async def give(self) -> None:
        """Give way to the loop if the turn is over. The work's own state must bear what runs then."""
        if time.monotonic() - self._began >= self._seconds:
            await asyncio.sleep(0)
            self._began = time.monotonic()


class Cadence:
    """Work that is due every ``seconds``, from start to start, and takes at most half of the time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = time.monotonic()
        self._took = 0.0
        self._due = self._began + seconds

    @property
    def due(self) -> bool:
        """Whether it is time again."""
        return time.monotonic() >= self._due

    def soon(self, seconds: float) -> None:
        """Make it due again in ``seconds``; in more where it takes long."""
        self._due = time.monotonic() + max(seconds, 4.0 * self._took)

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *error: object) -> None:
        self._took = time.monotonic() - self._began
        self._due = self._began + max(self._seconds, 2.0 * self._took)
