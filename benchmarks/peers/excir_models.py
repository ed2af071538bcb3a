"""The models of the ExCIR suites: boosted trees whose outputs are margins, one column each."""

import numpy as np
from xgboost import XGBClassifier, XGBRegressor


class Trees:
    """XGBoost, 60 trees of depth 3 (for each class of more than two), rate .2, one thread."""

    def __init__(self, X, y, classes, seed=0):
        kind = XGBClassifier if classes else XGBRegressor
        self.classes = classes
        self.library = kind(
            n_estimators=60, max_depth=3, learning_rate=0.2, n_jobs=1, random_state=seed
        ).fit(X, y)

    def outputs(self, X):
        """Return the margins, or the predictions of measurements (n, c)."""
        more = {"output_margin": True} if self.classes else {}
        found = np.asarray(self.library.predict(X, **more), dtype=np.float64)
        return found[:, None] if found.ndim == 1 else found

    def score(self, X, y):
        """Return accuracy, or R²."""
        return float(self.library.score(X, y))

    def gain(self, columns):
        """Return the total gain of each feature's splits (d,)."""
        named = self.library.get_booster().get_score(importance_type="total_gain")
        return np.array([named.get(f"f{j}", 0.0) for j in range(columns)])


def cut(n, seed, share=0.7):
    """Return the rows that the model learns and the others, drawn anew with every seed."""
    order = np.random.default_rng([seed, 22]).permutation(n)
    return order[: int(share * n)], order[int(share * n) :]
