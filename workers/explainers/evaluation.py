"""A model as a batched callable: batches of one size, every distinct input once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from attributary.workers.explainers.arrangement import Arrangement
from attributary.workers.explainers.batched import ModelOutputError
from attributary.workers.explainers.layout import Booleans, Integers

Floats = npt.NDArray[np.float64]
Model = Callable[[npt.NDArray[Any]], Any]

#: Inputs remembered so that they are not evaluated again; a bound on memory, not on correctness.
REMEMBERED = 2_000_000
#: Rows whose keys are looked up at a time.
CHUNK = 16_384


class Evaluator:
    """Values of arrangements under ``model``, each distinct input evaluated once.

    ``output`` picks the column of a model with several outputs. ``done`` is told the number of
    calls after every batch; what it raises ends the computation. The values do not depend on
    ``batch_size`` as far as the model's own arithmetic does not.
    """

    def __init__(
        self,
        model: Model,
        arrangement: Arrangement,
        batch_size: int,
        output: int | None = None,
        done: Callable[[int], None] | None = None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.arrangement = arrangement
        self.calls = 0
        self._model, self._batch_size = model, int(batch_size)
        self._output, self._done = output, done
        self._known: dict[bytes, int] = {}
        self._values = np.empty(1024)

    def __call__(self, order: Integers, present: Booleans, draw: Integers | None = None) -> Floats:
        """Return the values (n,) of arrangements ``order``, ``present`` (n, m), ``draw`` (n,)."""
        draw = np.zeros(len(order), dtype=np.int64) if draw is None else draw
        values = np.empty(len(order))
        for start in range(0, len(order), CHUNK):
            part = slice(start, start + CHUNK)
            values[part] = self._chunk(order[part], present[part], draw[part])
        return values

    def _chunk(self, order: Integers, present: Booleans, draw: Integers) -> Floats:
        keys = np.ascontiguousarray(self.arrangement.keys(order, present, draw))
        names = keys.view(f"V{keys.itemsize * keys.shape[1]}").ravel().tolist()
        new: dict[bytes, int] = {}
        first: list[int] = []
        known = self._known
        index = np.empty(len(names), dtype=np.int64)  # >= 0 remembered, < 0 new
        for row, name in enumerate(names):
            at = known.get(name)
            if at is None:
                at = new.get(name)
                if at is None:
                    at = new[name] = -1 - len(first)
                    first.append(row)
            index[row] = at
        fresh = self._evaluate(order[first], present[first], draw[first])
        values = np.where(index >= 0, self._values[np.maximum(index, 0)], 0.0)
        values[index < 0] = fresh[-1 - index[index < 0]]
        self._remember(list(new), fresh)
        return values

    def _remember(self, names: list[bytes], fresh: Floats) -> None:
        count = len(self._known)
        kept = min(len(names), max(0, REMEMBERED - count))
        while count + kept > len(self._values):
            self._values = np.concatenate([self._values, np.empty_like(self._values)])
        self._values[count : count + kept] = fresh[:kept]
        self._known.update(zip(names[:kept], range(count, count + kept), strict=True))

    def _evaluate(self, order: Integers, present: Booleans, draw: Integers) -> Floats:
        values = np.empty(len(order))
        for start in range(0, len(order), self._batch_size):
            part = slice(start, start + self._batch_size)
            batch = self.arrangement.build(order[part], present[part], draw[part])
            values[part] = self._outputs(self._model(batch), len(batch))
            self.calls += len(batch)
            if self._done is not None:
                self._done(self.calls)
        return values

    def _outputs(self, returned: Any, count: int) -> Floats:
        found = np.asarray(returned)
        if found.dtype.kind not in "fiub":
            raise ModelOutputError(f"the model returned {found.dtype}; expected real numbers")
        if found.ndim not in (1, 2) or len(found) != count:
            raise ModelOutputError(
                f"the model returned shape {found.shape} for a batch of {count}; "
                f"expected ({count},) or ({count}, outputs)"
            )
        values: Floats = self._column(found).astype(np.float64)
        if not np.isfinite(values).all():
            bad = int((~np.isfinite(values)).sum())
            raise ModelOutputError(
                f"the model returned {bad} values that are not finite, of {count}"
            )
        return values

    def _column(self, found: npt.NDArray[Any]) -> npt.NDArray[Any]:
        outputs = 1 if found.ndim == 1 else found.shape[1]
        if self._output is None and outputs != 1:
            raise ValueError(f"the model has {outputs} outputs: choose one with output=0..")
        column = self._output or 0
        if not 0 <= column < outputs:
            raise ValueError(f"output {column} of a model with {outputs} outputs")
        return found if found.ndim == 1 else found[:, column]
