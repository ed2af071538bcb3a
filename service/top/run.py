"""``attributary top`` from start to end: one frame, or frames until it is quit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import time

from rich.console import Console, RenderableType
from rich.live import Live

from attributary.schemas.errors import ConfigurationError
from attributary.service.reach import require_broker
from attributary.service.settings import Settings
from attributary.service.top.board import Board
from attributary.service.top.choice import Choice
from attributary.service.top.feed import Feed
from attributary.service.top.keys import Keys
from attributary.service.top.view import render

_PIPED_WIDTH = 120
_PRINT_SECONDS = 5.0


def show_top(
    settings: Settings, model: str | None, choice: Choice, *, once: bool, seconds: float
) -> None:
    """Show what moves the models, redrawn every ``seconds`` until q or Ctrl-C; ``once``: one frame.

    Without a terminal, plain frames one below the other. BrokerError: no broker, or no such topic.
    ConfigurationError, with ``once``: no such model, output or windows; it names those that there are.
    """
    require_broker(settings.connection)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what it says would spoil the screen
    width = None if sys.stdout.isatty() else _PIPED_WIDTH
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    top = _Top(settings, model, choice, console)
    asyncio.run(top.once() if once else top.live(seconds))


class _Top:
    def __init__(
        self, settings: Settings, model: str | None, choice: Choice, console: Console
    ) -> None:
        self._choice = choice
        self._console = console
        self._board = Board(settings.connection.bootstrap, model)
        self._feed = Feed(self._board, settings.connection, settings.topics)
        self._quit = asyncio.Event()
        self._pressed = asyncio.Event()

    async def once(self) -> None:
        """Print one frame of what is there now, however long."""
        await self._filled()
        if (reason := self._choice.absent(self._board)) is not None:
            raise ConfigurationError(reason)
        self._console.print(self._frame(None, keys=False))

    async def live(self, seconds: float) -> None:
        """Draw until it is quit; BrokerError where the broker does not answer at first."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._quit.set)
        following = asyncio.create_task(self._feed.follow())
        try:
            await self._draw(seconds, following)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _filled(self) -> None:
        """Read what there is; where that takes long, a terminal shows how far it is."""
        filling = asyncio.create_task(self._feed.fill())
        console = Console(stderr=True)
        with (
            console.status("reading") if console.is_terminal else contextlib.nullcontext() as shown
        ):
            while not filling.done():
                await asyncio.wait({filling}, timeout=0.2)
                if shown is not None and self._board.older is not None:
                    shown.update(f"{self._board.older:.0%} of the older results read")
        await filling

    def _frame(self, height: int | None, *, keys: bool) -> RenderableType:
        width = self._console.width
        return render(self._board, self._choice, _now(), width=width, height=height, keys=keys)

    async def _draw(self, seconds: float, following: asyncio.Task[None]) -> None:
        terminal = self._console.is_terminal
        if not terminal:
            seconds = max(seconds, _PRINT_SECONDS)
        screen = Live(console=self._console, auto_refresh=False, screen=True) if terminal else None
        with Keys(self._key) as keys, screen or contextlib.nullcontext():
            while not self._quit.is_set():
                if following.done():
                    following.result()
                ready = self._board.caught_up
                if screen is not None:
                    screen.update(self._frame(self._console.height, keys=keys.there), refresh=True)
                elif ready:
                    self._console.print(self._frame(None, keys=False))
                await self._wait(seconds if ready else min(seconds, 0.3))

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
