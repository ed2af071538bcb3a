"""Freed memory that a process keeps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_FAULTS = """
import resource, numpy as np
from attributary.workers.heap import keep_freed_memory
if {keep}:
    assert keep_freed_memory()
def work():
    for _ in range(50):
        a = np.ones(2**17)
        b = a + 1
        c = a * b
        d = np.concatenate([a, b, c])
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _glibc() -> bool:
    return sys.platform.startswith("linux") and not any(Path("/lib").glob("ld-musl*"))


@pytest.mark.skipif(not _glibc(), reason="needs glibc")
def test_arrays_that_come_and_go_are_not_taken_from_the_system_anew() -> None:
    plain, kept = (
        int(
            subprocess.run(
                [sys.executable, "-c", _FAULTS.format(keep=keep)],
                capture_output=True,
                check=True,
                text=True,
            ).stdout
        )
        for keep in (False, True)
    )
    assert kept < 200 < plain


_BETWEEN = """
import resource, time
from attributary.workers import heap
heap._GIVE_BACK_SECONDS = 0.1
assert heap.keep_freed_memory() and heap.keep_freed_memory()
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20
blocks = [b"x" * 300_000 for _ in range(1000)]
full = resident()
blocks = blocks[::50]
ends = time.monotonic() + 10
while resident() > full - 200 and time.monotonic() < ends:
    time.sleep(0.05)
print(full - resident())
"""


@pytest.mark.skipif(not _glibc(), reason="needs glibc")
def test_what_is_free_between_blocks_in_use_is_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _BETWEEN], capture_output=True, check=True, text=True
    )
    assert float(done.stdout) > 200
