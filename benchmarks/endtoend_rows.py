"""Messages of rows as production models send them, made once and sent over and over."""

from __future__ import annotations

import json

import numpy as np

from attributary.schemas.arrow import encode_arrow_rows

MODEL = "benchmark"
ARROW_ROWS = 500


def json_rows(
    count: int, features: int, outputs: int = 1, digits: int | None = None
) -> list[bytes]:
    """Return ``count`` messages of one row each: Gaussian numbers, all digits or so many decimals."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((count, features)), rng.standard_normal((count, outputs))
    Y[:, 0] += X[:, 0]
    if digits is not None:
        X, Y = X.round(digits), Y.round(digits)
    names = [f"feature_{index:03}" for index in range(features)]
    return [
        json.dumps(
            {"model": MODEL, "features": dict(zip(names, x, strict=True)), "outputs": y}
        ).encode()
        for x, y in zip(X.tolist(), Y.tolist(), strict=True)
    ]


def arrow_batches(count: int, features: int) -> list[bytes]:
    """Return ``count`` messages of ARROW_ROWS rows each, float64."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(count):
        X = rng.standard_normal((ARROW_ROWS, features))
        columns = {f"feature_{index:03}": X[:, index] for index in range(features)}
        columns["output"] = X[:, 0] + rng.standard_normal(ARROW_ROWS)
        found.append(encode_arrow_rows(MODEL, columns, ["output"]))
    return found
