"""Apache DataSketches (C++): quantile sketches of every feature, fed with arrays."""

import datasketches
import numpy as np
from timing import Peer, batches

peer = Peer("datasketches")
rows, d = len(peer.X), peer.X.shape[1]
K = 200
# The conversion to float32 is the vector sketch's own demand and is not timed.
floats = peer.X.astype(np.float32)


def vector_kll() -> object:
    state = datasketches.vector_of_kll_floats_sketches(K, d)
    for at in batches(rows):
        state.update(floats[at])
    return state


def columns(kind: type) -> list[object]:
    states = [kind(K) for _ in range(d)]
    for at in batches(rows):
        part = np.ascontiguousarray(peer.X[at].T)
        for state, values in zip(states, part, strict=True):
            state.update(values)
    return states


def size(states: list[object]) -> int:
    return sum(len(state.serialize()) for state in states)


kll, tdigest = datasketches.kll_doubles_sketch, datasketches.tdigest_double
kll_size = sum(len(part) for part in vector_kll().serialize())
peer.time("KLL of float32, all features in one call", vector_kll, rows, "digest", kll_size)
peer.time("KLL of float64, one a feature", lambda: columns(kll), rows, "digest", size(columns(kll)))
peer.time(
    "t-digest of float64, compression 200, one a feature",
    lambda: columns(tdigest),
    rows,
    "digest",
    size(columns(tdigest)),
)
peer.report()
