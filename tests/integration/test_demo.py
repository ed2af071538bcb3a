"""The demonstration as a person runs it: the real command, its broker and its workers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psutil
import pytest

_TOLERANCE = 1e-3
_GONE_SECONDS = 10.0
_BOOKS = re.compile(
    r"rows published ([\d,]+) ([=≠]) accepted ([\d,]+) \+ rejected ([\d,]+)(: exact)?"
)
_LIFETIME = re.compile(r"CIR (\S+) over ([\d,]+) scores\n  of all rows so far, ([\d,]+) rows\n")
_MARK = "DEMO_TEST_MARK"


@dataclass
class Demo:
    """A demonstration that runs. ``mark`` is in the environment of every process it starts."""

    process: subprocess.Popen[str]
    mark: str
    text: str = ""

    def wait_for(self, pattern: str, seconds: float = 60.0) -> str:
        """Read on until ``pattern`` is in the output; return what it matched."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        while (found := re.search(pattern, self.text)) is None:
            assert time.monotonic() < deadline, f"no {pattern!r} in:\n{self.text}"
            line = self.process.stdout.readline()
            assert line or self.process.poll() is None, f"ended without {pattern!r}:\n{self.text}"
            self.text += line
        return found.group()

    def finish(self, seconds: float) -> int:
        """Wait for the end; return the exit code."""
        rest, _ = self.process.communicate(timeout=seconds)
        self.text += rest
        return self.process.returncode

    def processes(self) -> list[psutil.Process]:
        """Return what it started and still runs, itself included."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(_MARK) == self.mark:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return [each for each in found if each.status() != psutil.STATUS_ZOMBIE]

    def worker(self) -> psutil.Process:
        """Return its worker process."""
        return next(each for each in self.processes() if "stream" in each.cmdline())


Start = Callable[..., Demo]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start ``attributary demo`` with arguments; whatever a failed test leaves is killed."""
    started: list[Demo] = []

    def begin(*arguments: str) -> Demo:
        mark = uuid.uuid4().hex
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "attributary.service", "demo", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            env={**os.environ, _MARK: mark, "PYTHONIOENCODING": "utf-8"},
        )
        started.append(Demo(process, mark))
        return started[-1]

    yield begin
    for demo in started:
        for process in demo.processes():
            process.kill()
        demo.process.wait()


def number(text: str) -> int:
    return int(text.replace(",", ""))


def assert_exact_and_right(demo: Demo, scores: int) -> int:
    """The books are exact, and the lifetime scores of all those rows those of the batch."""
    books = _BOOKS.search(demo.text)
    assert books is not None, demo.text
    published, sign, accepted, rejected, exact = books.groups()
    assert (sign, exact) == ("=", ": exact"), demo.text
    assert number(published) == number(accepted) + number(rejected) > 0
    lifetime = _LIFETIME.search(demo.text)
    assert lifetime is not None, demo.text
    assert number(lifetime.group(2)) == scores
    assert number(lifetime.group(3)) == number(accepted)
    assert float(lifetime.group(1)) <= _TOLERANCE, demo.text
    return number(published)


def assert_nothing_left(demo: Demo) -> None:
    assert [" ".join(each.cmdline()) for each in demo.processes()] == []


def test_a_small_data_set_is_counted_exactly_scored_right_and_its_drift_shown(start: Start) -> None:
    demo = start("--dataset", "breast_cancer", "--seconds", "14")
    assert demo.finish(100) == 0, demo.text
    assert_nothing_left(demo)
    published = assert_exact_and_right(demo, scores=33)  # thirty columns, three groups
    assert published == pytest.approx(10_000, rel=0.1)
    last = demo.text[demo.text.rindex("done after") :]
    assert "malignant_margin" in last
    assert float(re.search(r"worst texture PSI ([\d.]+)", last).group(1)) > 0.25  # type: ignore[union-attr]
    assert "Traceback" not in demo.text
    assert max(map(len, demo.text.splitlines())) <= 100


def test_several_outputs_are_compared_one_by_one(start: Start) -> None:
    demo = start("--dataset", "digits", "--seconds", "10", "--rate", "2000")
    assert demo.finish(100) == 0, demo.text
    assert_exact_and_right(demo, scores=10 * (64 + 8))
    last = demo.text[demo.text.rindex("done after") :]
    assert all(f"digit_{label}" in last for label in range(10))


@pytest.mark.timeout(240)
def test_flights_are_counted_exactly_and_scored_right(start: Start) -> None:
    demo = start("--seconds", "30", "--rate", "2000")
    command = demo.wait_for(r"attributary --bootstrap \S+ explain .*", 120)
    demo.wait_for(r" [1-9][\d,]{4,} accepted")
    explained = subprocess.run(
        [sys.executable, "-m", "attributary.service", *command.split()[1:]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert explained.returncode == 0, explained
    assert "flight-delay · row 0 · arrival_delay = " in explained.stdout
    assert "dep_delay" in explained.stdout
    assert demo.finish(200) == 0, demo.text
    assert_nothing_left(demo)
    published = assert_exact_and_right(demo, scores=104)
    assert published > 20_000
    assert "hopping window: 28 days to 2013-0" in demo.text
    assert "hopping window of 28 days to 2013-0" in demo.text  # compared as well
    assert re.search(r"dep_delay +▲ 0\.99", demo.text)
    assert "carriers" in demo.text


def test_sigterm_ends_the_stream_in_order_and_metrics_are_served_until_then(start: Start) -> None:
    demo = start("--dataset", "diabetes", "--seconds", "60")
    url = demo.wait_for(r"metrics http://\S+").removeprefix("metrics ")
    demo.wait_for(r" [1-9][\d,]* accepted")
    with urllib.request.urlopen(url, timeout=5) as answer:
        metrics = answer.read().decode()
    accepted = re.search(r'^attributary_rows_accepted_total{model="diabetes"} (\S+)', metrics, re.M)
    assert accepted is not None
    assert float(accepted.group(1)) > 0
    demo.process.send_signal(signal.SIGTERM)
    asked = time.monotonic()
    assert demo.finish(_GONE_SECONDS) == 0, demo.text
    assert time.monotonic() - asked < _GONE_SECONDS
    assert_nothing_left(demo)
    assert_exact_and_right(demo, scores=15)


def test_ctrl_c_while_it_starts_leaves_nothing(start: Start) -> None:
    demo = start("--seconds", "60")
    demo.wait_for("loading flights")
    demo.process.send_signal(signal.SIGINT)
    assert demo.finish(_GONE_SECONDS) == 130, demo.text
    assert_nothing_left(demo)
    assert "Traceback" not in demo.text


def test_a_worker_that_dies_is_one_line_and_leaves_nothing(start: Start) -> None:
    demo = start("--dataset", "diabetes", "--seconds", "60")
    demo.wait_for("metrics http://")
    demo.worker().kill()
    assert demo.finish(_GONE_SECONDS) == 2, demo.text
    assert "error: the worker ended by itself (exit code -9)" in demo.text
    assert "Traceback" not in demo.text
    assert_nothing_left(demo)


def test_a_broker_of_ones_own_is_refused_with_the_command_that_takes_it() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "attributary.service", "--bootstrap", "localhost:9092", "demo"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert found.returncode == 2
    assert found.stderr.startswith("error: the demonstration brings its own broker")
    assert found.stderr.count("\n") == 1
