"""MCIR-M stage by stage, TreeSHAP and permutation importance on the same rows in one process, as JSON."""

import json
import sys
import warnings
from functools import partial

import numpy as np
from timing import both

from attributary.workers.explainers.auto_neighbourhood import best, criteria, leftover_dependence
from attributary.workers.explainers.gaussian_copula import DEFAULT_RIDGE, copula_information
from attributary.workers.explainers.linked_blocks import linked_blocks
from attributary.workers.explainers.mcir import coefficient, mcir
from attributary.workers.explainers.neighbourhood_screens import affinity, screened
from attributary.workers.explainers.normal_scores import NormalScores
from attributary.workers.explainers.resampled_information import resampled_information
from attributary.workers.explainers.resampling import bootstrap_counts

warnings.filterwarnings("ignore")
k, n, bootstraps, repeats, peer_repeats, peers = (json.loads(one) for one in sys.argv[1:])
SIZES, THRESHOLD, MOST = [1, 3, 5], 0.6, 6
EVERYONE, OUTPUT = np.arange(k), np.array([k])


def rows():
    """Features in tens that share a latent factor, and a target that a few of them make."""
    rng = np.random.default_rng(17)
    factors = rng.normal(size=(n, -(-k // 10)))
    loading = rng.uniform(0.6, 0.97, size=k)
    shared = np.repeat(factors, 10, axis=1)[:, :k]
    X = loading * shared + np.sqrt(1 - loading**2) * rng.normal(size=(n, k))
    X[:, ::7] = np.exp(X[:, ::7])
    target = X[:, 0] + np.sin(2 * X[:, 3]) + 0.5 * X[:, 11] * X[:, 12] + 0.5 * X[:, 15]
    return X, target + 0.3 * rng.normal(size=n)


X, target = rows()
model, Q = None, target
entries = []
if peers:
    import shap
    import sklearn
    import xgboost
    from sklearn.inspection import permutation_importance

    model = xgboost.XGBRegressor(n_estimators=100, max_depth=6, n_jobs=1, random_state=0)
    entries.append({"does": "train the model", "who": f"xgboost {xgboost.__version__}"})
    entries[-1]["seconds"] = both(partial(model.fit, X, target), 1, warm_ups=0)
    # Everybody explains the same model: its outputs on these rows.
    Q = model.predict(X).astype(np.float64)


def prepared():
    """Ranks, the correlation of their normal scores, and the candidates of every feature."""
    copula = NormalScores(np.column_stack([X, Q]))
    correlation = copula.correlation()
    measure = affinity("pearson", X, Q[:, None], correlation[:k, :k])
    return copula, correlation, screened(measure, THRESHOLD, MOST)


def sized(copula, correlation, candidates):
    """The scores of every resample under every size, and the size that they speak for."""
    rng = np.random.default_rng(0)
    ranked = (candidates >= 0).any(axis=1)
    counts = np.array([bootstrap_counts(n, rng) for _ in range(bootstraps)])
    blocks = linked_blocks([row[row >= 0].tolist() for row in candidates], OUTPUT)
    kept = [min(size, candidates.shape[1]) for size in SIZES]
    found = resampled_information(
        copula, counts, OUTPUT, candidates, blocks, kept, ridge=DEFAULT_RIDGE
    )
    drawn = np.moveaxis(coefficient(found.unique, found.joint), 2, 0)
    leftover = leftover_dependence(correlation, candidates, ridge=DEFAULT_RIDGE)
    return best(criteria(SIZES, drawn[:, :, ranked], leftover, most=MOST)).size


def scored(correlation, candidates, size):
    """Unique and joint information of every feature, and its score."""
    found = copula_information(correlation, EVERYONE, OUTPUT, candidates[:, :size])
    return coefficient(found.unique[:, -1], found.joint[:, -1])


copula, correlation, candidates = prepared()
size = sized(copula, correlation, candidates)
whole = mcir(X, Q, sizes=SIZES, max_candidates=MOST, threshold=THRESHOLD, bootstraps=bootstraps)
apart = float(np.abs(scored(correlation, candidates, size) - whole.score).max())
stages = {
    "ranks and screening": prepared,
    "Auto-Φ": partial(sized, copula, correlation, candidates),
    "scoring": partial(scored, correlation, candidates, size),
    "everything": partial(mcir, X, Q, sizes=SIZES, bootstraps=bootstraps),
    "a quarter of the rows": partial(mcir, X[::4], Q[::4], sizes=SIZES, bootstraps=bootstraps),
}
for does, stage in stages.items():
    # Scoring takes a millisecond: more runs, for a steady median.
    times = both(stage, repeats * (5 if does == "scoring" else 1))
    entries.append({"who": "attributary", "does": does, "seconds": times})
if peers:
    explainer = shap.TreeExplainer(model)
    entries.append(
        {
            "who": f"shap {shap.__version__}",
            "does": "TreeSHAP",
            "seconds": both(partial(explainer.shap_values, X), peer_repeats),
        }
    )
    shuffled = partial(permutation_importance, model, X, target, n_repeats=5, random_state=0)
    entries.append(
        {
            "who": f"scikit-learn {sklearn.__version__}",
            "does": "permutation importance",
            "seconds": both(partial(shuffled, n_jobs=1), peer_repeats, warm_ups=0),
        }
    )
about = {"features": k, "rows": n, "bootstraps": bootstraps, "size": size}
about |= {"ranked": int(whole.ranked.sum()), "same_size": size == whole.size, "apart": apart}
print(json.dumps({**about, "entries": entries}))
