"""Accumulators for the simulation: small, exact, and aware of every row that they count.

They take the place of digests and co-movement cells under the real cores of ingest and merge. A row's first
feature is its number, so that one that is lost or counted twice is seen by itself; the sums behind the scores
are whole numbers about fixed centres, so that a score equals the batch's to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from attributary.schemas.arrow import ArrowRows
from attributary.schemas.card import ModelCard
from attributary.schemas.grid import GridRecord
from attributary.schemas.row import Row
from attributary.workers.maths.scores import CirScores
from attributary.workers.maths.window import WindowScores, WindowState
from attributary.workers.stream.accumulators import Accumulators
from attributary.workers.stream.decode import Staged
from attributary.workers.stream.encode import Refusal
from attributary.workers.stream.epoch import Epoch
from attributary.workers.stream.layout import Layout
from attributary.workers.stream.options import IngestOptions
from attributary.workers.stream.snapshot_state import DriftState

#: What x0 (the row's number), x1 and y are taken about.
CENTRES = (20, 1, 0)
# One block in so many proposes the next epoch.
_RENEWAL = 7

Sums = list[int]

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(tuple[int, list[int], list[int]]).decode
_decode_window = msgspec.msgpack.Decoder(
    tuple[list[int], list[int], set[int], dict[int, int]]
).decode


def cir_sums(rows: Iterable[Sequence[float]]) -> Sums:
    """Return N and D of x0, then of x1, about the centres; rows are (x0, x1, y)."""
    sums = [0, 0, 0, 0]
    for row in rows:
        y = int(row[2]) - CENTRES[2]
        p0, p1 = (int(row[0]) - CENTRES[0]) * y, (int(row[1]) - CENTRES[1]) * y
        sums[0] += p0
        sums[1] += abs(p0)
        sums[2] += p1
        sums[3] += abs(p1)
    return sums


def scores(sums: Sums) -> list[float]:
    """Return CIR of x0 and of x1."""
    return [(1 + n / d) / 2 if d else 0.5 for n, d in (sums[:2], sums[2:])]


class ExactPane:
    """The numbers of the rows of a pane in order, and their sums."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.rows: list[int] = []
        self.sums: Sums = [0, 0, 0, 0]

    def update(
        self, X: Any, Y: Any, weights: Any = None, hashes: Any = None, event_times: Any = None
    ) -> None:
        """Add rows X (n, 2), Y (n, 1)."""
        found = [(x0, x1, y) for (x0, x1), (y,) in zip(X.tolist(), Y.tolist(), strict=True)]
        self.rows += [int(row[0]) for row in found]
        self.sums = [a + b for a, b in zip(self.sums, cir_sums(found), strict=True)]

    def merge(self, other: ExactPane) -> None:
        """Add the rows of another."""
        self.rows += other.rows
        self.sums = [a + b for a, b in zip(self.sums, other.sums, strict=True)]

    def rest(self) -> None:
        """Nothing is kept that the rows do not need."""

    def to_bytes(self) -> bytes:
        """Return the pane as bytes."""
        return _encode((self.epoch, self.rows, self.sums))

    @classmethod
    def from_bytes(cls, body: bytes) -> ExactPane:
        """Return the pane that ``to_bytes`` wrote."""
        epoch, rows, sums = _decode(body)
        pane = cls(epoch)
        pane.rows, pane.sums = rows, sums
        return pane


class ExactWindow:
    """Merged panes: the numbers of the rows, the sums, and the epochs.

    What is asked for its scores notes itself in ``evaluated``.
    """

    def __init__(
        self, rows: list[int], sums: Sums, epochs: set[int], evaluated: list[ExactWindow]
    ) -> None:
        self.rows = rows
        self.sums = sums
        self.epochs = epochs
        #: What rows stand for that are not just themselves.
        self.weights: dict[int, int] = {}
        self._evaluated = evaluated

    def copy(self) -> ExactWindow:
        """Return an independent copy."""
        other = ExactWindow(self.rows[:], self.sums[:], set(self.epochs), self._evaluated)
        other.weights = dict(self.weights)
        return other

    def scaled(self, factor: float) -> ExactWindow:
        """Return a copy whose rows stand for ``factor`` rows each, a whole number."""
        other = self.copy()
        whole = round(factor)
        other.sums = [part * whole for part in self.sums]
        other.weights = dict.fromkeys(self.rows, whole)
        return other

    def merge(self, other: ExactWindow) -> None:
        """Add another window."""
        self.weights |= other.weights
        self.rows += other.rows
        self.sums = [a + b for a, b in zip(self.sums, other.sums, strict=True)]
        self.epochs |= other.epochs

    def to_bytes(self) -> bytes:
        """Return the window as bytes."""
        return _encode((self.rows, self.sums, sorted(self.epochs), self.weights))

    def evaluate(self, groups: object = None) -> WindowScores:
        """Return the scores, in the form that messages are made of; without ``groups``, for a comparison of
        which only the rows are looked at, none."""
        self._evaluated.append(self)
        return _UNDEFINED if groups is None else _scored(self)


