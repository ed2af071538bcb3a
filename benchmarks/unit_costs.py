"""What each step of ingest and merge costs for models of a shape: seconds of one core, and bytes.

Every step is the call that a worker makes. ``benchmarks.capacity_model`` adds them up.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from prometheus_client import CollectorRegistry

from attributary.schemas.attribution import Accounting, Window, WindowAttribution
from attributary.schemas.card import Lifetime
from attributary.schemas.manifest import Manifest, ModelCount
from attributary.schemas.sketch import decode_sketch, encode_sketch
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.maths.window import WindowState
from attributary.workers.stream.drift import DriftBook
from attributary.workers.stream.due import Due
from attributary.workers.stream.epoch import Epoch
from attributary.workers.stream.gauges import ModelGauges
from attributary.workers.stream.held import Held, window_of
from attributary.workers.stream.lightweight import Tally
from attributary.workers.stream.messages import attribution_messages
from attributary.workers.stream.metrics import StreamMetrics
from attributary.workers.stream.options import MergeOptions
from benchmarks import client_costs
from benchmarks.peers.timing import seconds
from benchmarks.pipeline import (
    BEGAN_MS,
    Pipeline,
    arrow_rows,
    first_grid,
    json_row,
    names,
    pool,
)
from benchmarks.suite import Options, Suite, number, shape, size, table

#: Rows in a sketch: what it costs to make and to merge depends on them.
ROWS = (1, 10, 100, 1_000, 5_000)
#: The (features, outputs) that are measured; other shapes are interpolated.
SHAPES = ((20, 1), (20, 10), (100, 1), (100, 10), (200, 1))
QUICK_SHAPES = ((6, 1),)
ARROW_ROWS = 100
_REDUCED = 8_192
_BOOKS_MODELS = 200

#: What is measured per shape, by the name in the results: title, unit.
STEPS = {
    "read_json_row": ("read a JSON row: decode, check, as arrays", "row"),
    "read_arrow_message": ("read an Arrow message, besides its rows", "message"),
    "read_arrow_row": ("read a row of an Arrow message", "row"),
    "read_group": ("rows of one model in one poll, besides the rows", "model and poll"),
    "read_new": ("rows of one model in a block or pane where there were none", "model and pane"),
    "reduce_row": ("digests and cells, 1,024 rows at a time", "row"),
    "publish_final": ("evaluate a window: scores, messages, gauges, drift", "window"),
    "publish_endless": ("the same of a lifetime", "window"),
    "copy_window": ("copy a window", "copy"),
}
#: The same per sketch, by the rows in it.
SKETCH_STEPS = {
    "encode": "make a sketch's bytes from its rows",
    "read_sketch": "read the accumulators of a sketch",
    "merge": "add a sketch to a window",
}

#: And whatever the shape.
BOOKS = {
    "manifest_encode": "encode a manifest of one model",
    "manifest_encode_entry": "each further model in it",
    "manifest_decode": "read a manifest of one model",
    "manifest_decode_entry": "each further model in it, read",
    "manifest_book": "book a manifest of one model in a merge of one model",
    "manifest_pass_model": "each model of the merge that it does not name",
    "manifest_book_model": "each model of the merge that it names",
    "manifest_book_model_source": "the same, each further source partition",
    "take_sketch": "take in a sketch, unread",
    "round_model": "a round of publishing, each model",
    "round_model_source": "the same, each further source partition",
    "round_pair": "the same, where rows of the model are on it",
}


def timed(run: Callable[[], object], options: Options, most: int = 3) -> float:
    """Return the median processor seconds of a call."""
    return float(median(seconds(run, 2 if options.quick else most)))


def pane(epoch: Epoch, rows: int) -> PaneSketch:
    """Return a pane sketch of so many rows, none of which has been reduced for the bytes."""
    X, Y = pool(epoch.grid.columns, epoch.grid.outputs)
    made = PaneSketch(epoch.grid, compression=epoch.record.compression)
    for start in range(0, rows, len(X)):
        part = slice(0, min(len(X), rows - start))
        made.update(X[part], Y[part])
    return made


def _allocated(make: Callable[[], object]) -> int:
    """Return the bytes that what ``make`` returns holds."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    made = make()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    del made
    return held


