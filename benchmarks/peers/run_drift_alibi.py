"""alibi-detect: the Kolmogorov-Smirnov detector, defaults (p < 0.05, Bonferroni over the columns)."""

import numpy as np
from alibi_detect.cd import KSDrift
from drift_windows import LEVEL, run


def detect(told):
    names = list(told.columns())
    detector = KSDrift(np.column_stack(list(told.table(0).values())), p_val=LEVEL)
    for window in told.watched():
        rows = np.column_stack(list(told.table(window).values()))
        found = detector.predict(rows, drift_type="feature")["data"]
        below = found["p_val"] < LEVEL / len(names)
        drifted = [name for name, yes in zip(names, below, strict=True) if yes]
        told.tell_window("alibi-detect, KSDrift", window, drifted)


run(detect)
