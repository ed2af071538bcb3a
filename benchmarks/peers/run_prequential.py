"""river and ixai: a model that is tested and then trained on every row, explained as it goes.

Regression: a Hoeffding adaptive tree; classes: a logistic regression, whose output is its log odds. The
outputs go to a file; printed are ixai's importances at the end of every window, the model's error in every
window, and where river's ADWIN finds that the error has changed.
"""

import itertools
import json
import math
import sys
import warnings
from pathlib import Path

import numpy as np
from ixai.explainer import IncrementalPFI, IncrementalSage
from river import datasets, drift, linear_model, optim, preprocessing, tree

warnings.filterwarnings("ignore")

ALPHA = 0.001  # the smoothing of ixai's examples
SHUTTLE_ROWS, SHUTTLE_WINDOW = 12_000, 300


def shuttle():
    rows = list(itertools.islice(datasets.Shuttle(), SHUTTLE_ROWS))
    names = sorted(rows[0][0])
    X = np.array([[float(x[name]) for name in names] for x, _ in rows])
    return X, np.array([float(y) for _, y in rows]), names, SHUTTLE_WINDOW


class Tree:
    """Predicts a number."""

    def __init__(self):
        self.model = tree.HoeffdingAdaptiveTreeRegressor(seed=1)

    def output(self, row):
        return float(self.model.predict_one(row))

    def learn(self, row, true):
        self.model.learn_one(row, true)

    def error(self, true, output):
        return abs(true - output)

    loss = error


class Odds:
    """Predicts the log odds of a class."""

    def __init__(self):
        self.scale = preprocessing.StandardScaler()
        self.model = linear_model.LogisticRegression(optim.SGD(0.05))

    def output(self, row):
        p = self.model.predict_proba_one(self.scale.transform_one(row))[True]
        p = min(max(p, 1e-9), 1 - 1e-9)
        return math.log(p / (1 - p))

    def learn(self, row, true):
        self.scale.learn_one(row)
        self.model.learn_one(self.scale.transform_one(row), bool(true))

    def error(self, true, output):
        return float((output > 0) != bool(true))

    def loss(self, true, output):
        return math.log1p(math.exp(-output if true else output))


def main(asked, written):
    held = np.load(asked)
    if "X" in held:
        X, y, names, window = held["X"], held["y"], held["names"].tolist(), int(held["window_rows"])
        model = Tree()
    else:
        X, y, names, window = shuttle()
        model = Odds()
    explainers = {
        name: kind(
            model_function=lambda row: {"output": model.output(row)},
            loss_function=lambda true, found: model.loss(true, found["output"]),
            feature_names=names,
            smoothing_alpha=ALPHA,
        )
        for name, kind in (("PFI", IncrementalPFI), ("SAGE", IncrementalSage))
    }
    watch = drift.ADWIN()
    outputs, errors, changes = np.zeros(len(X)), np.zeros(len(X)), []
    importances = {name: [] for name in explainers}
    for k in range(len(X)):
        row, true = dict(zip(names, X[k].tolist(), strict=True)), float(y[k])
        outputs[k] = model.output(row)
        errors[k] = model.error(true, outputs[k])
        watch.update(errors[k])
        if watch.drift_detected:
            changes.append(k // window)
        for explainer in explainers.values():
            explainer.explain_one(row, true)
        model.learn(row, true)
        if (k + 1) % window == 0:
            for name, explainer in explainers.items():
                found = explainer.importance_values
                importances[name].append([float(found[feature]) for feature in names])
    np.savez(written, X=X, outputs=outputs)
    whole = len(X) // window
    mean = errors[: whole * window].reshape(whole, window).mean(axis=1)
    about = {"names": names, "window_rows": window, "error": mean.tolist(), "changes": changes}
    print(json.dumps({**about, "importances": importances}))


main(Path(sys.argv[1]), Path(sys.argv[2]))
