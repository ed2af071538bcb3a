"""How the C library's heap gives memory back: arithmetic on arrays makes and drops the same few megabytes
over and over, and taking them from the system anew each time costs more than the arithmetic."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from functools import cache

# Of glibc's mallopt.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 64 * 2**20
_LARGE_BYTES = 8 * 2**20
_GIVE_BACK_SECONDS = 20.0


@cache
def keep_freed_memory() -> bool:
    """Let this process keep up to 64 MiB of freed memory at the end of its heap; say whether it can.

    Blocks from 8 MiB on go straight back, as before. What lies free between blocks in use, gigabytes after
    some wide windows have come and gone, a thread of its own gives back every 20 s: the library does not.
    Environment variables of malloc have the first effect, but only where whoever starts the process sets
    them. Without glibc nothing changes.
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt") or not hasattr(libc, "malloc_trim"):
        return False
    if not (
        libc.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES) and libc.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
    ):
        return False
    threading.Thread(target=_give_back, args=(libc,), name="heap", daemon=True).start()
    return True


def _give_back(libc: ctypes.CDLL) -> None:
    while True:
        time.sleep(_GIVE_BACK_SECONDS)
        libc.malloc_trim(ctypes.c_size_t(_KEPT_BYTES))
