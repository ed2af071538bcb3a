"""whylogs: a profile of every window, compared with the first one's by its own drift scores."""

import pandas as pd
import whylogs as why
from drift_windows import run
from whylogs.viz.drift.column_drift_algorithms import calculate_drift_scores


def view(told, window):
    return why.log(pd.DataFrame(told.table(window))).view()


def detect(told):
    reference = view(told, 0)
    for window in told.watched():
        found = calculate_drift_scores(view(told, window), reference, with_thresholds=True)
        drifted = [name for name, score in found.items() if score["drift_category"] == "DRIFT"]
        told.tell_window("whylogs, drift scores", window, drifted)


run(detect)
