"""Where units stand: the slots' places on an axis, and slots that share one (a visit)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Positions:
    """The axis of slots: ``place`` (m,) of each slot, ``values`` (g,) its distinct places, sorted.

    ``column`` (m,) is the index in ``values`` of each slot's place, ``centred`` (m,) the place
    less the mean over slots, ``variance`` its variance over slots (0 where all slots share one).
    """

    place: Floats
    values: Floats
    column: npt.NDArray[np.int64]
    centred: Floats
    variance: float

    @classmethod
    def of(cls, place: npt.ArrayLike) -> Positions:
        """Return the axis of slots at ``place`` (m,), finite numbers such as indexes or times."""
        at = np.asarray(place, dtype=np.float64)
        if at.ndim != 1 or not np.isfinite(at).all():
            raise ValueError(f"positions must be finite numbers, one per slot, got {at.tolist()}")
        values, column = np.unique(at, return_inverse=True)
        centred = at - at.mean()
        return cls(at, values, column.astype(np.int64), centred, float((centred**2).mean()))

    @property
    def scaled(self) -> Floats:
        """``centred`` in units of its largest distance, within [-1, 1]."""
        reach = float(np.abs(self.centred).max(initial=0.0))
        return self.centred / reach if reach > 0.0 else self.centred

    def by_column(self, per_slot: Floats) -> Floats:
        """Return (..., g): the mean of ``per_slot`` (..., m) over the slots of each place.

        NaN slots are left out; a place of which nothing is known stays NaN.
        """
        known = ~np.isnan(per_slot)
        shares = self.column[:, None] == np.arange(len(self.values))
        total, count = np.where(known, per_slot, 0.0) @ shares, known @ shares.astype(np.float64)
        found: Floats = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
        return found

    def slope(self, per_slot: Floats) -> Floats:
        """Return (...,): the least-squares slope over slots, 0 where all slots share one place."""
        if self.variance == 0.0:
            return np.zeros(per_slot.shape[:-1])
        found: Floats = per_slot @ self.centred / (len(self.centred) * self.variance)
        return found
