"""How the C library's heap gives memory back: arithmetic on arrays makes and drops the same few megabytes
over and over, and taking them from the system anew each time costs more than the arithmetic."""

from __future__ import annotations

import ctypes
import sys

# Of glibc's mallopt.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 64 * 2**20
_LARGE_BYTES = 8 * 2**20


def keep_freed_memory() -> bool:
    """Let this process keep up to 64 MiB of freed memory at the end of its heap; say whether it can.

    Blocks from 8 MiB on go straight back, as before. Environment variables of malloc have the same effect,
    but only where whoever starts the process sets them. Without glibc nothing changes.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_TRIM_THRESHOLD, _KEPT_BYTES) and mallopt(_MMAP_THRESHOLD, _LARGE_BYTES))
