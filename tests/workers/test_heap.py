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
