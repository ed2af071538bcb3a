"""The streams of a folder, window by window, and the alarms on them: [row told at, name] each."""

import json
import sys
from pathlib import Path

import numpy as np

LEVEL = 0.05


class Told:
    """The alarms of every detector on one stream, from window ``watch`` on."""

    def __init__(self, path):
        held = np.load(path)
        self.X, self.y = held["X"], held["y"]
        self.rows, self.watch, self.windows = (
            int(held[k]) for k in ("window_rows", "watch", "windows")
        )
        self.weights, self.even = held.get("weights"), held.get("even")
        self.names = [f"x{j}" for j in range(self.X.shape[1])]
        self.alarms = {}

    def columns(self):
        """Return the columns by the name of what is told of them."""
        named = {f"input:{name}": self.X[:, j] for j, name in enumerate(self.names)}
        return {**named, "output:y": self.y}

    def table(self, window):
        """Return a window's columns."""
        at = slice(window * self.rows, (window + 1) * self.rows)
        return {name: column[at] for name, column in self.columns().items()}

    def watched(self):
        """Yield the windows to compare with the first."""
        yield from range(self.watch, self.windows)

    def tell(self, detector, row, name):
        """Note an alarm, known once ``row`` rows have been seen."""
        self.alarms.setdefault(detector, []).append([row, name])

    def tell_window(self, detector, window, names):
        """Note what is known at the end of a window."""
        self.alarms.setdefault(detector, [])
        for name in names:
            self.tell(detector, (window + 1) * self.rows, name)


def run(detect):
    """Run ``detect`` on each stream of the folder, and print what it told."""
    found = {}
    for path in sorted(Path(sys.argv[1]).glob("*.npz")):
        told = Told(path)
        detect(told)
        found[path.stem] = told.alarms
    print(json.dumps(found))
