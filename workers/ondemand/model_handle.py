"""What an opened model looks like to the workers, whatever its format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from attributary.workers.explainers.precisions import Precision
from attributary.workers.ondemand.batch_size import Footprint

Floats = npt.NDArray[np.float64]


class ModelHandle(Protocol):
    """A model in a process of its own. Calls come from one thread at a time.

    The columns of X are the card's features in order, a categorical as ``card.artefact.categories`` says.
    """

    @property
    def precision(self) -> Precision:
        """What it computes in."""

    @property
    def piecewise_constant(self) -> bool:
        """Whether it is built of trees."""

    @property
    def device(self) -> str:
        """Where it computes: "cpu", "cuda:N" or "server"."""

    @property
    def gradient(self) -> Callable[[Floats], Floats] | None:
        """(n, d) to (n, c, d): exact derivatives, where the model has them."""

    @property
    def alive(self) -> bool:
        """False once its process has ended: open the model again."""

    def __call__(self, X: Floats) -> Floats:
        """Return the outputs (n,) or (n, c) of X (n, d).

        RequestError: model_failed (it raised, or its process died), bad_output (shape or type; NaN and
        infinities too); OutOfMemoryError.
        """

    def measure(self, x: Floats) -> Footprint | None:
        """Return what calls take, from a few of rows like x (1, d); None where it is not known.

        RequestError: as for a call; OutOfMemoryError.
        """

    def resident(self) -> int:
        """Return the bytes of main memory that its process holds. From any thread."""

    def device_memory(self) -> int | None:
        """Return the bytes in use on its device, by whomever; None where it cannot tell, or has no time.

        From any thread.
        """

    def close(self) -> None:
        """End its process. From any thread: a call under way raises RequestError (model_failed)."""
