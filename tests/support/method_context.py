"""What a method of the request pool is given, where no worker is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attributary.schemas.card import Feature
from attributary.workers.ondemand.methods.method import Context


def numeric_context(names: Sequence[str], rows: int, **given: Any) -> Context:
    """Return the context of so many rows of numeric features, and an output ``y``; ``given`` wins."""
    known: dict[str, Any] = {
        "features": tuple(Feature(name=name) for name in names),
        "positions": tuple((k,) for k in range(len(names))),
        "outputs": ("y",),
        "ids": (None,) * rows,
        "values": (),
        "rng": np.random.default_rng(0),
        "batch_size": 100,
        "precision": "float64",
        "piecewise_constant": False,
    }
    return Context(**{**known, **given})
