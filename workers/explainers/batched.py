"""A model as the explainers see it: a callable from a batch of rows to outputs, counted and checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.intp]
Model = Callable[[Floats], npt.ArrayLike]


class ModelOutputError(ValueError):
    """The model returned what cannot be explained: a wrong shape, NaN or infinities."""


@dataclass(frozen=True)
class Block:
    """``count`` rows that are made when a batch needs them: ``rows(start, stop)`` → (stop - start, d)."""

    count: int
    rows: Callable[[int, int], Floats]


def block(X: Floats) -> Block:
    """Return the rows of ``X`` (n, d) as they are, copied: a model may work in place."""
    return Block(len(X), lambda start, stop: X[start:stop].copy())


def axis_block(X: Floats, row: Integers, column: Integers, value: Floats) -> Block:
    """Return copies of ``X[row]`` (k, d), the k-th with ``value[k]`` in ``column[k]``."""

    def rows(start: int, stop: int) -> Floats:
        found = X[row[start:stop]]
        found[np.arange(stop - start), column[start:stop]] = value[start:stop]
        return found

    return Block(len(row), rows)


@dataclass
class BatchedModel:
    """Calls ``model`` with batches of at most ``batch_size`` rows (b, d) float64.

    ``calls`` and ``rows`` count what was asked of it; ``outputs`` is None for a model that returns
    (b,), else its number of outputs. Raises ModelOutputError, naming what came.
    """

    model: Model
    batch_size: int
    calls: int = 0
    rows: int = 0
    outputs: int | None = None
    #: All outputs so far are of the type float32; numbers of it; some need more digits than float16 has.
    typed: bool = True
    single: bool = True
    fine: bool = False
    _known: bool = field(default=False, repr=False)

    def evaluate(self, blocks: Sequence[Block]) -> list[Floats]:
        """Return the outputs (count, c) of every block, all together in as few calls as possible."""
        ends = np.cumsum([0, *(part.count for part in blocks)])
        found: Floats | None = None
        for start in range(0, int(ends[-1]), self.batch_size):
            stop = min(start + self.batch_size, int(ends[-1]))
            pieces = [
                part.rows(max(start - first, 0), min(stop - first, part.count))
                for part, first in zip(blocks, ends.tolist(), strict=False)
                if first < stop and first + part.count > start
            ]
            answer = self._call(pieces[0] if len(pieces) == 1 else np.concatenate(pieces))
            if found is None:
                found = np.empty((int(ends[-1]), answer.shape[1]))
            found[start:stop] = answer
        if found is None:
            found = np.empty((0, self.outputs or 1))
        return [found[a:b] for a, b in pairwise(ends.tolist())]

    def _call(self, X: Floats) -> Floats:
        answer = np.asarray(self.model(X))
        self.calls += 1
        self.rows += len(X)
        if answer.dtype.kind not in "fiub":
            raise ModelOutputError(
                f"the model returned {answer.dtype} for a batch; expected real numbers"
            )
        if answer.ndim not in (1, 2) or len(answer) != len(X) or 0 in answer.shape:
            raise ModelOutputError(
                f"the model returned shape {answer.shape} for a batch of {len(X)} rows; expected "
                f"({len(X)},), or ({len(X)}, c) for c outputs"
            )
        outputs = None if answer.ndim == 1 else answer.shape[1]
        if self._known and outputs != self.outputs:
            raise ModelOutputError(
                f"the model returned {_words(outputs)} for one batch and {_words(self.outputs)} for "
                "an earlier one; expected the same for every batch"
            )
        self.outputs, self._known = outputs, True
        values = answer.astype(np.float64)
        wrong = np.argwhere(~np.isfinite(values.reshape(len(X), -1)))
        if wrong.size:
            row, output = (int(k) for k in wrong[0])
            raise ModelOutputError(
                f"the model returned {values.reshape(len(X), -1)[row, output]} in output {output} for "
                f"the row {np.array2string(X[row], threshold=12)}; expected finite numbers"
            )
        self.typed = self.typed and answer.dtype == np.float32
        with np.errstate(over="ignore", under="ignore"):
            self.single = self.single and bool((values == values.astype(np.float32)).all())
            self.fine = self.fine or bool((values != values.astype(np.float16)).any())
        return values.reshape(len(X), -1)


def _words(outputs: int | None) -> str:
    return "one output of shape (b,)" if outputs is None else f"{outputs} outputs"


def checked_rows(name: str, X: npt.ArrayLike, columns: int | None = None) -> Floats:
    """Return ``X`` (n, d) as float64; ValueError unless it has rows, and d = ``columns`` where given."""
    try:
        found = np.array(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers (n, d): {error}") from None
    if found.ndim != 2 or 0 in found.shape:
        raise ValueError(f"{name} has shape {found.shape}; expected (n, d) with at least one row")
    if columns is not None and found.shape[1] != columns:
        raise ValueError(f"{name} has {found.shape[1]} columns; expected {columns}, as X has")
    return found
