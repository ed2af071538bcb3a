"""Files without a name, in memory where the system has such: shared by their descriptors."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile

_LINUX = sys.platform.startswith("linux")


def nameless_file() -> int:
    """Return the descriptor of a new, empty file that is gone with its last descriptor."""
    if _LINUX:
        return os.memfd_create("attributary", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def seal_size(descriptor: int) -> None:
    """Let nobody shrink it (Linux): a mapping of what is gone would end the process that reads it."""
    if _LINUX:
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)


def seal(descriptor: int) -> None:
    """Let nobody change it (Linux)."""
    if _LINUX:
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
