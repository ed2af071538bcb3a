"""The models of the token experiment: seven tokens with a value and a drift by place; 0 is the mask."""

import numpy as np

TOKENS = ("A", "B", "C", "D", "A-bar", "B-bar", "C-bar")
#: Worth of a token, and by how much it grows from one place to the next.
WORTH = np.array([0.0, 0.6, -0.6, 0.0, 0.0, 0.6, -0.6, 0.0])
DRIFT = np.array([0.0, 0.0, 0.0, 0.12, 0.0, 0.12, 0.12, -0.12])
LENGTH = 10


def linear(rows):
    """Return the sum of worth + drift (place - mean place) over the tokens that are there."""
    rows = np.asarray(rows, dtype=np.int64)
    centred = np.arange(LENGTH) - (LENGTH - 1) / 2
    return (WORTH[rows] + DRIFT[rows] * centred).sum(axis=1)


def sigmoid(rows):
    """Return the linear model through a sigmoid."""
    return 1.0 / (1.0 + np.exp(-linear(rows)))


MODELS = {"linear": linear, "sigmoid": sigmoid}
