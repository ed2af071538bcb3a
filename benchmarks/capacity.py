"""The capacity model beside measured runs, and what a million rows a second of 10,000 models need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from attributary.schemas.card import Lifetime, Tumbling
from attributary.workers.stream.options import IngestOptions, MergeOptions
from benchmarks import capacity_report, endtoend
from benchmarks.capacity_model import Capacity, Deployment, Workload
from benchmarks.pipeline import BEGAN_MS, POOL, Pipeline, arrow_rows, json_row, names
from benchmarks.planner import Plan, plan
from benchmarks.suite import Options, Suite
from benchmarks.unit_fit import UnitCosts

#: What docs/scale.md is about.
TARGET = Workload(rows_per_second=1e6, models=10_000, features=200)
_POLLS = 2
_BLOCK_OFFSETS, _LATENESS, _WINDOW = 1_024, 10.0, 10.0
# Of the warm-up, which holds windows and their lateness, and of what is counted: whole windows and rounds.
_DURATIONS = {False: (20, 20), True: (8, 8)}


@dataclass(frozen=True)
class Size:
    """A run to check the model with: ``rate`` rows a second of each model; seconds of flush and publish."""

    models: int
    features: int
    rate: float
    flush: int = 1
    publish: int = 1
    keyed: bool = False
    format: Literal["json", "arrow"] = "json"
    message_rows: int = 1
    outputs: int = 1
    sources: int = 4
    sinks: int = 2


SIZES = (
    Size(models=1, features=50, rate=800, outputs=2),
    Size(models=30, features=50, rate=20, flush=2, publish=4, sources=2),
    Size(models=300, features=20, rate=4, flush=4, publish=10, keyed=True),
    Size(
        models=10,
        features=50,
        rate=200,
        flush=2,
        publish=4,
        sources=2,
        format="arrow",
        message_rows=20,
    ),
)
QUICK_SIZES = (
    Size(models=1, features=6, rate=200, publish=2),
    Size(models=12, features=6, rate=10, publish=4, keyed=True),
)


def check(size: Size, options: Options) -> dict[str, Any]:
    """Return what a run used, a second of the stream, and what the model says of it."""
    work, deployment = modelled(size, options)
    pipeline = Pipeline(
        names(size.models),
        size.features,
        size.outputs,
        sources=size.sources,
        sinks=size.sinks,
        windows=deployment.windows,
        lateness=deployment.lateness_seconds,
        ingest=deployment.ingest,
        merge=deployment.merge,
    )
    feed = _Feed(size)
    warm_up, seconds = _DURATIONS[options.quick]
    before: tuple[Any, Any] = pipeline.seconds, pipeline.counts
    held: list[int] = []
    for second in range(warm_up + seconds):
        if second == warm_up:
            before = pipeline.seconds.copy(), pipeline.counts.copy()
        for turn in range(_POLLS):
            pipeline.clock = BEGAN_MS + round(1000 * (second + turn / _POLLS))
            for source, messages in enumerate(feed.next(1 / _POLLS)):
                if messages:
                    pipeline.read(source, messages)
        if (second + 1) % size.flush == 0:
            # Before a flush and after it: in between, on average.
            kept = second >= warm_up
            held += [pipeline.memory(merge=False)] if kept else []
            pipeline.flush()
            held += [pipeline.memory(merge=False)] if kept else []
            pipeline.take()
        if (second + 1) % size.publish == 0:
            pipeline.publish()
    assert not pipeline.counts["rejected"]
    spent, counted = pipeline.seconds - before[0], pipeline.counts - before[1]
    measured = {
        "read rows, s": spent["read"] / seconds,
        "flush, s": spent["flush"] / seconds,
        "take in, s": spent["take"] / seconds,
        "publish, s": spent["publish"] / seconds,
        "sketches": counted["sketches"] / seconds,
        "sketch bytes": counted["sketch_bytes"] / seconds,
        "manifest bytes": counted["manifest_bytes"] / seconds,
        "messages out": counted["messages_out"] / seconds,
        "bytes out": counted["bytes_out"] / seconds,
        "memory of ingest": float(np.mean(held)),
        "memory of merge": pipeline.memory(ingest=False),
        "series": pipeline.series(),
    }
    costs = UnitCosts(options.measured("unit-costs")).of(size.features, size.outputs)
    expected = predicted(Capacity(work, deployment, costs))
    return {
        **asdict(size),
        "seconds": seconds,
        "block_seconds": Capacity(work, deployment, costs).block_seconds,
        "pairs": {name: [float(measured[name]), expected[name]] for name in measured},
    }


def modelled(size: Size, options: Options) -> tuple[Workload, Deployment]:
    """Return a run as the model sees it."""
    rows = size.models * size.rate
    work = Workload(
        rows,
        size.models,
        size.features,
        size.outputs,
        format=size.format,
        message_rows=size.message_rows,
        keyed=size.keyed,
    )
    deployment = Deployment(
        size.sources,
        size.sinks,
        IngestOptions(
            block_offsets=_BLOCK_OFFSETS // (8 if options.quick else 1),
            flush_seconds=size.flush,
        ),
        MergeOptions(publish_seconds=size.publish, idle_seconds=5.0),
        windows=[Tumbling(seconds=_WINDOW), Lifetime()],
        partitions_per_process=1,
        lateness_seconds=_LATENESS,
        poll_messages=rows / size.message_rows / size.sources / _POLLS,
    )
    return work, deployment


def predicted(model: Capacity) -> dict[str, float]:
    """Return what the model says, by the names of what is measured."""
    ingest, merge = model.ingest_cores, model.merge_cores
    return {
        "read rows, s": ingest["read"] + ingest["reduce"],
        "flush, s": ingest["sketches"] + ingest["manifests"],
        "take in, s": merge["sketches"] + merge["manifests"],
        "publish, s": merge["endless views"] + merge["windows"] + merge["rounds"],
        "sketches": model.sketches,
        "sketch bytes": model.sketch_bytes,
        "manifest bytes": model.manifest_bytes,
        "messages out": model.messages_out,
        "bytes out": model.bytes_out,
        "memory of ingest": model.ingest_memory,
        "memory of merge": model.merge_memory,
        "series": float(model.merge_series),
    }


class _Feed:
    """The messages of each source partition, a Poisson number for each model."""

    def __init__(self, size: Size) -> None:
        self._size = size
        self._rng = np.random.default_rng(3)
        self._next = [0] * size.models
        self._names = names(size.models)

    def next(self, seconds: float) -> list[list[bytes]]:
        """Return what comes in so many seconds, by source partition."""
        size = self._size
        found: list[list[bytes]] = [[] for _ in range(size.sources)]
        counts = self._rng.poisson(size.rate * seconds / size.message_rows, size.models)
        order = self._rng.permutation(np.repeat(np.arange(size.models), counts))
        for model in order.tolist():
            turn = self._next[model]
            self._next[model] += 1
            where = model if size.keyed else int(self._rng.integers(size.sources))
            shape = size.features, size.outputs
            if size.format == "json":
                message = json_row(self._names[model], *shape, turn)
            else:
                at = turn % (POOL // size.message_rows) * size.message_rows
                message = arrow_rows(self._names[model], *shape, at, size.message_rows)
            found[where % size.sources].append(message)
        return found


def worker(options: Options) -> dict[str, Any]:
    """Return what a row costs a real ingest worker, broker and client included, and the model's answer."""
    found = endtoend.throughput("embedded", "json", 1, replace(options, quick=True))
    costs = UnitCosts(options.measured("unit-costs")).of(endtoend.FEATURES, 1)
    rate = found["rows"] / found["seconds"]
    work = Workload(rate, 1, endtoend.FEATURES, row_bytes=found["bytes"])
    # As fast as it can: a poll brings all that it may.
    model = Capacity(work, Deployment(4, 4, partitions_per_process=4), costs)
    measured, predicted = found["cpu_seconds"] / found["rows"], model.total_ingest / rate
    return {"rows_per_second": rate, "worker": [1e6 * measured, 1e6 * predicted]}


