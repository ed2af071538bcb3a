"""evidently: the drift of every column by the test that its reports choose (up to 1,000 rows: KS, p < 0.05).

The test is called as a report calls it; a report draws a picture of every column besides.
"""

import warnings

import pandas as pd
from drift_windows import run

warnings.filterwarnings("ignore")

from evidently.legacy.calculations.stattests import get_stattest  # noqa: E402 - after its warnings
from evidently.legacy.core import ColumnType  # noqa: E402


def detect(told):
    reference = {name: pd.Series(column) for name, column in told.table(0).items()}
    for window in told.watched():
        drifted = []
        for name, column in told.table(window).items():
            now = pd.Series(column)
            test = get_stattest(reference[name], now, ColumnType.Numerical, None)
            if test(reference[name], now, ColumnType.Numerical, None).drifted:
                drifted.append(name)
        told.tell_window("evidently, column drift", window, drifted)


run(detect)
