"""Digests in the centroid format of the ``tdigest`` package, for programs that read it.

The package writes {"n", "delta", "K", "centroids": [{"m": mean, "c": count}, …]} and reads it with
``TDigest().update_from_dict(…)``. It ignores other keys, so the exact minimum and maximum and which
centroids are repeated values (the lists below) travel along and come back unchanged, as do the counts of
values that are not finite. The package
itself cannot hold NaN, blends repeated values, and rebuilds its tree one centroid at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attributary.workers.maths.centroids import compress
from attributary.workers.maths.tdigest import TDigests
from attributary.workers.maths.tdigest_state import DigestState

_K = 25  # the package's default: it compresses beyond K / delta centroids


def to_centroid_dicts(digests: TDigests) -> list[dict[str, Any]]:
    """Return one dict per column, plain numbers only; a column without values has no centroids.

    Beside the package's keys: "min" and "max" where there are values, "atoms", the positions of
    centroids whose values are all equal, and how many values there were ("values", which differs from "n"
    where they are weighted) and were not finite ("nan", "inf").
    """
    mean, weight, atom = digests.centroids
    values, nan, infinite = digests.count, digests.nan_count, digests.inf_count
    low, high, used = digests.minimum, digests.maximum, np.count_nonzero(weight, axis=1)
    result: list[dict[str, Any]] = []
    for j in range(digests.columns):
        size = used[j]
        entry: dict[str, Any] = {
            "n": float(weight[j].sum()),
            "delta": 1 / digests.compression,
            "K": _K,
            "centroids": [
                {"m": m, "c": c}
                for m, c in zip(mean[j, :size].tolist(), weight[j, :size].tolist(), strict=True)
            ],
            "values": int(values[j]),
            "nan": int(nan[j]),
            "inf": int(infinite[j]),
        }
        if size:
            entry |= {"min": float(low[j]), "max": float(high[j])}
            entry["atoms"] = np.flatnonzero(atom[j, :size]).tolist()
        result.append(entry)
    return result


def from_centroid_dicts(
    columns: Sequence[Mapping[str, Any] | Sequence[Mapping[str, float]]], compression: int = 200
) -> TDigests:
    """Return digests of columns given as dicts, or as bare lists of centroids.

    Where "atoms" is absent a centroid is a repeated value only if its count is at most 1; where
    "min" and "max" are absent the outermost means stand in for them, "values" are the sum of the counts,
    rounded, and "nan" and "inf" 0. Raises ValueError for centroids that are not
    finite or have no positive count.
    """
    entries: list[Mapping[str, Any]] = [
        c if isinstance(c, Mapping) else {"centroids": c} for c in columns
    ]
    widest = max((len(entry["centroids"]) for entry in entries), default=0)
    shape = (len(entries), max(widest, 1))
    mean, weight = np.full(shape, np.inf), np.zeros(shape)
    atom = np.zeros(shape, dtype=np.bool_)
    low, high = np.full(len(entries), np.inf), np.full(len(entries), -np.inf)
    for j, entry in enumerate(entries):
        centroids = entry["centroids"]
        if not centroids:
            continue
        m = np.array([c["m"] for c in centroids], dtype=np.float64) + 0.0
        c = np.array([c["c"] for c in centroids], dtype=np.float64)
        low[j], high[j] = entry.get("min", m.min()), entry.get("max", m.max())
        if not (np.isfinite(m).all() and np.isfinite(c).all() and (c > 0).all()):
            raise ValueError(f"column {j}: every centroid needs a finite m and a finite c > 0")
        if not (-np.inf < low[j] <= m.min() and m.max() <= high[j] < np.inf):
            raise ValueError(f"column {j}: means lie outside of {low[j]} (min) to {high[j]} (max)")
        repeated = np.isin(np.arange(m.size), entry["atoms"]) if "atoms" in entry else c <= 1
        order = np.argsort(m, kind="stable")
        mean[j, : m.size], weight[j, : m.size] = m[order], c[order]
        atom[j, : m.size] = repeated[order]
    total = weight.sum(axis=1)
    rounded = np.where(total > 0, np.maximum(np.rint(total), 1), 0).astype(np.int64)
    given = (entry.get("values", value) for entry, value in zip(entries, rounded, strict=True))
    count = np.where(total > 0, np.fromiter(given, np.int64, len(entries)), 0)
    nan, infinite = (
        np.array([entry.get(what, 0) for entry in entries], dtype=np.int64)
        for what in ("nan", "inf")
    )
    state = DigestState(compress(mean, weight, atom, compression), count, nan, infinite, low, high)
    return TDigests.from_state(state, compression)
