"""Screens: which features may stand in for which. Every measure lies in [0, 1], 0 for independence.

A pairwise screen cannot see what only an interaction shows: with Q = XOR(A, B) the two are independent in
every pairwise sense. ``"interaction"`` measures the dependence of two features given the output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt

from attributary.workers.explainers.linear_algebra import Floats, Integers
from attributary.workers.explainers.normal_scores import NormalScores

Screen = Literal["pearson", "distance", "mutual_information", "interaction"]
SCREENS: tuple[Screen, ...] = ("pearson", "distance", "mutual_information", "interaction")
#: What two features must reach to be candidates for each other. Interactions are weaker: of
#: a gate of two features their screen measures .38, of a product .59, of unrelated pairs with 500 rows .22.
THRESHOLDS: dict[Screen, float] = {
    "pearson": 0.6,
    "distance": 0.6,
    "mutual_information": 0.6,
    "interaction": 0.3,
}

_DISTANCE_ROWS = 400
_CELLS = 8
_INTERACTION_CELLS = 4


def screened(affinity: Floats, threshold: float, most: int) -> Integers:
    """Return candidates (k, M) per feature: affinity >= threshold, strongest first, at most ``most``.

    ``affinity`` (k, k) symmetric; ties to the lower index; -1 fills rows with fewer. What differs by
    less than 1e-12 is a tie: duplicates must not be told apart by how a machine rounds.
    """
    k = affinity.shape[0]
    strength = np.where(affinity >= threshold, np.round(affinity, 12), -1.0)
    np.fill_diagonal(strength, -1.0)
    width = min(most, max(k - 1, 0))
    best: Integers = np.argsort(-strength, axis=1, kind="stable")[:, :width].astype(np.int64)
    best[np.take_along_axis(strength, best, axis=1) < 0] = -1
    return best[:, : int((best >= 0).sum(axis=1).max(initial=0))]


def distance_correlation(columns: Floats, rows: Integers | None = None) -> Floats:
    """Return the distance correlation (k, k) of columns (n, k) (G. Székely et al., 2007).

    Quadratic in the rows: ``rows`` names those to use, 400 spread evenly by default.
    """
    n = columns.shape[0]
    if rows is None:
        rows = np.unique(np.linspace(0, n - 1, min(n, _DISTANCE_ROWS)).astype(np.int64))
    part = columns[rows].T
    gram = np.zeros((part.shape[0], part.shape[0]))
    # A centred distance needs only its row's mean, every row's mean and the grand mean.
    means = np.stack([np.abs(part - part[:, [i]]).mean(axis=1) for i in range(rows.size)], axis=1)
    for i in range(rows.size):
        centred = np.abs(part - part[:, [i]]) - means - means[:, [i]] + means.mean(axis=1)[:, None]
        gram += centred @ centred.T
    gram /= rows.size**2
    variance = np.diag(gram)
    product = np.sqrt(np.outer(variance, variance))
    share = np.divide(gram, product, out=np.zeros_like(gram), where=product > 0)
    result: Floats = np.sqrt(np.clip(share, 0.0, 1.0))
    return result


def mutual_information_correlation(columns: Floats) -> Floats:
    """Return sqrt(1 − exp(−2 I)) (k, k), I the binned mutual information (E. Linfoot, 1957).

    Eight cells of equal mass a column; the bias (cells − 1)²/2n of an independent pair is taken off.
    """
    onehot, occupied = _cells(columns, _CELLS)
    return _linfoot(_binned_information(onehot, occupied, np.ones(columns.shape[0], dtype=bool)))


def interaction_correlation(columns: Floats, outputs: Floats) -> Floats:
    """Return sqrt(1 − exp(−2 I)) (k, k), I the mutual information of two features given the output.

    The output is cut into four cells of equal mass (each of its dimensions), the features into four;
    the bias of every cell is taken off.
    """
    n = columns.shape[0]
    onehot, occupied = _cells(columns, _INTERACTION_CELLS)
    labels = np.zeros(n, dtype=np.int64)
    for column in outputs.T:
        labels = labels * _INTERACTION_CELLS + _labels(column, _INTERACTION_CELLS)
    total = np.zeros((columns.shape[1], columns.shape[1]))
    for label in np.unique(labels):
        chosen = labels == label
        total += chosen.mean() * _binned_information(onehot, occupied, chosen)
    return _linfoot(total)


def affinity(screen: Screen, columns: Floats, outputs: Floats, correlation: Floats) -> Floats:
    """Return the screen's measure (k, k) of features (n, k); ``correlation`` is their copula's.

    Raises ValueError for an unknown screen.
    """
    measures: dict[str, Callable[[], Floats]] = {
        "pearson": lambda: np.abs(correlation),
        "distance": lambda: distance_correlation(NormalScores(columns).scores().T),
        "mutual_information": lambda: mutual_information_correlation(columns),
        "interaction": lambda: interaction_correlation(columns, outputs),
    }
    if screen not in measures:
        raise ValueError(f"screen is {screen!r}; choose from {', '.join(SCREENS)}")
    return measures[screen]()


def _labels(column: Floats, cells: int) -> Integers:
    edges = np.unique(np.quantile(column, np.arange(1, cells) / cells))
    labels: Integers = np.searchsorted(edges, column, side="left").astype(np.int64)
    return labels


def _cells(columns: Floats, cells: int) -> tuple[npt.NDArray[np.float32], int]:
    """Return one-hot cells (n, k · cells), by column."""
    n, k = columns.shape
    onehot = np.zeros((n, k, cells), dtype=np.float32)
    rows = np.arange(n)
    for j in range(k):
        onehot[rows, j, _labels(columns[:, j], cells)] = 1.0
    return onehot.reshape(n, k * cells), cells


def _binned_information(
    onehot: npt.NDArray[np.float32], cells: int, chosen: npt.NDArray[np.bool_]
) -> Floats:
    """Return the mutual information (k, k) of binned columns over the chosen rows, bias taken off."""
    part = onehot[chosen]
    n = part.shape[0]
    k = part.shape[1] // cells
    counts = part.sum(axis=0, dtype=np.float64).reshape(k, cells)
    used = (counts > 0).sum(axis=1) - 1
    entropy = -np.sum(_plogp(counts / n), axis=1)
    result = np.zeros((k, k))
    for i in range(k):
        joint = (part[:, i * cells : (i + 1) * cells].T @ part).astype(np.float64)
        negative = _plogp(joint / n).reshape(cells, k, cells).sum(axis=(0, 2))
        result[i] = entropy[i] + entropy + negative
    result -= np.outer(used, used) / (2 * n)
    return np.maximum(result, 0.0)


def _plogp(p: Floats) -> Floats:
    result: Floats = p * np.log(np.where(p > 0, p, 1.0))
    return result


def _linfoot(information: Floats) -> Floats:
    result: Floats = np.sqrt(-np.expm1(-2 * information))
    return result
