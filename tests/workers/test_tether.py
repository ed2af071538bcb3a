"""Processes that die with their parent, by the kernel and by the watcher."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from command import wait_until

from attributary.workers import tether

pytestmark = pytest.mark.timeout(60)

_LINUX = sys.platform.startswith("linux")
_WAYS = [False, True] if _LINUX else [True]
_SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]


def _gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def _spawn(code: str, watch: bool) -> subprocess.Popen[bytes]:
    process = tether.spawn([sys.executable, "-c", code], stdout=subprocess.PIPE, watch=watch)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


@pytest.mark.parametrize("watch", _WAYS)
def test_a_killed_parent_takes_its_child_along(watch):
    code = (
        "import subprocess, sys, time\n"
        "from attributary.workers import tether\n"
        f"child = tether.spawn({_SLEEP!r}, stdout=subprocess.PIPE, watch={watch})\n"
        "child.stdout.readline(); print(child.pid, flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        family = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
        assert len(family) == (2 if watch else 1)
        parent.kill()
    wait_until(lambda: all(map(_gone, family)), 5.0)


@pytest.mark.parametrize("watch", _WAYS)
def test_the_exit_code_comes_through(watch):
    process = _spawn("import sys; print('up', flush=True); sys.exit(7)", watch)
    assert process.wait(10) == 7


@pytest.mark.parametrize("watch", _WAYS)
def test_a_child_that_handles_sigterm_ends_in_its_own_way(watch):
    process = _spawn(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "print('up', flush=True); time.sleep(60)",
        watch,
    )
    assert tether.stop(process, 10.0) == 5


@pytest.mark.parametrize("watch", _WAYS)
def test_a_child_that_ignores_sigterm_is_killed_with_all_its_session(watch):
    process = _spawn(
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('up', flush=True); time.sleep(60)",
        watch,
    )
    family = [process.pid, *(c.pid for c in psutil.Process(process.pid).children(recursive=True))]
    started = time.monotonic()
    assert tether.stop(process, 0.5) == -signal.SIGKILL
    assert time.monotonic() - started < 5.0
    wait_until(lambda: all(map(_gone, family)), 5.0)


@pytest.mark.parametrize("watch", _WAYS)
def test_a_command_that_is_not_there_is_one_line(watch, tmp_path):
    process = tether.spawn([str(tmp_path / "none")], stderr=subprocess.PIPE, watch=watch)
    _, said = process.communicate(timeout=10)
    assert process.returncode == 127
    assert said.decode().startswith(f"error: cannot start {tmp_path / 'none'}: ")
    assert len(said.splitlines()) == 1


def test_a_child_has_a_session_of_its_own_and_no_input():
    process = tether.spawn(
        [sys.executable, "-c", "import os, sys; print(os.getsid(0), repr(sys.stdin.read()))"],
        stdout=subprocess.PIPE,
    )
    said, _ = process.communicate(timeout=10)
    session, read = said.split()
    assert int(session) == process.pid != os.getsid(0)
    assert read == b"''"


@pytest.mark.parametrize("watch", _WAYS)
def test_a_child_gets_the_descriptors_and_the_environment_that_it_is_given(watch):
    reading, writing = os.pipe()
    process = tether.spawn(
        [
            sys.executable,
            "-c",
            f"import os; os.write({writing}, b'here'); print('HOME' in os.environ, os.environ['A'])",
        ],
        stdout=subprocess.PIPE,
        env={"A": "given"},
        pass_fds=[writing],
        watch=watch,
    )
    os.close(writing)
    with open(reading, "rb") as pipe:
        assert pipe.read() == b"here"
    said, _ = process.communicate(timeout=10)
    assert said == b"False given\n"
