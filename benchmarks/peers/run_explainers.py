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
few = rows[: settings["slow_rows"]]
numeric = np.ones(X.shape[1])
numeric[[j for group in groups for j in group]] = 0.0
near = metrics.neighbours(rows, settings["neighbours"], settings["size"] * numeric, rng)
tops = sorted({1, max(1, X.shape[1] // 4), max(1, X.shape[1] // 2)})
outputs = model(rows)


def faithful(attributions, baseline):
    """Return the measures (n,) that set features to a baseline."""
    gaps = {
        variant: np.mean(
            [
                metrics.prediction_gap(
                    model, rows, attributions, k, variant=variant, baseline=baseline
                )
                for k in tops
            ],
            axis=0,
        )
        for variant in ("keep", "delete")
    }
    return {
        "pgi_keep": gaps["keep"],
        "pgi_delete": gaps["delete"],
        "insertion": metrics.insertion_curve(model, rows, attributions, baseline=baseline).area,
        "deletion": metrics.deletion_curve(model, rows, attributions, baseline=baseline).area,
    }


def measured(explain):
    """Return the measures of every row, those of all rows together, and the times a row."""
    slow = seconds(lambda: explain(rows[:1]), 1)[0] > settings["slow_seconds"]
    repeated = few if slow else rows
    answers = []
    times = seconds(lambda: answers.append(explain(repeated)[0]), settings["runs"], warm_ups=0)
    attributions, base = explain(rows)
    replayed = iter(answers)
    runs = metrics.run_stability(lambda X: next(replayed), repeated, len(answers))

    def known(X):
        return attributions if X.shape == rows.shape else explain(X)[0]

    stability = metrics.relative_stability(known, model, rows, near)
    gap = np.abs(outputs - base - attributions.sum(axis=1))
    of_rows = {
        "ris_mean": stability.ris_mean,
        "ros_mean": stability.ros_mean,
        **faithful(attributions, 0.0),
        **{
            f"{key}_centred": value
            for key, value in faithful(attributions, background.mean(axis=0)).items()
        },
        "lap": (gap <= settings["epsilon"]).astype(float),
    }
    whole = {
        "ris_max": np.nanmax(stability.ris_max),
        "ros_max": np.nanmax(stability.ros_max),
        "res": runs.max(),
    }
    return of_rows, whole, [taken / len(repeated) for taken in times]


def mean(values):
    """Return the mean over the rows that have a value, and its standard error."""
    there = values[np.isfinite(values)]
    return [there.mean(), there.std(ddof=1) / np.sqrt(len(there)) if len(there) > 1 else 0.0]


entries = []
own = None
for name, explain in methods(model, background, X[train][:1000], groups, peers == "peers").items():
    explain(rows[:1])  # compiles what is compiled
    of_rows, whole, times = measured(explain)
    own = own or of_rows
    entries.append(
        {
            "who": name,
            **whole,
            **{key: values[np.isfinite(values)].mean() for key, values in of_rows.items()},
            "error": {key: mean(values)[1] for key, values in of_rows.items()},
            # What T-Explainer has more of, on the same rows.
            "behind": {key: mean(own[key] - values) for key, values in of_rows.items()},
            "seconds": times,
        }
    )
about = {"accuracy": accuracy, "tops": tops, "columns": X.shape[1], "entries": entries}
print(json.dumps(about, default=float))
