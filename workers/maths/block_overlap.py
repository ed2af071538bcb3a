"""How far the members of a block coincide in one row: what the error of its score needs.

The sums of single features give a block's score but not its variance. A± is the part of a row's
mass in the block that is aligned with the output, or against it: A± = Σ_j max(±p_j, 0).
Σw²(A±)² over rows, about the reference, divided by the same summed feature by feature, is 1 for
columns that exclude each other (the levels of a categorical feature) and up to the number of
members for columns that move together. Σw²A+A-, as a cosine, says how far they cancel within a
row. Neither changes much while the centre stays near the reference, so they are measured at the
reference and applied at the centre.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from attributary.workers.maths.binning import hinges_of_edges, standardise
from attributary.workers.maths.comovement import CoMovement
from attributary.workers.maths.groups import (
    SCALES,
    Groups,
    Scale,
    checked_groups,
    member_factors,
)
from attributary.workers.maths.wire import IncompatibleStateError, pack, unpack

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_MAGIC = b"BLOV"
_VERSION = 1


class BlockOverlap:
    """Σ w² of (A+)², (A-)² and A+A- of declared blocks; ``squares`` (scales, 3, blocks, c)."""

    def __init__(self, state: CoMovement, blocks: Groups | None) -> None:
        self.blocks = checked_groups(blocks, state.columns)
        self._factors = _factors(state, self.blocks)
        self.squares = np.zeros((len(SCALES), 3, len(self.blocks), state.outputs))

    def update(self, state: CoMovement, X: Floats, Y: Floats, weights: Floats | None) -> None:
        """Add rows, standardised as ``state`` does; missing entries have no mass."""
        if not self.blocks:
            return
        y = standardise(Y, state.y_reference, state.y_unit)
        y[~np.isfinite(Y)] = 0.0
        weighted = y if weights is None else y * weights[:, None]
        gross_y = np.abs(weighted)
        for b, members in enumerate(self.blocks.values()):
            columns = X[:, members]
            x = standardise(columns, state.x_reference[members], state.x_unit[members])
            x[~np.isfinite(columns)] = 0.0
            for s, factors in enumerate(self._factors):
                net, gross = x @ factors[b], np.abs(x) @ factors[b]
                p, u = net[:, None] * weighted, gross[:, None] * gross_y
                aligned, against = (u + p) / 2.0, (u - p) / 2.0
                self.squares[s, 0, b] += (aligned * aligned).sum(axis=0)
                self.squares[s, 1, b] += (against * against).sum(axis=0)
                self.squares[s, 2, b] += (aligned * against).sum(axis=0)

    def merge(self, other: BlockOverlap) -> None:
        """Add the sums of ``other``, of the same blocks on the same grid."""
        if not self.same_blocks(other):
            raise ValueError(
                f"cannot merge the blocks {sorted(other.blocks)} into {sorted(self.blocks)}: "
                "names, members and grids must be equal"
            )
        self.squares += other.squares

    def same_blocks(self, other: BlockOverlap) -> bool:
        """Say whether the sums of ``other`` may be added to these."""
        return list(self.blocks) == list(other.blocks) and all(
            np.array_equal(mine, its)
            for mine, its in zip(self.blocks.values(), other.blocks.values(), strict=True)
        )

    def overlap(self, state: CoMovement, name: str, scale: Scale) -> Floats:
        """Return Σw²(A±_G)² / Σ_j Σw²(A±_j)² and the cosine of A+ and A-, (c, 3)."""
        members = self.blocks[name]
        s, b = SCALES.index(scale), list(self.blocks).index(name)
        factor = self._factors[s][b]
        plain, signed = state.moments[:, 2, 2][:, :, members]
        aligned, against, both = self.squares[s, :, b]
        found = []
        for sign, joint in ((1.0, aligned), (-1.0, against)):
            each = np.maximum(plain + sign * signed, 0.0) / 2.0 @ (factor * factor)
            share = np.divide(joint, each, out=np.ones_like(each), where=each > 0.0)
            found.append(np.clip(share, 1.0, members.size))
        size = np.sqrt(aligned) * np.sqrt(against)
        found.append(np.divide(both, size, out=np.zeros_like(size), where=size > 0.0))
        return np.stack(found, axis=-1)

    def scaled(self, factor: float, state: CoMovement) -> BlockOverlap:
        """Return a copy in which every row weighs ``factor`` times as much."""
        other = BlockOverlap(state, self.blocks)
        other.squares += self.squares * factor * factor
        return other

    def to_bytes(self) -> bytes:
        """Return names, members and sums as bytes."""
        names = "\0".join(self.blocks).encode()
        members = list(self.blocks.values())
        sizes = np.array([index.size for index in members], dtype=np.uint32)
        joined = np.concatenate([*members, np.zeros(0, dtype=np.int64)]).astype(np.uint32)
        text = np.frombuffer(names, dtype=np.uint8)
        return pack(_MAGIC, _VERSION, [text, sizes, joined, self.squares])

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, state: CoMovement) -> BlockOverlap:
        """Return what ``to_bytes`` wrote, for blocks on the grid of ``state``."""
        try:
            text, sizes, joined, squares = unpack(data, _MAGIC, _VERSION)
            names = text.tobytes().decode().split("\0") if sizes.size else []
            ends = np.cumsum(sizes.astype(np.int64))
            parts = np.split(joined.astype(np.int64), ends[:-1]) if sizes.size else []
            made = cls(state, dict(zip(names, [part.tolist() for part in parts], strict=True)))
            made.squares += squares.reshape(made.squares.shape)
        except IncompatibleStateError:
            raise
        except ValueError as error:
            raise IncompatibleStateError(f"block sums are damaged: {error}") from None
        return made


def _factors(state: CoMovement, blocks: dict[str, Integers]) -> list[list[Floats]]:
    low, high = hinges_of_edges(state.x_edges)
    with np.errstate(over="ignore"):
        iqr = high - low
    return [
        [member_factors(index, state.x_unit, iqr, scale) for index in blocks.values()]
        for scale in SCALES
    ]
