"""The real command in processes of its own, and what is left of them."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil

ATTRIBUTARY = str(Path(sysconfig.get_path("scripts")) / "attributary")
_MARK = "TEST_PROCESS_GROUP"
# The shortest session that Kafka allows: the embedded broker lets a group's first member wait half of it.
_QUICK = {
    "ATTRIBUTARY_ADAPT__SESSION_SECONDS": "6",
    "ATTRIBUTARY_INGEST__SESSION_SECONDS": "6",
    "ATTRIBUTARY_MERGE__SESSION_SECONDS": "6",
    "ATTRIBUTARY_ONDEMAND__SESSION_SECONDS": "6",
}


def environment(**variables: str) -> dict[str, str]:
    """Return this process's environment with ``variables``, and of the project's own settings none but a
    short session."""
    kept = {name: value for name, value in os.environ.items() if "ATTRIBUTARY_" not in name}
    return {**kept, **_QUICK, **variables}


def run(
    *arguments: str, seconds: float = 30.0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [ATTRIBUTARY, *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=seconds,
        env=environment(**variables),
        check=False,
    )


def error_line(result: subprocess.CompletedProcess[str]) -> str:
    """Return the error of a command that failed as it should: with one line, and nothing else."""
    assert result.returncode == 2, result
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: "), lines
    return lines[0]


class Running:
    """A command that runs on, with its output; every process that comes of it is marked."""

    def __init__(self, *arguments: str, **variables: str) -> None:
        self._mark = uuid.uuid4().hex
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [ATTRIBUTARY, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(**variables, **{_MARK: self._mark, "PYTHONUNBUFFERED": "1"}),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        """What it printed so far."""
        return "\n".join(self.lines)

    def wait_for(self, text: str, seconds: float = 60.0) -> str:
        """Return the first line that contains ``text``."""

        def found() -> bool:
            return any(text in line for line in self.lines) or self.process.poll() is not None

        wait_until(found, seconds, lambda: f"no line with {text!r} in:\n{self.output}")
        self._settle()
        line = next((line for line in self.lines if text in line), None)
        assert line is not None, f"it ended without {text!r}:\n{self.output}"
        return line

    def wait(self, seconds: float) -> int:
        """Return its exit code; it must end in ``seconds``."""
        code = self.process.wait(seconds)
        self._reader.join(5.0)
        return code

    def alive(self) -> list[psutil.Process]:
        """Return all processes that came of it and still run, wherever they hang now."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(_MARK) == self._mark and _runs(process):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def close(self) -> None:
        """Kill what is left."""
        for process in self.alive():
            process.kill()
        self.process.wait()

    def _settle(self) -> None:
        if self.process.poll() is not None:
            self._reader.join(5.0)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))


def wait_until(
    holds: Callable[[], bool], seconds: float, failure: Callable[[], str] = lambda: "not in time"
) -> None:
    """Wait until ``holds()``; fail after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, failure()
        time.sleep(0.02)


def _runs(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
