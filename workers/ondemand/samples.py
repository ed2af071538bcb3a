"""Rows of a model's stream, from the samples in its sketches.

Each sketch keeps the rows of its pane whose ids have the smallest hashes. Below the smallest of the largest
hashes kept by full samples every row of the window is there, so these rows are a uniform sample, whatever
the panes' and partitions' shares, and the smallest hashes among them are the same ones every time.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from aiokafka import ConsumerRecord, TopicPartition
from mode import Service

from attributary.schemas.connection import Connection
from attributary.schemas.errors import RejectedError
from attributary.schemas.explanation import ErrorCode
from attributary.schemas.manifest import MANIFEST_KEY
from attributary.schemas.request import StreamWindow
from attributary.schemas.sketch import SketchHeader, decode_sketch
from attributary.schemas.topics import Topics
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.maths.sample import RowSample
from attributary.workers.maths.wire import IncompatibleStateError
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.inputs import Inputs
from attributary.workers.ondemand.methods.method import Floats
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.closing import close
from attributary.workers.stream.ends import CatchUp
from attributary.workers.stream.layout import Layout
from attributary.workers.stream.log_reader import lone_consumer
from attributary.workers.stream.outgoing import sketch_partition

_log = logging.getLogger(__name__)

_MOST_MODELS = 8
_Place = tuple[str, int, int]


@dataclass(frozen=True)
class Drawn:
    """Rows X (n, columns) as a model's inputs, and the outputs Y (n, outputs) that came with them.

    ``event_time`` (n,) in milliseconds. NaN is missing.
    """

    X: Floats
    Y: Floats
    event_time: npt.NDArray[np.int64]

    def by_time(self) -> Drawn:
        """Return the same rows in the order of their event times."""
        order = np.argsort(self.event_time, kind="stable")
        return Drawn(self.X[order], self.Y[order], self.event_time[order])


@dataclass(frozen=True)
class _Pane:
    """The sample of one (source, block, pane), and what it counts."""

    upto: int
    epoch: int
    sample: RowSample


class SampleBook:
    """One model's samples by pane; the oldest panes go when they hold more than ``most`` rows.

    One thread may add while others draw.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._changing = threading.Lock()
        self._rows = 0
        self._panes: dict[int, dict[_Place, _Pane]] = {}

    def add(self, header: SketchHeader, sample: RowSample) -> None:
        """Take a sketch's sample; of two of one place the one that counts more offsets holds."""
        with self._changing:
            self._add(header, sample)

    def _add(self, header: SketchHeader, sample: RowSample) -> None:
        panes = self._panes.setdefault(header.pane, {})
        place = (header.topic, header.partition, header.block)
        known = panes.get(place)
        if known is not None:
            if known.upto >= header.upto:
                return
            self._rows -= len(known.sample.rows().hashes)
        panes[place] = _Pane(header.upto, header.epoch, sample)
        self._rows += len(sample.rows().hashes)
        while self._rows > self._most and len(self._panes) > 1:
            oldest = self._panes.pop(min(self._panes))
            self._rows -= sum(len(pane.sample.rows().hashes) for pane in oldest.values())

    def draw(
        self,
        window: StreamWindow,
        inputs: Inputs,
        layouts: Mapping[int, Layout],
        outputs: Sequence[str] = (),
    ) -> Drawn:
        """Return rows of the window with the outputs that are named, at most ``window.rows``.

        ``layouts`` are those of each epoch. Rows come by ascending hash; a row counted twice comes once.
        """
        with self._changing:
            samples = [
                (pane.sample, layouts[pane.epoch])
                for start in sorted(self._panes)
                for _, pane in sorted(self._panes[start].items())
                if pane.epoch in layouts
            ]
        parts = [sample.rows() for sample, _ in samples]
        newest = max((int(part.event_time.max()) for part in parts if len(part.hashes)), default=0)
        end = newest + 1 if window.end is None else window.end
        start = window.start
        if window.seconds is not None:
            start = end - round(window.seconds * 1000)
        found: dict[int, tuple[Floats, Floats, int]] = {}
        limit = np.iinfo(np.uint64).max
        for (sample, layout), part in zip(samples, parts, strict=True):
            if not len(part.hashes):
                continue
            inside = part.event_time < end
            if start is not None:
                inside &= part.event_time >= start
            if not inside.any():
                continue
            if len(part.hashes) >= sample.size and int(sample.seen.sum()) > sample.size:
                limit = min(limit, int(part.hashes.max()))
            rows = zip(
                inputs.project(part.X[inside], layout.columns),
                _outputs(part.Y[inside], layout.outputs, outputs),
                part.event_time[inside].tolist(),
                strict=True,
            )
            found.update(zip(part.hashes[inside].tolist(), rows, strict=True))
        chosen = [found[value] for value in sorted(found) if value <= limit][: window.rows]
        return Drawn(
            np.array([x for x, _, _ in chosen]).reshape(len(chosen), inputs.width),
            np.array([y for _, y, _ in chosen]).reshape(len(chosen), len(outputs)),
            np.array([time for _, _, time in chosen], dtype=np.int64),
        )