def _reading(d: int, c: int, options: Options) -> dict[str, float]:
    """Time the reading of rows that stay below the 1,024 at which they are reduced."""

    def read(models: int, rows: int, arrow: int = 0, *, begun: bool = True) -> float:
        found = names(models)

        def messages() -> list[bytes]:
            if arrow:
                return [arrow_rows(m, d, c, k, arrow) for m in found for k in range(rows)]
            return [json_row(m, d, c, k) for k in range(rows) for m in found]

        times = []
        for _ in range(2 if options.quick else 3):
            pipeline = Pipeline(found, d, c)
            # The block and its panes are there already, or the block alone.
            pipeline.read(0, [json_row(m, d, c, 0) for m in found[: None if begun else 1]])
            pipeline.seconds.clear()
            pipeline.read(0, messages())
            times.append(pipeline.seconds["read"])
        return float(median(times))

    rows = 100 if options.quick else 500
    one, many, new = read(1, rows), read(50, rows // 50), read(50, rows // 50, begun=False)
    small, large = read(1, 20, arrow=1), read(1, 8, arrow=ARROW_ROWS)
    per_arrow = max(0.0, (large / 8 - small / 20) / (ARROW_ROWS - 1))
    group = max(0.0, (many - one) / 49)
    return {
        "read_json_row": max(0.0, one - group) / rows,
        "read_group": group,
        "read_new": max(0.0, (new - many) / 49),
        "read_arrow_row": per_arrow,
        "read_arrow_message": max(0.0, small / 20 - per_arrow),
        "json_row_bytes": len(json_row("model_00000", d, c, 0)),
        "arrow_row_bytes": len(arrow_rows("model_00000", d, c, 0, ARROW_ROWS)) / ARROW_ROWS,
    }


def _sketches(epoch: Epoch, options: Options) -> list[dict[str, float]]:
    found = []
    for rows in ROWS:
        made = pane(epoch, rows)

        def encode(made: PaneSketch = made) -> bytes:
            data = made.to_bytes()
            made.rest()
            return data

        body = encode()
        part = window_of(body)
        window = WindowState.of(pane(epoch, 2_000)).copy()
        found.append(
            {
                "rows": rows,
                "encode": timed(encode, options),
                "read_sketch": timed(partial(window_of, body), options),
                "merge": timed(partial(window.merge, part), options),
                "bytes": len(body),
                "pane_memory": _allocated(partial(pane, epoch, rows)),
            }
        )
    return found


def _publishing(epoch: Epoch, options: Options) -> dict[str, float]:
    merge = MergeOptions()
    window = window_of(pane(epoch, 5_000).to_bytes())
    window.merge(window_of(pane(epoch, 5_000).to_bytes()))
    layout = epoch.layout
    accounting = Accounting(
        rows=1, rows_thinned=0, fractions=[1.0], rows_accepted=1, rows_rejected={}, rows_late=0,
        offsets={}, duplicates=0, gaps=0,
    )  # fmt: skip
    gauges = ModelGauges(
        StreamMetrics.build(CollectorRegistry()), merge.exported_features, merge.series_per_model
    )
    book = DriftBook(layout)
    sent: dict[str, int] = {"attribution_bytes": 0, "drift_bytes": 0}
    turn = [0]

    def publish(final: bool) -> None:
        turn[0] += 1
        start = BEGAN_MS + 60_000 * turn[0]
        named = Window(
            kind="tumbling" if final else "lifetime",
            start=start,
            end=start + 60_000,
            seconds=60.0 if final else None,
        )
        scores = window.evaluate(layout.groups)
        for message in attribution_messages(
            "m", layout, scores, named, accounting, revision=10_000, final=final, watermark=None,
            computed_at=0, profiles=merge.profile_features, agreements=[None] * len(layout.outputs),
        ):  # fmt: skip
            sent["attribution_bytes"] = len(message.to_bytes())
            gauges.attributions(message)
        if final:
            tally = Tally()
            tally.rows[1.0], tally.thinned[1.0] = 10_000, 0
            due = Due(0, named, window, tally, final=True)
            for drift in book.compare("m", due, scores, BEGAN_MS, 0):
                assert not isinstance(drift, WindowAttribution)
                sent["drift_bytes"] = len(drift.to_bytes())
                gauges.drift(drift)

    for _ in range(3):
        publish(True)
    return {
        "publish_final": timed(partial(publish, True), options),
        "publish_endless": timed(partial(publish, False), options),
        "copy_window": timed(window.copy, options),
        "window_memory": _allocated(window.copy),
        "window_bytes": len(window.to_bytes()),
        **sent,
    }


def measure(d: int, c: int, options: Options) -> dict[str, Any]:
    """Return what every step costs for models of d features and c outputs."""
    epoch = Epoch.from_record(first_grid(d, c))
    X, Y = pool(d, c)
    rows = _REDUCED // (8 if options.quick else 1)

    def reduce() -> None:
        made = PaneSketch(epoch.grid, compression=epoch.record.compression)
        for start in range(0, rows, 1024):
            at = slice(start % len(X), start % len(X) + 1024)
            made.update(X[at], Y[at])

    return {
        "columns": d,
        "outputs": c,
        "cells": epoch.grid.cells,
        **_reading(d, c, options),
        "reduce_row": timed(reduce, options) / rows,
        "sketches": _sketches(epoch, options),
        **_publishing(epoch, options),
    }


def books(options: Options) -> dict[str, float]:
    """Return what manifests and the rounds over models and source partitions cost, whatever the shape."""
    many, sources = (10, 3) if options.quick else (_BOOKS_MODELS, 16)

    def manifest(models: int) -> Manifest:
        counts = {
            name: ModelCount(accepted={BEGAN_MS: 100}, event_time=BEGAN_MS, epoch=0)
            for name in names(models)
        }
        return Manifest(
            topic="rows", partition=0, partitions=64, block=0, upto=10, previous=None,
            sealed=False, end_offset=10, models=counts,
        )  # fmt: skip

    def each(few: float, more: float, count: int) -> float:
        return max(0.0, (more - few) / count)

    made = manifest(1), manifest(many)
    data = made[0].to_bytes(), made[1].to_bytes()
    encode = [timed(one.to_bytes, options) for one in made]
    decode = [timed(partial(Manifest.from_bytes, one), options) for one in data]
    wire = encode_sketch(*_a_sketch())
    small, large = _reported(1, 1), _reported(many, 1)
    wide, apart = _reported(many, sources), _reported(many, sources, keyed=True)
    rounds = [_idle_round(pipeline, options) for pipeline in (small, large, apart, wide)]
    # Of one model in a merge of one, of one in a merge of many, of all of many, and that with more sources.
    took = [
        _taking(pipeline, models, options)
        for pipeline, models in ((small, 1), (large, 1), (large, many), (wide, many))
    ]
    return {
        "manifest_bytes": len(data[0]),
        "manifest_entry_bytes": (len(data[1]) - len(data[0])) / (many - 1),
        "manifest_encode": encode[0],
        "manifest_encode_entry": each(*encode, many - 1),
        "manifest_decode": decode[0],
        "manifest_decode_entry": each(*decode, many - 1),
        "manifest_book": took[0],
        "manifest_pass_model": each(took[0], took[1], many - 1),
        "manifest_book_model": each(took[1], took[2], many - 1),
        "manifest_book_model_source": each(took[2], took[3], many * (sources - 1)),
        "take_sketch": timed(lambda: Held(*decode_sketch(wire), pane_end=0).place, options),
        "round_model": each(rounds[0], rounds[1], many - 1),
        "round_model_source": each(rounds[1], rounds[2], many * (sources - 1)),
        "round_pair": each(rounds[2], rounds[3], many * (sources - 1)),
    }


def _a_sketch() -> tuple[Any, bytes]:
    pipeline = Pipeline(names(1), 5, 1)
    pipeline.read(0, [json_row("model_00000", 5, 1, k) for k in range(50)])
    return pipeline.sources[0].flush(50).sketches[0]


def _reported(models: int, sources: int, *, keyed: bool = False) -> Pipeline:
    """Return a pipeline whose merge has heard of every model on every source partition, or on one."""
    pipeline = Pipeline(names(models), 5, 1, sources=sources, windows=[Lifetime()])
    step = sources if keyed else 1
    for source in range(sources):
        pipeline.read(
            source,
            [json_row(name, 5, 1, 0) for name in pipeline.models[source if keyed else 0 :: step]],
        )
    pipeline.flush()
    pipeline.take()
    pipeline.publish()
    return pipeline


def _idle_round(pipeline: Pipeline, options: Options) -> float:
    """Return the seconds of a round of publishing in which nothing has changed."""
    return timed(lambda: list(pipeline.sinks[0].publish(BEGAN_MS)), options)


def _taking(pipeline: Pipeline, models: int, options: Options) -> float:
    """Return the seconds to book a manifest that names so many models and changes nothing."""
    (manifest,) = pipeline.sources[0].flush(0).manifests
    named = dict(list(manifest.models.items())[:models])
    asked = manifest.model_copy(update={"models": named})
    return timed(lambda: pipeline.sinks[0].add_manifest(asked, BEGAN_MS), options)


def cases(options: Options) -> dict[str, Callable[[], Any]]:
    """Return a case for every shape, and one for the books."""
    shapes = QUICK_SHAPES if options.quick else SHAPES
    found: dict[str, Callable[[], Any]] = {
        f"unit costs, {shape(d, c)}": partial(measure, d, c, options) for d, c in shapes
    }
    found["unit costs, books"] = partial(books, options)
    found["unit costs, client"] = partial(client_costs.measure, options)
    return found


def section(results: dict[str, Any]) -> str:
    """Return the tables of seconds and of bytes."""
    shapes = [result for result in results.values() if "columns" in result]
    heads = [f"{each['columns']} × {each['outputs']}" for each in shapes]
    steps = [
        [title, unit, *(number(each[name] * 1e6) for each in shapes)]
        for name, (title, unit) in STEPS.items()
    ]
    rows = [entry["rows"] for entry in shapes[0]["sketches"]]
    for name, title in SKETCH_STEPS.items():
        for k, count in enumerate(rows):
            cells = [number(each["sketches"][k][name] * 1e6) for each in shapes]
            steps.append([title, f"sketch of {count:,} row{'s' * (count > 1)}", *cells])
    sizes = [
        ["a JSON row", *(size(each["json_row_bytes"]) for each in shapes)],
        ["an Arrow row", *(size(each["arrow_row_bytes"]) for each in shapes)],
        *(
            [
                f"a sketch of {count:,} row{'s' * (count > 1)}",
                *(size(each["sketches"][k]["bytes"]) for each in shapes),
            ]
            for k, count in enumerate(rows)
        ),
        *(
            [
                f"memory of a pane of {count:,} row{'s' * (count > 1)}",
                *(size(each["sketches"][k]["pane_memory"]) for each in shapes),
            ]
            for k, count in enumerate(rows)
        ),
        ["memory of a window", *(size(each["window_memory"]) for each in shapes)],
        ["a window in a snapshot", *(size(each["window_bytes"]) for each in shapes)],
        ["an attribution message", *(size(each["attribution_bytes"]) for each in shapes)],
        ["a drift message", *(size(each["drift_bytes"]) for each in shapes)],
    ]
    (kept,) = [result for result in results.values() if "manifest_bytes" in result]
    (client,) = [result for result in results.values() if "send_record" in result]
    others = [[title, number(kept[name] * 1e6)] for name, title in BOOKS.items()]
    for name, title in client_costs.STEPS.items():
        per, unit = (1e6, "record") if name.endswith("record") else (1e6 * 2**20, "MiB")
        others.append([f"{title}, each {unit}", number(client[name] * per)])
    return "\n\n".join(
        [
            "Processor time of one core, medians; each step is the call that a worker makes. Rows are "
            "correlated and Gaussian, with all their digits; an Arrow message has "
            f"{ARROW_ROWS} rows. A sketch's rows that are fewer than 1,024 are reduced whenever it is sent.",
            table(["µs", "each", *heads], steps, left=2),
            table(["bytes, features × outputs", *heads], sizes),
            table(["whatever the shape", "µs"], others),
            f"A manifest takes {size(kept['manifest_bytes'])} and {number(kept['manifest_entry_bytes'])} B "
            "for each further model. Sending and fetching is the Kafka client's part, on the embedded "
            f"broker. A worker's process without rows takes {size(client['worker_memory'])}.",
        ]
    )


SUITE = Suite("unit-costs", "What each step costs", cases, section, page="scale", first=True)
