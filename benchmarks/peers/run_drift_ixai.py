"""ixai: incremental PFI and SAGE of the model as it is at every row, read at the end of every window.

It has no rule for a change. These are applied to its importances: the feature that leads was
not among the first three, or Kendall's tau of the order is below one half; against the reference, which is
the window before the first that is watched.
"""

import warnings

from drift_windows import run
from ixai.explainer import IncrementalPFI, IncrementalSage
from scipy.stats import kendalltau

warnings.filterwarnings("ignore")

ALPHA = 0.001  # the smoothing of its examples: what is older than a thousand rows fades
LEARN = 6  # windows before the reference
KINDS = {"ixai, incremental PFI": IncrementalPFI, "ixai, incremental SAGE": IncrementalSage}


def loss(true, predicted):
    return (true - predicted["output"]) ** 2


def detect(told):
    names = told.names
    now = {"row": 0}

    def model(row):
        k = now["row"]
        total = 0.0
        for j, name in enumerate(names):
            value = row[name]
            total += told.weights[k, j] * value + told.even[k, j] * (value * value - 1.0)
        # What the output went through after the model is none of the model.
        return {"output": total}

    explainers = {
        detector: kind(
            model_function=model, loss_function=loss, feature_names=names, smoothing_alpha=ALPHA
        )
        for detector, kind in KINDS.items()
    }
    reference = {}
    for window in range(max(0, told.watch - 1 - LEARN), told.windows):
        for row in range(window * told.rows, (window + 1) * told.rows):
            now["row"] = row
            record = dict(zip(names, told.X[row].tolist(), strict=True))
            for explainer in explainers.values():
                explainer.explain_one(record, float(told.y[row]))
        for detector, explainer in explainers.items():
            found = [float(explainer.importance_values[name]) for name in names]
            if window == told.watch - 1:
                reference[detector] = found
            elif window >= told.watch:
                told.tell_window(detector, window, changed(reference[detector], found, names))


def changed(before, after, names):
    told = []
    lead = max(range(len(names)), key=after.__getitem__)
    if lead not in sorted(range(len(names)), key=lambda j: -before[j])[:3]:
        told.append(f"attribution:{names[lead]}")
    if kendalltau(before, after).statistic < 0.5:
        told.append("attribution:order")
    return told


run(detect)
