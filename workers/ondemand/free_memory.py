"""Memory that the system would still give: what the machine has, and control groups leave (Linux)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

#: A limit of control groups (version 1) that says none.
_NO_LIMIT = 2**60


def free_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes, None where the system does not say. ``root`` holds its proc and sys.

    Files that the kernel holds and could drop count as free, for the machine and for groups.
    """
    found = [_available(root)]
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            folder, limit, used, name = "sys/fs/cgroup", "memory.max", "memory.current", ""
        elif "memory" in controllers.split(","):
            folder, name = "sys/fs/cgroup/memory", "total_"
            limit, used = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        for group in _upwards(root / folder, path):
            found.append(_left(group, limit, used, f"{name}inactive_file"))
    known = [count for count in found if count is not None]
    return min(known) if known else None


def _available(root: Path) -> int | None:
    kibibytes = _entry(root / "proc/meminfo", "MemAvailable:")
    return None if kibibytes is None else 1024 * kibibytes


def _upwards(folder: Path, path: str) -> Iterator[Path]:
    """Yield the group's folder and those above it; limits above hold, too."""
    # Inside a container the path may be the host's, of which only the top is mounted.
    parts = PurePosixPath(path.lstrip("/")).parts
    for length in range(len(parts), -1, -1):
        yield folder.joinpath(*parts[:length])


def _left(group: Path, limit: str, used: str, droppable: str) -> int | None:
    try:
        most = (group / limit).read_text().strip()
        taken = int((group / used).read_text())
    except (OSError, ValueError):
        return None
    if not most.isdecimal() or int(most) >= _NO_LIMIT:
        return None
    return max(0, int(most) - taken + (_entry(group / "memory.stat", droppable) or 0))


def _entry(file: Path, name: str) -> int | None:
    """Return the number that follows a name at the start of a line."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        words = line.split()
        if len(words) > 1 and words[0] == name and words[1].isdecimal():
            return int(words[1])
    return None
