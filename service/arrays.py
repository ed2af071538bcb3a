"""numpy's values told without numpy: who has one has loaded it, and nobody else has to wait for that."""

from __future__ import annotations

from collections.abc import Sequence
from sys import modules
from typing import Any

import msgspec

PLAIN = frozenset({float, int, bool, str, type(None)})
"""What JSON carries as it is."""


def is_array(value: Any) -> bool:
    """Whether it is an array of numpy's own class."""
    # By default, for another thread may be in the middle of loading it.
    return type(value) is getattr(modules.get("numpy"), "ndarray", None)


def is_numpy(value: Any) -> bool:
    """Whether it is an array or a scalar of numpy's own classes."""
    return type(value).__module__ == "numpy"


class Numbers(msgspec.Struct, frozen=True, gc=False):
    """A vector of numbers as it was: the array that it comes from may change afterwards."""

    data: bytes
    dtype: Any
    count: int

    def tolist(self) -> list[Any]:
        """Return them as Python's numbers."""
        import numpy as np  # who made the array has loaded it

        found: list[Any] = np.frombuffer(self.data, self.dtype).tolist()
        return found


def numbers(array: Any) -> Numbers | None:
    """Return the vector of an array of shape (n,) or (1, n); None where Python has no such numbers."""
    dtype = array.dtype
    if dtype.kind not in "fiub" or dtype.itemsize > 8:
        return None
    return Numbers(array.tobytes(), dtype, array.size)


def as_array(value: Any) -> Any:
    """Return what numpy makes of a value, whose library need not have loaded it."""
    if is_array(value):
        return value
    import numpy as np

    return np.asarray(value)


def dimensions(value: Any) -> int:
    """Return how many there are: 0 of a number or a text, 1 of a list of whatever."""
    found = getattr(value, "ndim", None)
    if found is not None:
        return int(found)
    return int(hasattr(value, "__len__") and not isinstance(value, (str, bytes)))


def plain_vector(values: Any) -> bool:
    """Whether it is a list of numbers, texts and None, which needs no numpy."""
    return isinstance(values, (list, tuple)) and PLAIN.issuperset(map(type, values))


def plain_matrix(values: Any) -> Sequence[Sequence[Any]] | None:
    """Return a list of lists of one length that needs no numpy; None where it is something else."""
    if not isinstance(values, (list, tuple)) or not all(map(plain_vector, values)):
        return None
    return values if len(set(map(len, values))) == 1 else None
