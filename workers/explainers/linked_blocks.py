"""Which columns neighbourhoods look at together: the blocks of a correlation that are needed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

Integers = npt.NDArray[np.int64]

# Small matrix products cost their call, large ones their size.
_COLUMNS = 64


def linked_blocks(neighbourhoods: Sequence[Sequence[int]], outputs: Integers) -> list[Integers]:
    """Return sets of columns so that every feature, its neighbours and all ``outputs`` lie in one of them.

    Features that neighbourhoods link, however far, stay together; such groups are packed to about 64
    columns.
    """
    d = len(neighbourhoods)
    ends = [(i, j) for i, near in enumerate(neighbourhoods) for j in near]
    rows, columns = np.array(ends, dtype=np.int64).reshape(-1, 2).T
    links = csr_array((np.ones(len(ends)), (rows, columns)), shape=(d, d))
    _, label = connected_components(links, directed=False)
    order = np.argsort(label, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(label[order])) + 1)
    blocks: list[list[Integers]] = []
    room = 0
    for group in groups:
        if group.size > room:
            blocks.append([])
            room = _COLUMNS
        blocks[-1].append(group)
        room -= group.size
    return [np.concatenate([*block, outputs]).astype(np.int64) for block in blocks]