_NOTHING = WindowState(2, 1).evaluate()
_UNDEFINED = replace(_NOTHING, scores=replace(_NOTHING.scores, score=np.full((1, 2), np.nan)))


def _scored(window: ExactWindow) -> WindowScores:
    cir, made = object.__new__(CirScores), object.__new__(WindowScores)
    vars(cir).update(vars(_NOTHING.scores), score=np.array([scores(window.sums)]))
    vars(made).update(
        vars(_NOTHING), scores=cir, epochs=sorted(window.epochs), rows=float(len(window.rows))
    )
    return made


# First grids by model, and whether its card has a baseline.
_FIRST: dict[tuple[str, bool], GridRecord] = {}


def _fits(content: Row | ArrowRows) -> bool:
    """Say whether this is surely a row that can be counted; of others that is found out."""
    if not isinstance(content, Row) or content.time is not None:
        return False
    numbers = [value for value in dict(content.features.items()).values() if type(value) is float]
    return len(numbers) == 2 and type(content.outputs) is list and len(content.outputs) == 1


class _NoDrift:
    """Compares nothing: the digests that drift is read from are not kept."""

    changes = 0

    def compare(self, *_: object) -> tuple[()]:
        return ()

    def copy(self) -> _NoDrift:
        return self

    def state(self) -> DriftState:
        return DriftState({}, {})

    def restore(self, state: DriftState) -> None:
        assert not state.baselines


class ExactAccumulators(Accumulators):
    """``evaluated``: the windows whose scores were asked for since it was emptied."""

    def __init__(self) -> None:
        self.evaluated: list[ExactWindow] = []

    def pane(self, epoch: Epoch) -> Any:
        """Return an empty pane."""
        return ExactPane(epoch.record.epoch)

    def first_grid(
        self,
        model: str,
        card: ModelCard | None,
        number: int,
        staged: Sequence[Staged],
        options: IngestOptions,
    ) -> GridRecord | list[Refusal]:
        """Propose the same grid for any rows, where one of them can be counted: it decides nothing here."""
        if not any(_fits(entry.content) for entry in staged):
            return super().first_grid(model, card, number, staged, options)
        key = model, card is not None and card.baseline is not None
        if key not in _FIRST:
            found = super().first_grid(model, card, number, staged, options)
            assert isinstance(found, GridRecord)
            _FIRST[key] = found
        return _FIRST[key].model_copy(update={"epoch": number, "layout": number})

    def renewal(
        self, epoch: Epoch, panes: Sequence[Any], options: IngestOptions
    ) -> GridRecord | None:
        """Propose the next epoch after some blocks, whoever counts them."""
        if sum(sum(pane.rows) for pane in panes) % _RENEWAL:
            return None
        return epoch.record.model_copy(update={"epoch": epoch.record.epoch + 1})

    def window(self, body: bytes) -> Any:
        """Return a pane's bytes as a window."""
        epoch, rows, sums = _decode(body)
        return ExactWindow(rows, sums, {epoch}, self.evaluated)

    def fits(self, window: Any, epoch: Epoch) -> bool:
        """Every window has the same columns."""
        return True

    def saved(self, data: bytes) -> Any:
        """Return the window that a snapshot holds."""
        rows, sums, epochs, weights = _decode_window(data)
        window = ExactWindow(rows, sums, epochs, self.evaluated)
        window.weights = weights
        return window

    def drift(self, layout: Layout) -> Any:
        """Return what compares nothing."""
        return _NoDrift()
