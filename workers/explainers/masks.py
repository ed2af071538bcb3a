"""What stands in a masked element's place, where it is not one constant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Background:
    """Masked elements show what stands at the same place of a sequence drawn from ``sequences``.

    ``sequences`` (n, d, ...) have the shape of the explained sequence. A coalition's value is then
    the mean over the n draws: exactly that where everything is enumerated, one draw at a time
    where permutations or subsets are sampled.
    """

    sequences: npt.NDArray[Any]

    def checked(self, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return the sequences as an array; ValueError where they do not fit ``shape``."""
        found = np.asarray(self.sequences)
        if found.ndim != len(shape) + 1 or found.shape[1:] != shape or not len(found):
            raise ValueError(
                f"a background holds at least one sequence shaped like the explained one, "
                f"(n, {', '.join(map(str, shape))}); got {found.shape}"
            )
        return found
