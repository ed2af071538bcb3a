"""One table and one model: every explainer's stability, faithfulness, additivity and time, as JSON."""

import json
import sys

import numpy as np
from explained_methods import methods
from explained_models import MODELS
from timing import seconds

from attributary.workers.explainers import metrics

path, kind, size, peers = sys.argv[1:]
settings = json.loads(size)
with np.load(path) as arrays:
    X, y = arrays["X"], arrays["y"]
    groups = json.loads(str(arrays["groups"]))

rng = np.random.default_rng(11)
order = rng.permutation(len(X))
held, train = order[: len(X) // 5], order[len(X) // 5 :]
model = MODELS[kind](X[train], y[train])
accuracy = float(((model(X[held]) > 0.5) == y[held]).mean())
background = X[train][: settings["background"]]
rows = X[held][: settings["rows"]]
numeric = np.ones(X.shape[1])
numeric[[j for group in groups for j in group]] = 0.0
near = metrics.neighbours(rows, settings["neighbours"], settings["size"] * numeric, rng)
top = max(1, X.shape[1] // 4)


def timed(explain, rows):
    answers = []
    times = seconds(lambda: answers.append(explain(rows)), 1, warm_ups=0)
    return times, answers[0]


entries = []
for name, explain in methods(model, background, X[train][:1000], groups, peers == "peers").items():
    explain(rows[:1])  # compiles what is compiled
    (taken,), (attributions, base) = timed(explain, rows)

    def values(X, explain=explain):
        return explain(X)[0]

    stability = metrics.relative_stability(values, model, rows, near)
    gaps = {
        variant: metrics.prediction_gap(model, rows, attributions, top, variant=variant).mean()
        for variant in ("keep", "delete")
    }
    entries.append(
        {
            "who": name,
            "ris_max": np.nanmax(stability.ris_max),
            "ris_mean": np.nanmean(stability.ris_mean),
            "ros_max": np.nanmax(stability.ros_max),
            "ros_mean": np.nanmean(stability.ros_mean),
            "res": metrics.run_stability(values, rows, settings["runs"]).max(),
            "pgi_keep": gaps["keep"],
            "pgi_delete": gaps["delete"],
            "lap": metrics.local_accuracy(model(rows), base, attributions, settings["epsilon"]),
            "deletion": metrics.deletion_curve(model, rows, attributions).area.mean(),
            "insertion": metrics.insertion_curve(model, rows, attributions).area.mean(),
            "seconds": [taken],
            "rows": len(rows),
        }
    )
about = {"accuracy": accuracy, "top": top, "columns": X.shape[1], "entries": entries}
print(json.dumps(about, default=float))
