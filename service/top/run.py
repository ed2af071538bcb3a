"""``attributary top`` from start to end: one frame, or frames until it is quit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import time

from rich.console import Console
from rich.live import Live

from attributary.service.log_extents import LogExtents
from attributary.service.reach import require_broker
from attributary.service.settings import Settings
from attributary.service.top.board import Board
from attributary.service.top.feed import ends_reader, follow_results, refresh_ends
from attributary.service.top.keys import Keys
from attributary.service.top.view import Choice, render

_PIPED_WIDTH = 120
_ENDS_SECONDS = 1.0
_PRINT_SECONDS = 5.0


def show_top(
    settings: Settings, model: str | None, choice: Choice, *, once: bool, seconds: float
) -> None:
    """Show what moves the models, redrawn every ``seconds`` until q or Ctrl-C; ``once``: one frame.

    Without a terminal, plain frames one below the other. BrokerError: no broker, or no such topic.
    """
    require_broker(settings.connection)
    for library in ("aiokafka", "attributary.subscription"):  # what they say would spoil the screen
        logging.getLogger(library).setLevel(logging.CRITICAL)
    width = None if sys.stdout.isatty() else _PIPED_WIDTH
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    top = _Top(settings, model, choice, console)
    asyncio.run(top.once() if once else top.live(seconds))


class _Top:
    def __init__(
        self, settings: Settings, model: str | None, choice: Choice, console: Console
    ) -> None:
        self._settings = settings
        self._model = model
        self._choice = choice
        self._console = console
        self._board = Board(settings.connection.bootstrap)
        self._quit = asyncio.Event()
        self._pressed = asyncio.Event()

    async def once(self) -> None:
        """Print one frame of what is there now, however long."""
        settings = self._settings
        async with ends_reader(settings.connection, settings.topics) as ends:
            await refresh_ends(self._board, self._settings.topics, ends)
        await follow_results(
            self._board, settings.connection, settings.topics, self._model, follow=False
        )
        self._console.print(render(self._board, self._choice, _now(), height=None, keys=False))

    async def live(self, seconds: float) -> None:
        """Draw until it is quit; BrokerError where the broker goes away."""
        settings = self._settings
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._quit.set)
        async with ends_reader(settings.connection, settings.topics) as ends:
            background = [
                asyncio.create_task(
                    follow_results(
                        self._board, settings.connection, settings.topics, self._model, follow=True
                    )
                ),
                asyncio.create_task(self._follow_ends(ends)),
            ]
            try:
                await self._draw(seconds, background)
            finally:
                for task in background:
                    task.cancel()
                await asyncio.gather(*background, return_exceptions=True)

    async def _follow_ends(self, ends: LogExtents) -> None:
        while True:
            await refresh_ends(self._board, self._settings.topics, ends)
            await asyncio.sleep(_ENDS_SECONDS)

    async def _draw(self, seconds: float, background: list[asyncio.Task[None]]) -> None:
        if not self._console.is_terminal:
            seconds = max(seconds, _PRINT_SECONDS)
        screen = (
            Live(console=self._console, auto_refresh=False, screen=True)
            if self._console.is_terminal
            else None
        )
        with Keys(self._key) as keys, screen or contextlib.nullcontext():
            while not self._quit.is_set():
                for task in background:
                    if task.done():
                        task.result()
                if screen is not None:
                    height = self._console.height - 1
                    frame = render(
                        self._board, self._choice, _now(), height=height, keys=keys.there
                    )
                    screen.update(frame, refresh=True)
                elif self._board.models:
                    self._console.print(
                        render(self._board, self._choice, _now(), height=None, keys=False)
                    )
                await self._wait(seconds if self._board.models else min(seconds, 0.3))

    async def _wait(self, seconds: float) -> None:
        self._pressed.clear()
        waiting = [asyncio.create_task(event.wait()) for event in (self._quit, self._pressed)]
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()

    def _key(self, key: str) -> None:
        choice = self._choice
        if key in "qQ":
            self._quit.set()
        elif key == "w":
            choice.windows_on += 1
        elif key == "o":
            choice.outputs_on += 1
        elif key == "m":
            choice.model = 0 if choice.model is None else choice.model + 1
        elif key == "a":
            choice.model = None
        self._pressed.set()


def _now() -> int:
    return round(time.time() * 1000)