def _outputs(Y: Floats, given: Sequence[str], wanted: Sequence[str]) -> Floats:
    """Return the outputs that are wanted (n, wanted), NaN where the rows have none of that name."""
    found = np.full((len(Y), len(wanted)), np.nan)
    for place, name in enumerate(wanted):
        if name in given:
            found[:, place] = Y[:, given.index(name)]
    return found


class SampleReader(Service):
    """Reads the sketches of the models that requests ask for, each time on from where it was."""

    def __init__(
        self,
        connection: Connection,
        topics: Topics,
        catalogue: ControlCatalogue,
        rows: int,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._topic = topics.sketches
        self._catalogue = catalogue
        self._rows = rows
        self._lock = asyncio.Lock()
        self._books: OrderedDict[str, SampleBook] = OrderedDict()
        self._positions: dict[TopicPartition, int] = {}
        self._consumer = lone_consumer(connection, wait_ms=50)

    async def on_start(self) -> None:
        """Connect."""
        await self._consumer.start()

    async def on_stop(self) -> None:
        """Disconnect."""
        await close(self._consumer.stop())

    async def draw(
        self, model: str, window: StreamWindow, inputs: Inputs, outputs: Sequence[str] = ()
    ) -> Drawn:
        """Return rows of the model's stream and their outputs; RequestError where there are none."""
        async with self._lock:
            book = await self._book(model)
        layouts = self._catalogue.layouts(model)
        rows = await asyncio.to_thread(book.draw, window, inputs, layouts, outputs)
        if not len(rows.X):
            raise RequestError(
                ErrorCode.SAMPLES_MISSING,
                f"the stream of {model} has no sampled rows"
                + ("" if window == StreamWindow(rows=window.rows) else " in this window")
                + ": register its card with samples above 0 and publish rows, or send rows inline",
            )
        return rows

    async def _book(self, model: str) -> SampleBook:
        partition = await self._partition(model)
        if model not in self._books:
            self._books[model] = SampleBook(self._rows)
            self._positions.pop(partition, None)
        self._books.move_to_end(model)
        while len(self._books) > _MOST_MODELS:
            self._books.popitem(last=False)
        self._consumer.assign([partition])
        if partition in self._positions:
            self._consumer.seek(partition, self._positions[partition])
        else:
            await self._consumer.seek_to_beginning(partition)
        catch_up = CatchUp(self._consumer, [partition])
        while not await catch_up.reached():
            found = await self._consumer.getmany(timeout_ms=200, max_records=500)
            await asyncio.to_thread(self._add_all, found.get(partition, []))
        self._positions[partition] = await self._consumer.position(partition)
        return self._books[model]

    async def _partition(self, model: str) -> TopicPartition:
        await self._consumer.topics()  # or it knows the partitions of what it has read only
        known = self._consumer.partitions_for_topic(self._topic) or {0}
        return TopicPartition(self._topic, sketch_partition(model, len(known)))

    def _add_all(self, records: list[ConsumerRecord]) -> None:
        for record in records:
            key, value = record.key or b"", record.value
            if value is None or key.startswith(MANIFEST_KEY):
                continue
            try:
                header, body = decode_sketch(value)
                book = self._books.get(header.model)
                if book is None:
                    continue
                sample = PaneSketch.sample_in(body)
            except (RejectedError, IncompatibleStateError) as error:
                _log.warning(
                    "skipped %s/%d offset %d: %s",
                    record.topic, record.partition, record.offset, error,
                )  # fmt: skip
                continue
            if sample is not None:
                book.add(header, sample)
