"""What other methods say of the same rows and outputs, for comparison with MCIR-M in the benchmark "
"only."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attributary.workers.explainers.mcir import McirResult, mcir
from attributary.workers.maths.cir import cir
from benchmarks import environments
from benchmarks.suite import Options

#: By what it sees: rows and outputs alone, or the model.
MODEL_FREE = ("MCIR-M, U", "MCIR-M, C", "CIR", "PCIR", "MI", "HSIC")
OF_MODEL = ("permutation", "TreeSHAP", "SAGE")
ABOUT = (
    "*MCIR-M, U*: unique information in nats; *MCIR-M, C*: the score, of features with a "
    "neighbourhood; *CIR*: |2 CIR - 1| feature by feature; *PCIR*: by the authors' public code, the "
    "correlation ratio of a column's values and the outputs as two groups, so their distance of means "
    "beside their variances, in the units as they are: it stays the same where rows are shuffled, and "
    "says nothing of dependence; *MI*: scikit-learn's `mutual_info_regression`; *HSIC*: Gaussian "
    "kernels of the median distance, 500 rows, as a share of the root of both variances; "
    "*permutation*: scikit-learn's, loss of R², 5 repeats; *TreeSHAP*: mean |value|, the trees' own "
    "cover; *SAGE*: sage-importance, squared error, 128 permutations, 32 background rows. Negative "
    "importances count as 0."
)
_HSIC_ROWS = 500


@dataclass(frozen=True)
class Explained:
    """One table of rows: importances {method: (d,)}, NaN where a method has none, and what made them.

    ``fit`` is the model's R² on the rows that are explained, which it has not seen; None without model.
    """

    scores: dict[str, Any]
    found: McirResult
    outputs: Any
    fit: float | None


def explain(
    tables: Sequence[tuple[Any, Any]],
    options: Options,
    *,
    of_model: bool = True,
    **parameters: Any,
) -> tuple[list[Explained], str | None]:
    """Return what every method says of the tables (X (2n, d), y (2n,)), and why peers are missing.

    A model of gradient boosted trees learns the first half, the second is explained: its outputs there,
    or with ``of_model=False`` y itself, for the methods that see no model. Without peers y, and no model.
    ``parameters`` go to `mcir`.
    """
    peers: list[dict[str, Any]] = [{} for _ in tables]
    failed = None
    if options.peers:
        try:
            peers = _peers(tables, of_model)
        except environments.PeerError as error:
            failed = str(error)
    explained = []
    for (X, y), peer in zip(tables, peers, strict=True):
        half = X.shape[0] // 2
        X, y = X[half:], y[half:]
        outputs = np.array(peer["outputs"]) if peer and of_model else y
        found = mcir(X, outputs, **parameters)
        scores = {
            "MCIR-M, U": np.maximum(found.unique, 0.0),
            "MCIR-M, C": np.where(found.ranked, found.score, np.nan),
            "CIR": cir(X, outputs).strength[0],
            "PCIR": pcir(X, outputs),
            "HSIC": hsic(X, outputs),
            **{name: np.array(values) for name, values in peer.get("scores", {}).items()},
        }
        explained.append(Explained(scores, found, outputs, peer.get("fit")))
    return explained, failed


def pcir(X: Any, Q: Any) -> Any:
    """Return the authors' PCIR of each column (d,) of X (n, d) beside Q (n,), in [0, 1].

    What the public code computes, n((x̄ - m)² + (q̄ - m)²) / (Σ(x - m)² + Σ(q - m)²) with m the mean of both
    means, in short: half the squared distance of the means, as a share of that and both variances.
    """
    between = (X.mean(axis=0) - Q.mean()) ** 2 / 2
    within = X.var(axis=0) + Q.var()
    return np.divide(between, between + within, out=np.zeros_like(within), where=within > 0)


def hsic(X: Any, Q: Any) -> Any:
    """Return the Hilbert-Schmidt independence of each column and Q, as a share of both variances' "
    "root."""
    rows = np.unique(np.linspace(0, len(Q) - 1, min(len(Q), _HSIC_ROWS)).astype(int))
    output = _kernel(Q[rows])
    own = np.sqrt((output**2).sum())
    found = []
    for column in X[rows].T:
        kernel = _kernel(column)
        found.append((kernel * output).sum() / max(own * np.sqrt((kernel**2).sum()), 1e-300))
    return np.array(found)


def _kernel(values: Any) -> Any:
    """Return the centred Gram matrix of a column."""
    distance = (values[:, None] - values[None, :]) ** 2
    positive = distance[distance > 0]
    kernel = np.exp(-distance / (np.median(positive) if positive.size else 1.0))
    kernel = kernel - kernel.mean(axis=0)
    return kernel - kernel.mean(axis=1, keepdims=True)


def _peers(tables: Sequence[tuple[Any, Any]], of_model: bool) -> list[dict[str, Any]]:
    python = environments.interpreter("mcir")
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.npz"
        arrays = {
            f"{what}{k}": part
            for k, pair in enumerate(tables)
            for what, part in zip("Xy", pair, strict=True)
        }
        np.savez(rows, **arrays)
        found: list[dict[str, Any]] = environments.run(
            python, "mcir_baselines", rows, json.dumps(of_model)
        )
    return found


def methods(scores: dict[str, Any]) -> list[str]:
    """Return the methods that are there, in the order of the tables."""
    return [name for name in (*MODEL_FREE, *OF_MODEL) if name in scores]
