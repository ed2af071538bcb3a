"""Which permutations to evaluate: blocks that put units at many slots, mirrored.

A block starts from one random permutation of the units and shifts it cyclically to q evenly spaced
places; every shift is taken as it is and mirrored. With q = m every unit
stands at every slot equally often. Each permutation brings a random order in which units join,
taken forwards and backwards. Every single permutation and order is uniform, so estimates are
unbiased; blocks are independent, so their spread is the standard error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

#: Blocks of all shifts that a budget is cut into at least. Of every other shift, where a block and its mirror
#: image still put every unit at every place, three do.
BLOCKS, LEAST_BLOCKS = 4, 3
NARROW, LEAST_SHIFTS = 2, 4
#: Further apart, blocks are skewed (a unit comes to the one place that matters in some of them, in others
#: not), and Student's t over few of them holds the truth in 88 to 92 % instead of 95 %: then there are more.
WIDE_BLOCKS, WIDE_SHIFTS = 8, 8
#: Wide blocks must be so much cheaper to be worth it: their error is several times as large.
MUCH = 1.5


@dataclass(frozen=True)
class Design:
    """``blocks`` of 2 ``shifts`` permutations of ``units`` each."""

    units: int
    shifts: int
    blocks: int

    @classmethod
    def for_budget(cls, units: int, permutations: int) -> Design:
        """Return whole blocks of at least ``permutations`` permutations in all.

        The least is 3 blocks of every other shift (of all shifts for up to 6 units), or 8 of 8 shifts for
        many units: for m units 3 m permutations (6 m), for more than 64 it is 128.
        """
        if permutations < 1:
            raise ValueError(f"n_permutations must be at least 1, got {permutations}")
        narrow = cls(units, units, LEAST_BLOCKS)
        if permutations < 2 * units * BLOCKS and -(-units // NARROW) >= LEAST_SHIFTS:
            narrow = cls(units, -(-units // NARROW), LEAST_BLOCKS)
        found = narrow
        if narrow.permutations > permutations:
            wanted = max(WIDE_SHIFTS, permutations // (2 * WIDE_BLOCKS))
            wide = cls(units, -(-units // -(-units // wanted)), WIDE_BLOCKS)
            if narrow.permutations > MUCH * max(permutations, wide.permutations):
                found = wide
        blocks = max(found.blocks, -(-permutations // (2 * found.shifts)))
        return cls(units, found.shifts, blocks)

    @property
    def permutations(self) -> int:
        """Permutations of all blocks."""
        return 2 * self.shifts * self.blocks

    def draw(self, draws: int, rng: np.random.Generator) -> tuple[Integers, Integers, Integers]:
        """Return one block: slot and rank (2q, m) of every unit, backgrounds (2q,) of ``draws``."""
        m, q = self.units, self.shifts
        shift = np.arange(q) * -(-m // q)
        slot = (rng.permutation(m) + shift[:, None]) % m
        slot = np.concatenate([slot, m - 1 - slot])
        rank = rng.permuted(np.tile(np.arange(m), (2 * q, 1)), axis=1)
        around = np.arange(2 * q) + rng.integers(draws)
        return slot, rank, rng.permutation(draws)[around % draws]
