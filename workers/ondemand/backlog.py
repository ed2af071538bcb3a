"""The requests of one partition between what is committed and what is read."""

from __future__ import annotations


class Backlog:
    """Which offsets are read and not answered yet; what may be committed lies before all of them."""

    def __init__(self, start: int) -> None:
        self._read = start
        self._open: set[int] = set()
        self.committed = start

    @property
    def position(self) -> int:
        """Where reading goes on."""
        return self._read

    @property
    def commit(self) -> int:
        """Every request before this offset has its answer."""
        return min(self._open, default=self._read)

    def read(self, offset: int) -> None:
        """Take a request in."""
        self._open.add(offset)
        self._read = max(self._read, offset + 1)

    def done(self, offset: int) -> None:
        """The request's final answer is acknowledged."""
        self._open.discard(offset)

    def moved(self, committed: int) -> None:
        """Others have answered and committed up to here meanwhile."""
        self._open = {offset for offset in self._open if offset >= committed}
        self._read = max(self._read, committed)
        self.committed = max(self.committed, committed)
