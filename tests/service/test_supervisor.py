"""Several processes run as one."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest
from command import wait_until

from attributary.service.supervisor import Supervisor

pytestmark = pytest.mark.timeout(60)

_GOOD = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("stopping", flush=True), sys.exit(0)))
print("starting", flush=True)
print("ready to go", flush=True)
time.sleep(60)
"""
_STUBBORN = _GOOD.replace('(print("stopping", flush=True), sys.exit(0))', "None").replace(
    "time.sleep(60)", "[time.sleep(1) for _ in range(60)]"
)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Make a module that a child can run by name."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def script(name: str, code: str) -> str:
        (tmp_path / f"{name}.py").write_text(code)
        return name

    return script


@pytest.fixture
def lines() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def supervisor(lines: list[tuple[str, str]]):
    with Supervisor(lambda name, line: lines.append((name, line))) as running:
        yield running


def _gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_output_is_passed_on_by_name_and_tells_readiness(supervisor, script, lines):
    good = script("good", _GOOD)
    supervisor.start("one", [good])
    supervisor.start("two", [good])
    assert supervisor.wait_ready(20.0)
    assert supervisor.dead() is None
    assert supervisor.stop(10.0) == []
    for name in ("one", "two"):
        said = [line for who, line in lines if who == name]
        assert said == ["starting", "ready to go", "stopping"]


def test_one_that_is_slow_to_be_ready_holds_up_all(supervisor, script):
    supervisor.start("good", [script("good", _GOOD)])
    supervisor.start(
        "slow", [script("slow", "import time; print('not ready', flush=True); time.sleep(60)")]
    )
    assert not supervisor.wait_ready(1.0)
    assert supervisor.dead() is None


def test_a_death_ends_the_waiting_and_is_told_with_its_last_lines(supervisor, script, lines):
    supervisor.start("good", [script("good", _GOOD)])
    bad = supervisor.start("bad", [script("bad", "import sys; sys.exit('it went wrong')")])
    assert not supervisor.wait_ready(20.0)
    assert supervisor.dead() is bad
    assert bad.process.returncode == 1
    supervisor.stop(10.0)
    assert ("bad", "it went wrong") in lines


def test_those_that_do_not_stop_are_killed_in_time_and_named(supervisor, script):
    children = [
        supervisor.start("good", [script("good", _GOOD)]),
        supervisor.start("stubborn", [script("stubborn", _STUBBORN)]),
    ]
    assert supervisor.wait_ready(20.0)
    started = time.monotonic()
    assert supervisor.stop(1.0) == ["stubborn"]
    assert time.monotonic() - started < 4.0
    assert all(_gone(child.process.pid) for child in children)


def test_the_first_signal_asks_and_the_second_hurries(supervisor, script):
    supervisor.start("stubborn", [script("stubborn", _STUBBORN)])
    assert supervisor.wait_ready(20.0)
    os.kill(os.getpid(), signal.SIGINT)
    assert supervisor.stopping.wait(5.0)
    assert not supervisor.hurried.is_set()
    second = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))
    second.start()
    started = time.monotonic()
    assert supervisor.stop(30.0) == ["stubborn"]
    assert time.monotonic() - started < 10.0
    second.join()


def test_an_exception_leaves_nothing_running_and_restores_the_signals(script):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    pids = []

    def fail() -> None:
        with Supervisor(lambda *_: None) as supervisor:
            pids.append(supervisor.start("good", [script("good", _GOOD)]).process.pid)
            assert supervisor.wait_ready(20.0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert all(map(_gone, pids))
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_child_that_floods_its_output_is_not_held_up(supervisor, script, lines):
    code = "for i in range(20_000): print('x' * 100)\nprint('ready', flush=True)\n"
    supervisor.start("flood", [script("flood", code + "import time; time.sleep(60)")])
    wait_until(lambda: bool(lines), 20.0)
    assert supervisor.wait_ready(20.0)
    assert len(lines) == 20_001
