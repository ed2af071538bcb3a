"""The cores of ingest and merge joined in one process, on a clock of their own: what workers compute.

Broker and client libraries are left out. Every record crosses as the bytes that the topics would hold.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry

from attributary.schemas.arrow import encode_arrow_rows
from attributary.schemas.attribution import WindowAttribution
from attributary.schemas.card import DEFAULT_WINDOWS, Feature, ModelCard
from attributary.schemas.grid import GridRecord
from attributary.schemas.manifest import MANIFEST_KEY, Manifest
from attributary.schemas.sketch import decode_sketch
from attributary.schemas.topics import Topics
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.decode import Record, Staged, decode
from attributary.workers.stream.epoch import propose_first
from attributary.workers.stream.gauges import ModelGauges
from attributary.workers.stream.ingest import PartitionIngest
from attributary.workers.stream.merge import MergePartition
from attributary.workers.stream.metrics import StreamMetrics
from attributary.workers.stream.options import IngestOptions, MergeOptions
from attributary.workers.stream.outgoing import flush_records, result_record, sketch_partition

#: Where the clock begins: the start of a pane, a window and a block's ten minutes.
BEGAN_MS = 1_700_000_400_000
POOL = 2048
TOPICS = Topics()


def names(models: int) -> list[str]:
    """Return the names of so many models."""
    return [f"model_{index:05}" for index in range(models)]


@lru_cache(maxsize=8)
def pool(columns: int, outputs: int) -> tuple[Any, Any]:
    """Return X (POOL, d) and Y (POOL, c): correlated Gaussian rows, seeded."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((POOL, columns))
    Y = X @ rng.standard_normal((columns, outputs)) / columns**0.5
    return X, Y + rng.standard_normal(Y.shape)


@lru_cache(maxsize=8)
def _json_tails(columns: int, outputs: int) -> list[bytes]:
    X, Y = pool(columns, outputs)
    keys = feature_names(columns)
    return [
        json.dumps({"features": dict(zip(keys, x, strict=True)), "outputs": y}).encode()[1:]
        for x, y in zip(X.tolist(), Y.tolist(), strict=True)
    ]


def feature_names(columns: int) -> list[str]:
    """Return the names of the features."""
    return [f"feature_{index:03}" for index in range(columns)]


def json_row(model: str, columns: int, outputs: int, index: int) -> bytes:
    """Return a message of one row: numbers with all their digits."""
    tails = _json_tails(columns, outputs)
    return b'{"model": "%s", ' % model.encode() + tails[index % POOL]


@lru_cache(maxsize=1024)
def arrow_rows(model: str, columns: int, outputs: int, index: int, rows: int) -> bytes:
    """Return a message of several rows of one model, float64."""
    X, Y = pool(columns, outputs)
    at = np.arange(index, index + rows) % POOL
    found = {name: X[at, k] for k, name in enumerate(feature_names(columns))}
    named = [f"output_{k}" for k in range(outputs)]
    return encode_arrow_rows(
        model, {**found, **{name: Y[at, k] for k, name in enumerate(named)}}, named
    )


def card(
    model: str, columns: int, outputs: int, windows: Sequence[Any] = (), lateness: float = 60.0
) -> ModelCard:
    """Return a card of numeric features."""
    return ModelCard(
        model=model,
        features=[Feature(name=name) for name in feature_names(columns)],
        outputs=[f"output_{index}" for index in range(outputs)],
        windows=list(windows or DEFAULT_WINDOWS),
        allowed_lateness_seconds=lateness,
    )


@lru_cache(maxsize=8)
def first_grid(columns: int, outputs: int) -> GridRecord:
    """Return the grid that a model's first 1,024 rows make."""
    options = IngestOptions()
    staged: list[Staged] = []
    for index in range(options.grid_rows):
        record = Record(index, BEGAN_MS, json_row("m", columns, outputs, index))
        staged += [entry for _, entry in decode(record, options).staged]
    found = propose_first("m", card("m", columns, outputs), 0, staged, options)
    assert isinstance(found, GridRecord)
    return found


def held_bytes(roots: Iterable[object], without: set[int]) -> int:
    """Return the bytes of what ``roots`` reach, but for objects with these ids."""
    return sum(
        each.nbytes if isinstance(each, np.ndarray) else sys.getsizeof(each)
        for each in _reached(roots, without)
    )


def _reached(roots: Iterable[object], seen: set[int] | None = None) -> Iterator[object]:
    seen = set() if seen is None else set(seen)
    waiting = list(roots)
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, type | ModuleType | FunctionType | MethodType):
            continue
        seen.add(id(each))
        if isinstance(each, np.ndarray) and each.base is not None:
            waiting.append(each.base)
            continue
        yield each
        waiting += gc.get_referents(each)


