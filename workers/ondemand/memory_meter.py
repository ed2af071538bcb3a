"""What calls of a model take of the memory that it computes in, seen from its process."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Protocol

from attributary.workers.ondemand.free_memory import free_memory

_STATUS = Path("/proc/self/status")
_SAYS_SO = re.compile(r"out of memory|bad.?alloc|allocate memory|memory allocation", re.I)


class Meter(Protocol):
    """The memory of one device, as the model's process uses it. All in bytes."""

    def reset(self) -> None:
        """Begin a new peak at what is used now."""

    def peak(self) -> int:
        """Return the most that was used since."""

    def free(self) -> int:
        """Return how much more may be used."""

    def release(self) -> None:
        """Give back what is kept and not used, after a call that found too little."""


class HostMeter:
    """The main memory (Linux). It is opened before the process gives up its rights."""

    def __init__(self, memory_bytes: int) -> None:
        """``memory_bytes``: what the process may use. OSError: the system does not tell peaks."""
        self._most = memory_bytes
        self._peaks = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
        self.reset()

    @classmethod
    def where_known(cls, memory_bytes: int) -> HostMeter | None:
        """Return one, None where the system does not tell peaks."""
        with contextlib.suppress(OSError):
            return cls(memory_bytes)
        return None

    def reset(self) -> None:
        """Begin a new peak at what is used now."""
        os.write(self._peaks, b"5")

    def peak(self) -> int:
        """Return the most that was used since."""
        return _status()["VmHWM"]

    def free(self) -> int:
        """Return what the process' own limit, its groups and the machine all leave."""
        now = _status()
        own = self._most - max(now["VmRSS"], now["VmData"])
        system = free_memory()
        return max(0, own if system is None else min(own, system))

    def release(self) -> None:
        """Nothing is kept on purpose."""


def _status() -> dict[str, int]:
    found = {}
    for line in _STATUS.read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("VmHWM", "VmRSS", "VmData"):
            found[name] = 1024 * int(rest.split()[0])
    return found


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an error means that memory ran out: libraries raise types of their own for it."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, Exception) and bool(_SAYS_SO.search(str(error)[:2_000]))