def variants() -> list[tuple[str, str, Workload, Deployment]]:
    """Return the ways to run it: name, what changes beside the one before, workload, deployment."""
    shipped = Deployment(1, 1)
    keyed = replace(TARGET, keyed=True)
    blocks = replace(shipped, ingest=IngestOptions(block_offsets=2**18, block_bytes=1024 * 2**20))
    slower = replace(
        blocks,
        ingest=blocks.ingest.model_copy(update={"flush_seconds": 15.0}),
        merge=MergeOptions(publish_seconds=15.0),
    )
    windows = replace(
        slower,
        windows=[Tumbling(seconds=60)],
        pane_seconds=60.0,
        merge=slower.merge.model_copy(update={"exported_features": 5}),
    )
    arrow = replace(keyed, format="arrow", message_rows=100)
    return [
        ("A", "as shipped, rows on any partition", TARGET, shipped),
        ("B", "all rows of a model on one partition: its name as their key", keyed, shipped),
        ("C", "`ingest.block_offsets` 262,144, `ingest.block_bytes` 1 GiB", keyed, blocks),
        ("D", "`ingest.flush_seconds` 15, `merge.publish_seconds` 15", keyed, slower),
        (
            "E",
            "cards without a lifetime view, with `pane_seconds` 60; `merge.exported_features` 5",
            keyed,
            windows,
        ),
        ("F", "Arrow messages of 100 rows in place of JSON rows", arrow, windows),
    ]


