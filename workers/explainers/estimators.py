"""The estimators of MCIR-M behind one face: unique and joint information of one feature given others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from attributary.workers.explainers.discrete_information import plugin_information
from attributary.workers.explainers.linear_algebra import Floats, Integers
from attributary.workers.explainers.neighbour_information import knn_information, mixed_information
from attributary.workers.explainers.normal_scores import NormalScores

Estimator = Literal["copula", "knn", "plugin", "mixed", "switch"]
Kind = Literal["continuous", "discrete"]
ESTIMATORS: tuple[Estimator, ...] = ("copula", "knn", "plugin", "mixed", "switch")

# Normal scores lie within about 8 of each other: different levels are farther apart than that.
_LEVEL_GAP = 100.0
_FEW_ROWS_A_CELL = 5.0


@dataclass(frozen=True)
class Information:
    """U = I(Q; X_i | X_Φ), J = I(Q; X_i, X_Φ) and I(Q; X_i), nats; what makes them doubtful."""

    unique: float
    joint: float
    marginal: float
    flags: tuple[str, ...] = ()


def compatible(kinds: Sequence[Kind]) -> tuple[Estimator, ...]:
    """Return the estimators that may be used on columns of these kinds."""
    if all(kind == "continuous" for kind in kinds):
        return ("copula", "knn")
    if all(kind == "discrete" for kind in kinds):
        return ("plugin", "mixed")
    return ("mixed",)


class Columns:
    """Features and output side by side, (n, d + q), in the form that each estimator takes."""

    def __init__(self, X: Floats, Q: Floats, kinds: Sequence[Kind]) -> None:
        self.kinds = [*kinds[:-1], *([kinds[-1]] * Q.shape[1])]
        self.values = np.hstack([X, Q])
        self.outputs: Integers = np.arange(X.shape[1], self.values.shape[1])
        self._points: Floats | None = None

    @property
    def points(self) -> Floats:
        """Columns for distances: normal scores, and levels far apart."""
        if self._points is None:
            points = NormalScores(self.values).scores().T.copy()
            for j, kind in enumerate(self.kinds):
                if kind == "discrete":
                    _, code = np.unique(self.values[:, j], return_inverse=True)
                    points[:, j] = code * _LEVEL_GAP
            self._points = points
        return self._points

    def kinds_of(self, feature: int, neighbours: Sequence[int]) -> list[Kind]:
        """Return the kinds of all columns that a feature's figures rest on."""
        return [self.kinds[j] for j in [feature, *neighbours, *self.outputs.tolist()]]

    def information(
        self,
        feature: int,
        neighbours: Sequence[int],
        estimator: Estimator,
        rows: npt.NDArray[np.int64] | None = None,
    ) -> Information:
        """Return the figures of one feature, from ``rows`` (all by default), by an estimator that looks at
        one feature at a time: "knn", "plugin" or "mixed"."""
        columns = self.values if estimator == "plugin" else self.points
        chosen = columns if rows is None else columns[rows]
        own, output = chosen[:, [feature]], chosen[:, self.outputs]
        given = chosen[:, list(neighbours)]
        with_own = np.hstack([own, given])
        if estimator == "plugin":
            (unique, fill), (joint, _) = (
                plugin_information(output, own, given),
                plugin_information(output, with_own),
            )
            marginal, _ = plugin_information(output, own)
            flags = ("few rows per cell",) if fill < _FEW_ROWS_A_CELL else ()
            return Information(unique, joint, marginal, flags)
        measure = mixed_information if estimator == "mixed" else knn_information
        return Information(
            measure(output, own, given), measure(output, with_own), measure(output, own)
        )
