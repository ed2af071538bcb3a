"""How many rows a batch has: what the device's free memory holds, and half as many once it ran out."""

from __future__ import annotations

from dataclasses import dataclass

#: Share of the free memory that one batch may take: others grow, too, and needs are not quite linear.
SHARE = 0.5
#: Rows of the calls that are measured: the difference is what a row takes.
FEW, SOME = 1, 16


@dataclass(frozen=True)
class Footprint:
    """``row_bytes`` that one more row of a call takes, ``free_bytes`` that are left for rows, and
    ``timely_rows`` that take a tenth of the time that a call may, at the pace of a short one."""

    row_bytes: int
    free_bytes: int
    timely_rows: int = 2**62


def rows_that_fit(footprint: Footprint, most: int) -> int:
    """Return the rows of a batch, 1..``most``: all of them, or the power of two that fits.

    A power of two, so that measurements a little apart give the same batches, and those the same sums.
    """
    fitting = int(SHARE * footprint.free_bytes) // max(1, footprint.row_bytes)
    return most if fitting >= most else _power(fitting)


def _power(rows: int) -> int:
    return 1 << max(0, rows.bit_length() - 1)


class BatchSize:
    """Rows of batches of one model. ``large`` ones serve a long call, ``small`` ones the rest.

    Of a model without padding both are the same. What shrinks stays so, until ``restore``.
    """

    def __init__(self, small: int, large: int) -> None:
        self.small, self.large = small, large

    def fit(self, footprint: Footprint) -> None:
        """Take what fits the memory; large batches also what is done in time."""
        if footprint.timely_rows < self.large:
            self.large = max(self.small, _power(footprint.timely_rows))
        self.limit(rows_that_fit(footprint, self.large))

    def limit(self, rows: int) -> None:
        """Take at most so many rows from now on."""
        self.large = min(self.large, rows)
        self.small = min(self.small, rows)

    def next(self, left: int, *, alone: bool) -> int:
        """Return the rows of the next batch of a call that has ``left`` to go.

        Large batches are for calls that go ``alone``: so the batch that a row is in depends on
        its own call only.
        """
        return self.large if alone and left >= self.large else self.small

    def saved(self) -> tuple[int, int]:
        """Return the state, for ``restore``."""
        return self.small, self.large

    def restore(self, state: tuple[int, int]) -> None:
        """Take back what shrank: it was not the batch."""
        self.small, self.large = state
