"""Mutual information, permutation importance, TreeSHAP and SAGE of a model of trees, as JSON.

Arguments: an npz file of tables X0, y0, X1, y1, ... (2n rows each: the model learns the first half, the
second is explained), and whether mutual information is of the model's outputs rather than of y.
"""

import json
import sys
import warnings

import numpy as np
import sage
import shap
import xgboost
from sklearn.feature_selection import mutual_info_regression
from sklearn.inspection import permutation_importance

warnings.filterwarnings("ignore")
rows, of_model = sys.argv[1], json.loads(sys.argv[2])
BACKGROUND, PERMUTATIONS, SAGE_ROWS = 32, 128, 512
found = []
with np.load(rows) as arrays:
    tables = [(arrays[f"X{k}"], arrays[f"y{k}"]) for k in range(len(arrays.files) // 2)]
for X, y in tables:
    half = len(X) // 2
    model = xgboost.XGBRegressor(
        n_estimators=200, max_depth=4, learning_rate=0.1, n_jobs=1, random_state=0
    )
    model.fit(X[:half], y[:half])
    X, y = X[half:], y[half:]
    outputs = model.predict(X).astype(np.float64)
    shuffled = permutation_importance(model, X, y, n_repeats=5, random_state=0, n_jobs=1)
    imputer = sage.MarginalImputer(model.predict, X[:BACKGROUND])
    estimate = sage.PermutationEstimator(imputer, "mse", random_state=0)
    shared = estimate(
        X[:SAGE_ROWS],
        y[:SAGE_ROWS],
        batch_size=64,
        detect_convergence=False,
        n_permutations=PERMUTATIONS,
        bar=False,
    )
    scores = {
        "MI": mutual_info_regression(X, outputs if of_model else y, random_state=0),
        "permutation": np.maximum(shuffled.importances_mean, 0),
        "TreeSHAP": np.abs(shap.TreeExplainer(model).shap_values(X)).mean(axis=0),
        "SAGE": np.maximum(shared.values, 0),
    }
    found.append(
        {
            "scores": {name: values.astype(float).tolist() for name, values in scores.items()},
            "outputs": outputs.tolist(),
            "fit": float(model.score(X, y)),
        }
    )
print(json.dumps(found))
