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

#: Blocks that a budget is cut into at least, before blocks grow to all m shifts.
BLOCKS = 4


@dataclass(frozen=True)
class Design:
    """``blocks`` of 2 ``shifts`` permutations of ``units`` each."""

    units: int
    shifts: int
    blocks: int

    @classmethod
    def for_budget(cls, units: int, permutations: int) -> Design:
        """Return whole blocks of at least ``permutations`` permutations in all, 2 blocks or more."""
        if permutations < 1:
            raise ValueError(f"n_permutations must be at least 1, got {permutations}")
        spacing = -(-units // max(1, min(units, permutations // (2 * BLOCKS))))
        shifts = -(-units // spacing)
        return cls(units, shifts, max(2, -(-permutations // (2 * shifts))))

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
