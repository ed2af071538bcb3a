"""One hash a row: of its id, else of where it lies. It draws samples, and what a light pass keeps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from attributary.workers.maths.sample import HashArray, hash_ids, hash_integers


@lru_cache(maxsize=4096)
def _seed(place: str) -> HashArray:
    return hash_ids([place])


def row_hashes(
    place: str, offsets: npt.ArrayLike, indices: npt.ArrayLike, ids: Sequence[bytes | None] | None
) -> HashArray:
    """Return (n,) the hashes of rows number ``indices`` (n,) of the messages at ``offsets`` (n,).

    ``place`` is topic/partition. A row of ``ids`` that is not None is hashed by its id alone, so that a row
    sent twice is kept, or left out, twice.
    """
    seed = _seed(place)
    at = np.asarray(offsets).astype(np.uint64) + seed
    found = hash_integers(hash_integers(at) + np.asarray(indices).astype(np.uint64))
    if ids is not None:
        named = [i for i, given in enumerate(ids) if given is not None]
        found[named] = hash_ids([given for given in ids if given is not None])
    return found
