"""Single keys from a terminal, without waiting for Enter."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable
from types import TracebackType
from typing import Any


class Keys:
    """A context inside an event loop that calls ``pressed`` with every key; it leaves the terminal as it was.

    Where the standard input is no terminal, nothing is ever pressed.
    """

    def __init__(self, pressed: Callable[[str], None]) -> None:
        self._pressed = pressed
        self._input = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._before: list[Any] = []

    def __enter__(self) -> Keys:
        if self._input is not None:
            self._before = termios.tcgetattr(self._input)
            # Ctrl-C stays a signal.
            tty.setcbreak(self._input)
            asyncio.get_running_loop().add_reader(self._input, self._read, self._input)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._input is not None:
            asyncio.get_running_loop().remove_reader(self._input)
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)

    @property
    def there(self) -> bool:
        """Whether keys can be pressed."""
        return self._input is not None

    def _read(self, number: int) -> None:
        data = os.read(number, 64)
        if not data:  # the terminal is gone
            asyncio.get_running_loop().remove_reader(number)
        for key in data.decode(errors="ignore"):
            self._pressed(key)
