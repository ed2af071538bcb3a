"""Linux's Landlock: rights that this process gives up for good, as far as the kernel knows them.

Without Landlock (Linux before 5.13, other systems) nothing is given up and nothing fails.
https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import ctypes
import os
import sys

_LINUX = sys.platform.startswith("linux")
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE = 1 << 0, 1 << 1
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
_TRUNCATE = 1 << 14
_TCP = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11

#: From this version on, a process can be kept from signalling others.
FULL = 6


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scope", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def version() -> int:
    """Return the kernel's version of Landlock, 0 where it has none."""
    if not _LINUX:
        return 0
    return max(0, int(ctypes.CDLL(None).syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)))


def give_up(*, files: bool, network: bool) -> None:
    """Give up signalling other processes; with ``network`` TCP, too; with ``files`` to write or make files
    (outside /dev) and to run programs.

    What is open already stays usable. The process must have given up new privileges before.
    """
    known = version()
    if not known:
        return
    writing = _EXECUTE | _WRITE_FILE | _REMOVE_AND_MAKE | (_TRUNCATE if known >= 3 else 0)
    wanted = _Ruleset(
        files=writing if files else 0,
        network=_TCP if network and known >= 4 else 0,
        scope=_ABSTRACT_SOCKETS_AND_SIGNALS if known >= FULL else 0,
    )
    size = 8 if known < 4 else 16 if known < FULL else 24
    libc = ctypes.CDLL(None, use_errno=True)
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(wanted), ctypes.c_size_t(size), 0)
    if ruleset < 0:  # nothing that this version could take
        return
    try:
        if files:
            folder = os.open("/dev", os.O_PATH | os.O_CLOEXEC)
            rule = _PathBeneath(allowed=writing & ~_EXECUTE, folder=folder)
            libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
            os.close(folder)
        if libc.syscall(_RESTRICT_SELF, ruleset, 0) != 0:
            raise OSError(ctypes.get_errno(), "landlock_restrict_self failed")
    finally:
        os.close(ruleset)
