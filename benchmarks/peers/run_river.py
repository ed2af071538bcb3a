"""river: quartiles of every feature and the covariance of every (feature, output) pair."""

import pandas as pd
from river import covariance, stats
from timing import Peer, batches

peer = Peer("river")
X, Y = peer.X, peer.Y
d, c = X.shape[1], Y.shape[1]


def quartiles_and_covariances(rows: int) -> None:
    low = [stats.Quantile(0.25) for _ in range(d)]
    high = [stats.Quantile(0.75) for _ in range(d)]
    pairs = [[stats.Cov() for _ in range(c)] for _ in range(d)]
    for x, y in zip(X[:rows].tolist(), Y[:rows].tolist(), strict=True):
        for j, value in enumerate(x):
            low[j].update(value)
            high[j].update(value)
            for o, output in enumerate(y):
                pairs[j][o].update(value, output)


def quartiles(rows: int) -> None:
    low = [stats.Quantile(0.25) for _ in range(d)]
    high = [stats.Quantile(0.75) for _ in range(d)]
    for x in X[:rows].tolist():
        for j, value in enumerate(x):
            low[j].update(value)
            high[j].update(value)


def pair_covariances(rows: int) -> None:
    pairs = [[stats.Cov() for _ in range(c)] for _ in range(d)]
    for at in batches(rows):
        columns, outputs = X[at].T.copy(), Y[at].T.copy()
        for j in range(d):
            for o in range(c):
                pairs[j][o].update_many(columns[j], outputs[o])


names = [f"x{j}" for j in range(d)] + [f"y{o}" for o in range(c)]
few, many = peer.rows(16384 // (2 + c)), peer.rows(4096)
frames = [
    pd.concat([pd.DataFrame(X[at]), pd.DataFrame(Y[at])], axis=1).set_axis(names, axis=1)
    for at in batches(many)
]


def covariance_matrix() -> None:
    state = covariance.EmpiricalCovariance()
    for frame in frames:
        state.update_many(frame)


peer.time(
    "two P² quartiles a feature, a covariance a pair, row by row",
    lambda: quartiles_and_covariances(few),
    few,
    "pane",
)
peer.time("two P² quartiles a feature, row by row", lambda: quartiles(few), few, "digest")
many_pairs = peer.rows(16384)
peer.time(
    "a covariance a pair, `Cov.update_many`",
    lambda: pair_covariances(many_pairs),
    many_pairs,
    "grid",
)
peer.time(
    "the covariance matrix, `EmpiricalCovariance.update_many`", covariance_matrix, many, "grid"
)
peer.report()
