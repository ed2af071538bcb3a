"""What an explanation method is to the worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from attributary.schemas.card import Feature
from attributary.schemas.explanation import Result
from attributary.schemas.request import StreamWindow
from attributary.workers.explainers.precisions import Precision

Floats = npt.NDArray[np.float64]
Model = Callable[[Floats], Floats]
Parameters = TypeVar("Parameters", bound=BaseModel)
_Contra = TypeVar("_Contra", bound=BaseModel, contravariant=True)

#: "columns": one 0/1 column per level of a categorical, '(other)' last, as the stream scores them.
#: "features": one column per feature, a categorical by its level's position; -1 for others.
Space = Literal["columns", "features"]


@dataclass(frozen=True)
class Context:
    """What a method may want to know besides its arguments.

    ``positions`` has, per feature, its columns in X: one for a number, one per level (and other) for a
    categorical in the space "columns". ``outputs`` are the names of what the model returns, ``values``
    the instances as they were given, per instance and feature.
    """

    features: tuple[Feature, ...]
    positions: tuple[tuple[int, ...], ...]
    outputs: tuple[str, ...]
    ids: tuple[str | None, ...]
    values: tuple[tuple[float | str | None, ...], ...]
    rng: np.random.Generator
    batch_size: int
    precision: Precision
    piecewise_constant: bool
    #: (n, d) to (n, outputs, d): exact derivatives, where the model has them and takes X as it stands.
    gradient: Callable[[Floats], Floats] | None = None
    #: Training ranges (d,) and (d,), infinite where the card says none; None: it says none at all.
    bounds: tuple[Floats, Floats] | None = None
    #: Outputs (n, c) that came with the instances, NaN where missing; None: ask the model.
    observed: Floats | None = None
    #: Windows of the stream that the instances and the background are from; None: rows of the request.
    window: StreamWindow | None = None
    background_window: StreamWindow | None = None
    #: Where the method may compute: "cpu" or "cuda:N".
    device: str = "cpu"
    #: Tell how far the work is. Cheap, from the thread that runs the method.
    progress: Callable[[int, int], None] = field(default=lambda done, total: None)
    #: Raises where the request is cancelled, expired or over its limits. Every call of the model does too.
    check: Callable[[], None] = field(default=lambda: None)


class _Run(Protocol[_Contra]):
    def __call__(
        self,
        model: Model,
        instances: Floats,
        background: Floats | None,
        parameters: _Contra,
        context: Context,
    ) -> Result: ...


@dataclass(frozen=True)
class Method(Generic[Parameters]):
    """``run(model, instances (n, d), background (m, d) or None, parameters, context)`` → a ``Result``.

    The model returns (n,) where one output is asked for, else (n, c), float64 and finite. Missing values are
    NaN in X. ``background``: "needed" takes the stream's samples where the request names none.

    ``observes``: of a window of the stream it takes the outputs too, rows in the order of time; the model is
    not opened. Its background may be as many rows, and none where the window that is named has no more.
    """

    space: Space
    parameters: type[Parameters]
    run: _Run[Parameters]
    background: Literal["needed", "optional", "unused"]
    observes: bool = False


__all__ = ["Context", "Floats", "Method", "Model", "Result", "Space"]