class Pipeline:
    """Models of one shape on ``sources`` source partitions, merged on ``sinks`` sketches partitions.

    ``seconds`` of processor time by stage (read, flush, take, publish), ``counts`` of what went through.
    """

    def __init__(
        self,
        models: Sequence[str],
        columns: int,
        outputs: int,
        *,
        sources: int = 1,
        sinks: int = 1,
        windows: Sequence[Any] = (),
        lateness: float = 60.0,
        ingest: IngestOptions | None = None,
        merge: MergeOptions | None = None,
    ) -> None:
        self.models, self.columns, self.outputs = list(models), columns, outputs
        self.ingest_options = ingest or IngestOptions()
        self.merge_options = merge or MergeOptions()
        self.seconds: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.clock = BEGAN_MS
        self.catalogue = ControlCatalogue()
        grid = first_grid(columns, outputs)
        for name in models:
            made = card(name, columns, outputs, windows, lateness)
            self.catalogue.add_card(name.encode(), made.to_bytes())
            self.catalogue.add_grid(grid.model_copy(update={"model": name}).to_bytes())
        self.catalogue.complete()
        self.sources = [
            PartitionIngest(
                "rows", number, 0, self.catalogue, self.ingest_options, partitions=sources
            )
            for number in range(sources)
        ]
        self.sinks = [
            MergePartition(
                self.catalogue,
                self.merge_options,
                lambda model, number=number: sketch_partition(model, sinks) == number,
            )
            for number in range(sinks)
        ]
        self.registry = CollectorRegistry()
        self.gauges = ModelGauges(
            StreamMetrics.build(self.registry),
            self.merge_options.exported_features,
            self.merge_options.series_per_model,
        )
        self._shared: set[int] = set()
        self._ends = [0] * sources
        self._logs: list[list[tuple[bytes, bytes]]] = [[] for _ in range(sinks)]
        self._positions = [0] * sinks

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        began = time.process_time()
        yield
        self.seconds[stage] += time.process_time() - began

    def read(self, source: int, messages: Iterable[bytes]) -> None:
        """Give messages to a source partition, in one poll."""
        core, end = self.sources[source], self._ends[source]
        records = [Record(end + n, self.clock, value) for n, value in enumerate(messages)]
        self._ends[source] = end + len(records)
        self.counts["messages"] += len(records)
        self.counts["message_bytes"] += sum(len(record.value or b"") for record in records)
        with self._timed("read"):
            core.add(records, self.clock / 1000, end_offset=self._ends[source])

    def flush(self) -> None:
        """Send what has changed, and have it acknowledged."""
        for core, end in zip(self.sources, self._ends, strict=True):
            with self._timed("flush"):
                flush = core.flush(end)
                records = flush_records(flush, TOPICS, len(self.sinks))
                core.acknowledged(flush)
            self.counts["rows"] += flush.accepted.total()
            self.counts["rejected"] += len(flush.rejections)
            self.counts["sketches"] += len(flush.sketches)
            self.counts["manifests"] += len(flush.manifests)
            for record in records:
                if record.topic != TOPICS.sketches:
                    continue
                key, value = record.key or b"", record.value or b""
                kind = "manifest_bytes" if key.startswith(MANIFEST_KEY) else "sketch_bytes"
                self.counts[kind] += len(value)
                assert record.partition is not None
                self._logs[record.partition].append((key, value))

    def take(self) -> None:
        """Have merge take what was sent."""
        for number, core in enumerate(self.sinks):
            log, self._logs[number] = self._logs[number], []
            with self._timed("take"):
                for key, value in log:
                    if key.startswith(MANIFEST_KEY):
                        core.add_manifest(Manifest.from_bytes(value), self.clock)
                    else:
                        core.add_sketch(*decode_sketch(value), self.clock, self._positions[number])
                    self._positions[number] += 1

    def publish(self) -> None:
        """Publish what has changed, as messages and as gauges."""
        for core in self.sinks:
            with self._timed("publish"):
                for messages in core.publish_in_parts(self.clock):
                    for message in messages:
                        record = result_record(message, TOPICS)
                        self.counts["messages_out"] += 1
                        self.counts["bytes_out"] += len(record.value or b"")
                        if isinstance(message, WindowAttribution):
                            self.counts["attributions"] += 1
                            self.gauges.attributions(message)
                        else:
                            self.gauges.drift(message)

    def memory(self, *, ingest: bool = True, merge: bool = True) -> int:
        """Return the bytes that ingest, merge or both hold, without cards and grids."""
        if not self._shared:
            shared = [self.catalogue, self.ingest_options, self.merge_options]
            self._shared = {id(each) for each in _reached(shared)}
        return held_bytes([*self.sources * ingest, *self.sinks * merge], self._shared)

    def series(self) -> int:
        """Return how many series of models there are now."""
        return sum(
            1
            for family in self.registry.collect()
            for sample in family.samples
            if "model" in sample.labels
        )
