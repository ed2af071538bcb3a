"""A block: a run of offsets of one source partition, and what its rows became.

Everything here is a function of the block's records in offset order (and of the grids), so that
whoever processes a block, and however its records were polled, its final sketches are the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from attributary.schemas.dead_letter import DeadLetter
from attributary.schemas.errors import Reason, RejectedError
from attributary.schemas.manifest import Manifest, ModelCount
from attributary.schemas.row import RowError, Shapes
from attributary.schemas.sketch import SketchHeader
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.maths.sample import in_fraction
from attributary.workers.stream.accumulators import SKETCHES, Accumulators
from attributary.workers.stream.decode import Record, Staged, decode
from attributary.workers.stream.encode import Batch, Refusal, TimeRule, encode, panes_of, refusal
from attributary.workers.stream.epoch import Epoch
from attributary.workers.stream.lightweight import FULL, Counting
from attributary.workers.stream.options import IngestOptions

UNKNOWN_MODEL = ""


@dataclass
class PaneState:
    """One pane of one model in one block; ``sent`` is how many of its rows are acknowledged.

    ``thinned`` of the rows are not in the sketch; ``twin`` is a light sketch, of ``light`` rows, beside a
    full one.
    """

    sketch: PaneSketch
    twin: PaneSketch | None = None
    rows: int = 0
    thinned: int = 0
    light: int = 0
    sent: int = 0
    sent_thinned: int = 0


@dataclass(frozen=True)
class Rejection:
    """A dead letter to send, and how many rows of which model it stands for."""

    letter: DeadLetter
    record: Record
    model: str
    rows: int


@dataclass
class ModelBlock:
    """One model's rows in one block. Without an epoch, rows wait in ``staged``."""

    counting: Counting
    epoch: Epoch | None = None
    staged: list[Staged] = field(default_factory=list)
    panes: dict[int, PaneState] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)
    event_time: int | None = None

    @property
    def waiting(self) -> int:
        """Rows that wait for a grid."""
        return sum(staged.rows for staged in self.staged)

    def time_rule(self, options: IngestOptions) -> TimeRule:
        """Return which event times the block still takes of this model."""
        assert self.epoch is not None  # noqa: S101
        width = self.epoch.record.pane_ms
        panes = (pane // width for pane in self.panes)
        return TimeRule(options.max_future_seconds, width, panes, options.max_panes)

    def add(self, batch: Batch, accumulators: Accumulators) -> None:
        """Count usable rows in their panes."""
        assert self.epoch is not None  # noqa: S101
        width = self.epoch.record.pane_ms
        panes, left_out = (times // width * width for times in (batch.times, batch.left_out))
        found = panes_of(np.concatenate([panes, left_out]) if left_out.size else panes)
        for pane in found:
            state = self.panes.get(pane)
            if state is None:
                light = self.counting.calibration is not None
                state = self.panes[pane] = PaneState(
                    accumulators.pane(self.epoch), accumulators.pane(self.epoch) if light else None
                )
            part = batch.part(panes == pane) if len(found) > 1 else batch
            self._sketch(state, part)
            thinned = int((left_out == pane).sum()) if left_out.size else 0
            state.thinned += thinned
            state.rows += len(part.times) + thinned
        highest = max(int(times.max()) for times in (batch.times, batch.left_out) if times.size)
        self.event_time = highest if self.event_time is None else max(highest, self.event_time)

    def _sketch(self, state: PaneState, part: Batch) -> None:
        _update(state.sketch, part)
        if state.twin is not None:
            assert part.hashes is not None and self.counting.calibration is not None  # noqa: S101, PT018
            light = part.part(in_fraction(part.hashes, self.counting.calibration))
            _update(state.twin, light)
            state.light += len(light.times)


@dataclass
class Block:
    """Offsets [first, upto) of one partition."""

    topic: str
    partition: int
    options: IngestOptions
    first: int
    first_timestamp: int
    previous: int | None
    upto: int
    #: How a model's rows are sketched, from the block's first row of it to the last.
    counting: Callable[[str], Counting]
    accumulators: Accumulators = SKETCHES
    shapes: Shapes | None = None
    lost: int = 0
    size: int = 0
    sealed: bool = False
    models: dict[str, ModelBlock] = field(default_factory=dict)
    rejections: list[Rejection] = field(default_factory=list)

    def __post_init__(self) -> None:
        size, span = self.options.block_offsets, round(self.options.block_seconds * 1000)
        self._offsets_end = (self.first // size + 1) * size
        self._time_end = (self.first_timestamp // span + 1) * span

    @property
    def finished(self) -> bool:
        """No later record changes this block."""
        return self.sealed and not any(model.staged for model in self.models.values())

    def holds(self, record: Record) -> bool:
        """Say whether the next record of the partition belongs to this block."""
        return (
            record.offset < self._offsets_end
            and record.timestamp < self._time_end
            and self.size < self.options.block_bytes
        )

    def _model(self, name: str) -> ModelBlock:
        if name not in self.models:
            self.models[name] = ModelBlock(self.counting(name))
        return self.models[name]

    def add(self, record: Record) -> None:
        """Decode the record and stage its rows."""
        self.upto = record.offset + 1
        self.size += len(record.value or b"")
        try:
            decoded = decode(record, self.options, self.shapes)
        except RejectedError as error:
            self.refuse(UNKNOWN_MODEL, Refusal(record, error.rows, error.reason, str(error)))
            return
        errors = list(decoded.errors)
        for name, staged in decoded.staged:
            model = self.models.get(name)
            if model is not None:
                model.staged.append(staged)
                continue
            if len(self.models) - (UNKNOWN_MODEL in self.models) >= self.options.max_models:
                text = f"a block counts at most {self.options.max_models} models"
                refused = range(staged.index, staged.index + staged.rows)
                errors += [RowError(index, Reason.TOO_MANY_MODELS, text) for index in refused]
                continue
            self._model(name).staged.append(staged)
        if errors:
            errors.sort(key=lambda error: error.index)
            self.refuse(UNKNOWN_MODEL, refusal(record, errors))

    def count(self, name: str, epoch: Epoch | None) -> None:
        """Count the staged rows of a model; ``epoch`` is bound where it has none in this block."""
        model = self.models[name]
        model.epoch = model.epoch or epoch
        if model.epoch is None:
            return
        staged, model.staged = model.staged, []
        hashed = bool(model.epoch.record.samples) or model.counting != FULL
        place = f"{self.topic}/{self.partition}" if hashed else None
        rule = model.time_rule(self.options)
        for part in encode(staged, model.epoch.layout, rule, place, model.counting.fraction):
            if isinstance(part, Batch):
                model.add(part, self.accumulators)
            else:
                self.refuse(name, part)

    def forget(self, name: str) -> None:
        """Drop a model that has no row here any more."""
        model = self.models.get(name)
        if model is not None and not (model.staged or model.panes or model.rejected):
            del self.models[name]

    def refuse(self, name: str, refused: Refusal) -> None:
        """Count rejected rows, and keep one dead letter for their record."""
        rejected = self._model(name).rejected
        if refused.errors:
            rejected.update(error.reason.value for error in refused.errors)
        else:
            rejected[refused.reason.value] += refused.rows
        letter = DeadLetter(
            topic=self.topic,
            partition=self.partition,
            offset=refused.record.offset,
            reason=refused.reason.value,
            message=refused.message,
            first_seen=refused.record.timestamp,
            rows=tuple(error.index for error in refused.errors),
            count=refused.rows,
        )
        self.rejections.append(Rejection(letter, refused.record, name, refused.rows))

    def sketches(
        self, name: str, pane: int, state: PaneState, epoch: Epoch
    ) -> Iterator[tuple[SketchHeader, bytes]]:
        """Yield the sketch of a pane as it is now, and its light twin where it has one."""
        counting = self.models[name].counting
        header = SketchHeader(
            model=name,
            topic=self.topic,
            partition=self.partition,
            block=self.first,
            pane=pane,
            epoch=epoch.record.epoch,
            upto=self.upto,
            rows=state.rows,
            final=self.finished,
            fraction=counting.fraction,
            thinned=state.thinned,
        )
        yield header, state.sketch.to_bytes()
        state.sketch.rest()
        if state.twin is not None and counting.calibration is not None:
            light = {"fraction": counting.calibration, "thinned": state.rows - state.light}
            yield msgspec.structs.replace(header, twin=True, **light), state.twin.to_bytes()
            state.twin.rest()

    def manifest(self, partitions: int, acknowledged: int, end_offset: int) -> Manifest:
        """Return what the block's rows became so far."""
        return Manifest(
            topic=self.topic,
            partition=self.partition,
            partitions=partitions,
            block=self.first,
            upto=self.upto,
            previous=self.previous,
            lost=self.lost,
            sealed=self.finished,
            acknowledged=acknowledged,
            end_offset=end_offset,
            models={
                name: ModelCount(
                    accepted={pane: state.rows for pane, state in model.panes.items()},
                    rejected=dict(model.rejected),
                    waiting=model.waiting,
                    event_time=model.event_time,
                    epoch=None if model.epoch is None else model.epoch.record.epoch,
                    fraction=model.counting.fraction,
                    thinned=sum(state.thinned for state in model.panes.values()),
                    calibration=model.counting.calibration,
                )
                for name, model in self.models.items()
            },
        )


def _update(sketch: PaneSketch, rows: Batch) -> None:
    sketch.update(rows.X, rows.Y, rows.weight, hashes=rows.hashes, event_times=rows.times)


def staged_of(blocks: Sequence[Block], model: str) -> list[Staged]:
    """Return the rows of a model that wait for its grid, in offset order."""
    return [
        entry for block in blocks if model in block.models for entry in block.models[model].staged
    ]
