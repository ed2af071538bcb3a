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
