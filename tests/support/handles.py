"""Opened models for the tests of the request workers: functions of arrays, without a process."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from attributary.schemas.explanation import ErrorCode
from attributary.workers.explainers.precisions import Precision
from attributary.workers.ondemand.batch_size import Footprint
from attributary.workers.ondemand.errors import RequestError

Floats = npt.NDArray[np.float64]


class FunctionHandle:
    """A function as an opened model. ``batches`` are the rows of every call; ``alive`` may be set."""

    def __init__(
        self,
        function: Callable[[Floats], Floats],
        *,
        piecewise_constant: bool = False,
        precision: Precision = "float64",
    ) -> None:
        self.piecewise_constant = piecewise_constant
        self.precision = precision
        self.gradient = None
        self.device = "cpu"
        self.footprint: Footprint | None = None
        self.memory = 1000
        self.alive = True
        self.batches: list[Floats] = []
        self.closed = threading.Event()
        self._function = function

    def __call__(self, X: Floats) -> Floats:
        self.batches.append(X.copy())
        try:
            return self._function(X)
        except ArithmeticError as error:
            raise RequestError(ErrorCode.MODEL_FAILED, f"the model raised {error!r}") from None

    def measure(self, x: Floats) -> Footprint | None:
        return self.footprint

    def resident(self) -> int:
        return self.memory

    def device_memory(self) -> int | None:
        return None if self.device == "cpu" else self.memory

    def close(self) -> None:
        self.alive = False
        self.closed.set()


class Held:
    """A function that waits inside until it is let go: what asks meanwhile has to wait too."""

    def __init__(self, function: Callable[[Floats], Floats]) -> None:
        self.entered = threading.Event()
        self.let_go = threading.Event()
        self._function = function

    def __call__(self, X: Floats) -> Floats:
        self.entered.set()
        assert self.let_go.wait(10), "nobody let it go"
        return self._function(X)
