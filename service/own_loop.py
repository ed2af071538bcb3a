"""An event loop of a client's own, for callers that have none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from attributary.schemas.errors import ConfigurationError

if TYPE_CHECKING:
    import asyncio

_T = TypeVar("_T")


class OwnLoop:
    """Runs coroutines in the calling thread, one after another, on one loop."""

    def __init__(self, instead: str) -> None:
        self._instead = instead
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run to the end. ConfigurationError where a loop runs in this thread: it says what to use."""
        import asyncio  # not before somebody asks for it

        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            work.close()
            raise ConfigurationError(f"an event loop runs in this thread: use {self._instead}")
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        task = self._loop.create_task(work)
        try:
            return self._loop.run_until_complete(task)
        except BaseException:
            if not task.done():  # interrupted from the keyboard
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    self._loop.run_until_complete(task)
            raise

    def close(self, ending: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run what ends the client's work, and close the loop, where one was ever used."""
        loop = self._loop
        if loop is None:
            return
        self.run(ending())
        self._loop = None
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
