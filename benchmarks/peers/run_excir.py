"""One importance a feature by ExCIR, SHAP, LIME, permutation and correlation, of the same trees, as JSON.

Arguments: an npz file of tables X0, y0, X1, y1, ... with "classes" and the rows that are learnt (train0,
...), and the settings {rows, background, peers}. What is explained is the first output.
"""

import gc
import json
import sys
import warnings

import numpy as np
from excir_models import Trees
from sklearn.inspection import permutation_importance
from timing import seconds

from attributary.workers.maths.cir import cir
from attributary.workers.maths.scores import strength_bound

warnings.filterwarnings("ignore")
path, size = sys.argv[1], json.loads(sys.argv[2])
if size["peers"]:
    import shap
    from lime.lime_tabular import LimeTabularExplainer
# What the libraries hold need not be looked through before every timed call.
gc.freeze()


def black_boxes(model, X, train):
    """SHAP's kernel and LIME, which see the model as a callable: mean |value| over a few rows."""

    def first(rows):
        return model.outputs(rows)[:, 0]

    kernel = shap.KernelExplainer(first, train[: size["background"]])
    lime = LimeTabularExplainer(train, mode="regression", random_state=0)

    def by_kernel():
        return np.abs(kernel.shap_values(X, silent=True)).mean(axis=0)

    def by_lime():
        found = np.zeros(X.shape)
        for k, x in enumerate(X):
            for j, value in lime.explain_instance(x, first, num_features=len(x)).local_exp[1]:
                found[k, j] = value
        return np.abs(found).mean(axis=0)

    return {"SHAP Kernel": by_kernel, "LIME": by_lime}


def once(X, y, train, classes):
    learnt = np.zeros(len(y), dtype=bool)
    learnt[train] = True
    model = Trees(X[learnt], y[learnt], classes)
    known, X, y = X[learnt], X[~learnt], y[~learnt]

    def by_cir():
        return strength_bound(cir(X, model.outputs(X)[:, 0]).interval)[0]

    def by_correlation():
        outputs = model.outputs(X)[:, :1]
        both = np.nan_to_num(np.corrcoef(np.hstack([X, outputs]), rowvar=False))
        return np.abs(both[-1, :-1])

    def by_permutation():
        return permutation_importance(
            model.library, X, y, n_repeats=3, random_state=0
        ).importances_mean

    def by_tree():
        values = shap.TreeExplainer(model.library).shap_values(X)
        return np.abs(values[..., 0] if values.ndim == 3 else values).mean(axis=0)

    ways = {"ExCIR": by_cir, "correlation": by_correlation, "permutation": by_permutation}
    rows = dict.fromkeys(ways, len(X))
    if size["peers"]:
        few = X[: size["rows"]]
        ways["SHAP Tree"], rows["SHAP Tree"] = by_tree, len(X)
        for name, way in black_boxes(model, few, known).items():
            ways[name], rows[name] = way, len(few)
    entries = {}
    for name, way in ways.items():
        answers = []
        quick = name in ("ExCIR", "correlation")
        taken = seconds(
            lambda way=way, answers=answers: answers.append(way()), 5 if quick else 1, int(quick)
        )
        entries[name] = {
            "scores": answers[-1].astype(float).tolist(),
            "seconds": float(np.median(taken)),
            "rows": rows[name],
        }
    return {"fit": model.score(X, y), "methods": entries}


with np.load(path) as arrays:
    classes = bool(arrays["classes"])
    tables = sum(name.startswith("train") for name in arrays.files)
    found = [
        once(arrays[f"X{k}"], arrays[f"y{k}"], arrays[f"train{k}"], classes) for k in range(tables)
    ]
print(json.dumps(found))