def needs(options: Options) -> dict[str, Any]:
    """Return the plan of every variant."""
    costs = UnitCosts(options.measured("unit-costs")).of(TARGET.features, TARGET.outputs)
    return {
        "workload": {
            "rows_per_second": TARGET.rows_per_second,
            "models": TARGET.models,
            "features": TARGET.features,
        },
        "sketch": {
            str(rows): {
                name: float(costs.sketch(name, rows))
                for name in ("encode", "read_sketch", "merge", "bytes")
            }
            for rows in (1, 100, 1000)
        },
        "variants": [
            {"name": name, "change": change, **summary(plan(work, like, costs))}
            for name, change, work, like in variants()
        ],
    }


def summary(found: Plan) -> dict[str, Any]:
    """Return a plan as numbers, of all its deployments together."""
    one, times = found.capacity, found.capacity.deployment.deployments

    def all_of(parts: Mapping[str, float]) -> dict[str, float]:
        return {name: times * value for name, value in parts.items()}

    sent = {
        "rows": one.rows_bytes,
        "sketches": one.sketch_bytes,
        "manifests": one.manifest_bytes,
        "results": one.bytes_out,
        "snapshots": one.snapshot_bytes,
    }
    rate = one.workload.rows_per_second / one.deployment.source_partitions
    return {
        "fits": found.fits,
        "deployments": times,
        "source_partitions": times * one.deployment.source_partitions,
        "sketch_partitions": times * one.deployment.sketch_partitions,
        "ingest_processes": times * found.ingest_processes,
        "merge_processes": times * found.merge_processes,
        "ingest_cores": all_of(one.ingest_cores),
        "merge_cores": all_of(one.merge_cores),
        "ingest_process_memory": found.ingest_process_memory,
        "merge_process_memory": found.merge_process_memory,
        "memory": times * found.memory,
        "block_seconds": one.block_seconds,
        "burst_seconds": one.burst_seconds * one.deployment.partitions_per_process,
        "replay_rows": one.block_seconds * rate,
        "models_per_block": one.models_per_block,
        "rows_per_sketch": one.rows_per_sketch,
        "sketches": times * one.sketches,
        "manifests": times * one.manifest_copies,
        "publications": all_of(one.publications),
        "bytes": all_of(sent),
        "replication": one.deployment.replication,
        "series": times * one.series,
        "series_per_merge_process": one.merge_series / found.merge_processes,
        "broken": one.broken(),
    }


def cases(options: Options) -> dict[str, Callable[[], Any]]:
    """Return a case for every size, one with a real worker, and the plans."""
    found: dict[str, Callable[[], Any]] = {
        "capacity, what it needs": partial(needs, options),
    }
    for size in QUICK_SIZES if options.quick else SIZES:
        found[f"capacity, check of {size.models} models, {size.format}"] = partial(
            check, size, options
        )
    if not options.quick:
        found["capacity, check of a worker"] = partial(worker, options)
    return found


SUITE = Suite(
    "capacity",
    "A million rows a second",
    cases,
    capacity_report.section,
    page="scale",
    figures=capacity_report.figures,
)
