"""A few processes run as one: their output passed on, a death noticed, all stopped in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType

from attributary.workers import tether

READY = "ready"
_POLL_SECONDS = 0.1
_KILL_SECONDS = 1.0
_EXIT_SECONDS = 5.0


class Child:
    """One process of the group. ``ready`` is set by a line of its output that begins with READY."""

    def __init__(self, name: str, process: subprocess.Popen[bytes]) -> None:
        self.name = name
        self.process = process
        self.ready = threading.Event()
        self._reader: threading.Thread | None = None

    def follow(self, output: Callable[[str, str], None]) -> None:
        """Pass on every line of the process's output, from a thread of its own."""
        self._reader = threading.Thread(target=self._pump, args=(output,), daemon=True)
        self._reader.start()

    def drain(self, seconds: float) -> None:
        """Wait for the rest of the output of a process that ended."""
        if self._reader is not None:
            self._reader.join(seconds)

    def _pump(self, output: Callable[[str, str], None]) -> None:
        stream = self.process.stdout
        if stream is None:
            return
        for raw in stream:
            line = raw.decode(errors="replace").rstrip()
            if line.split(maxsplit=1)[:1] == [READY]:
                self.ready.set()
            output(self.name, line)
        stream.close()


class Supervisor:
    """Starts children, tells of a signal or a death, and stops what is left.

    Inside the ``with`` block SIGINT and SIGTERM set ``stopping`` instead of raising; the first
    asks to stop in order, a second one sets ``hurried``. Children run in sessions of their own,
    so that Ctrl-C in a terminal reaches them through ``stop`` alone, and they die with this process.
    ``output`` is called with (name, line) from the children's threads.
    """

    def __init__(self, output: Callable[[str, str], None]) -> None:
        self.children: list[Child] = []
        self.stopping = threading.Event()
        self.hurried = threading.Event()
        self._output = output
        self._handlers: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> Supervisor:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop(_EXIT_SECONDS)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        (self.hurried if self.stopping.is_set() else self.stopping).set()

    def start(self, name: str, arguments: Sequence[str]) -> Child:
        """Start ``python -m`` with these arguments as a child; call it from the main thread."""
        process = tether.spawn(
            [sys.executable, "-u", "-m", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        child = Child(name, process)
        self.children.append(child)
        child.follow(self._output)
        return child

    def dead(self) -> Child | None:
        """Return a child that has ended, if there is one."""
        return next((child for child in self.children if child.process.poll() is not None), None)

    def wait_ready(self, seconds: float) -> bool:
        """Wait until every child is ready; False on a signal, a death, or after ``seconds``."""
        deadline = time.monotonic() + seconds
        while not all(child.ready.is_set() for child in self.children):
            if self.stopping.wait(_POLL_SECONDS) or self.dead() or time.monotonic() > deadline:
                return False
        return True

    def stop(self, seconds: float) -> list[str]:
        """Ask all children to stop, wait at most ``seconds`` together, kill the rest.

        Returns the names of those that had to be killed. A hurry signal ends the waiting.
        """
        alive = [child for child in self.children if child.process.poll() is None]
        for child in alive:
            child.process.terminate()
        deadline = time.monotonic() + seconds
        while self._alive(alive) and time.monotonic() < deadline and not self.hurried.is_set():
            time.sleep(_POLL_SECONDS / 4)
        killed = self._alive(alive)
        for child in killed:
            os.killpg(child.process.pid, signal.SIGKILL)
        for child in self.children:
            child.process.wait()
            child.drain(_KILL_SECONDS)
        self.children.clear()
        return [child.name for child in killed]

    @staticmethod
    def _alive(children: list[Child]) -> list[Child]:
        return [child for child in children if child.process.poll() is None]
