"""What a model's process may not do: it sets these limits on itself before it looks at the model."""

from __future__ import annotations

import ctypes
import resource
import sys

from attributary.workers.ondemand import landlock

_PR_SET_NO_NEW_PRIVS = 38
#: What the process may write to a file; its own output goes to one, too.
FILE_BYTES = 16 * 2**20
_OPEN_FILES = 256


def limit_process(memory_bytes: int, *, on_cpu: bool, network: bool) -> None:
    """Give up what no model needs: core files, large files, many files, new rights, and memory; with the
    kernel's help to write files, run programs, connect (unless ``network``) and signal.

    ``on_cpu``: limit the memory that is written to (Linux; elsewhere the worker's watch alone holds). CUDA
    maps far more than it uses, so on a GPU the worker watches the resident memory only; its driver may write
    files, too.
    """
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, FILE_BYTES)
    _limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if on_cpu:
            _limit(resource.RLIMIT_DATA, memory_bytes)
        landlock.give_up(files=on_cpu, network=not network)


def limit_cpu(seconds: float) -> None:
    """Let the kernel kill this process after so much more time on a processor, all threads counted."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = int(used.ru_utime + used.ru_stime + seconds) + 1
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def _limit(what: int, value: int) -> None:
    _, hard = resource.getrlimit(what)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (value, value))
