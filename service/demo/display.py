"""Where the live table goes: redrawn in place on a terminal, printed now and then elsewhere."""

from __future__ import annotations

import time

from rich.console import Console
from rich.live import Live

from attributary.service.demo.table import WIDTH, View

_PRINT_SECONDS = 5.0


class Display:
    """A context that shows a view whenever ``update`` is called."""

    def __init__(self, console: Console, view: View) -> None:
        self._console = console
        self._view = view
        self._live = (
            Live(console=console, auto_refresh=False, transient=False)
            if console.is_terminal
            else None
        )
        self._printed = time.monotonic()

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.update(last=True)
        if self._live is not None:
            self._live.stop()

    def update(self, *, last: bool = False) -> None:
        """Show the view as it is now; without a terminal every few seconds, and at the end."""
        if self._live is not None:
            self._live.update(self._view.render(), refresh=True)
        elif last or time.monotonic() - self._printed >= _PRINT_SECONDS:
            self._printed = time.monotonic()
            self._console.print(self._view.render())


def console() -> Console:
    """Return the console of the command: as wide as the table where there is no terminal."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=WIDTH)
