"""Information of discrete blocks from their frequencies (plug-in), in nats."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]


def plugin_information(X: Values, Y: Values, Z: Values | None = None) -> tuple[float, float]:
    """Return I(X; Y), or I(X; Y | Z), of blocks (n, ·) of codes, and the mean rows a joint cell holds.

    I = H(X,Z) + H(Y,Z) − H(Z) − H(X,Y,Z). Biased upwards by about cells/2n: below five rows a cell it
    should not be trusted.
    """
    given = np.zeros((X.shape[0], 0)) if Z is None else Z
    joint, cells = _entropy(np.hstack([X, Y, given]))
    value = (
        _entropy(np.hstack([X, given]))[0]
        + _entropy(np.hstack([Y, given]))[0]
        - _entropy(given)[0]
        - joint
    )
    return max(0.0, value), X.shape[0] / cells


def _entropy(codes: Values) -> tuple[float, int]:
    """Return the entropy of the rows of codes (n, m), and how many differ."""
    if not codes.shape[1]:
        return 0.0, 1
    label = np.zeros(codes.shape[0], dtype=np.int64)
    for column in codes.T:
        _, own = np.unique(column, return_inverse=True)
        _, label = np.unique(label * (own.max() + 1) + own, return_inverse=True)
    share = np.bincount(label) / codes.shape[0]
    return float(-np.sum(share * np.log(share))), share.size
