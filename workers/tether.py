"""Processes that must not outlive the one that started them, even when that one is killed.

``spawn`` runs a command through this file. On Linux it asks the kernel to kill it when its parent
dies (``PR_SET_PDEATHSIG``) and becomes the command by ``exec``; elsewhere it stays as a watcher
that polls its parent. The file imports the standard library only: it runs before the command does.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import IO

_PR_SET_PDEATHSIG = 1
_WATCH_SECONDS = 0.5
_NOT_STARTED = 127


def spawn(
    command: Sequence[str],
    *,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    watch: bool = not sys.platform.startswith("linux"),
) -> subprocess.Popen[bytes]:
    """Start ``command`` in a session of its own, without input; it dies with its parent.

    On Linux the kernel ties the child to the *thread* that starts it, so start it from a thread
    that lives as long as the child should, such as the main one. ``env``: its whole environment,
    None for this process's. ``pass_fds``: descriptors that it keeps, with their numbers. ``watch``
    chooses the watcher.
    """
    mode = "watch" if watch else "exec"
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-I", "-S", __file__, mode, str(os.getpid()), *command],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env=env,
        pass_fds=pass_fds,
        start_new_session=True,
    )


def stop(process: subprocess.Popen[bytes], seconds: float) -> int:
    """Ask with SIGTERM, wait at most ``seconds``, then kill the session; return the exit code."""
    if process.poll() is None:
        process.terminate()
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def _become(parent: int, command: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() == parent:  # else the parent died before the kernel was asked
        os.execv(command[0], command)  # noqa: S606


def _watch(parent: int, command: list[str]) -> int:
    child = subprocess.Popen(command, close_fds=False)  # noqa: S603

    def forward(number: int, _frame: FrameType | None) -> None:
        child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)
    while child.poll() is None:
        if os.getppid() != parent:
            child.kill()
            child.wait()
            break
        time.sleep(_WATCH_SECONDS)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _main(arguments: list[str]) -> int:
    mode, parent, *command = arguments
    try:
        if mode == "watch":
            return _watch(int(parent), command)
        _become(int(parent), command)
    except OSError as error:
        print(f"error: cannot start {command[0]}: {error}", file=sys.stderr)
    return _NOT_STARTED


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
