"""Rows played through the workers' own cores: ingest, merge and the gauges that Prometheus reads.

Nothing is in between but a clock: a message holds the rows of a pane, and once a window has ended and the
next one's first pane is there, what there is is flushed, merged, published and scraped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry

from attributary.schemas.attribution import WindowAttribution, WindowDrift
from attributary.schemas.card import Feature, ModelCard, Tumbling
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.decode import Record
from attributary.workers.stream.gauges import ModelGauges
from attributary.workers.stream.ingest import PartitionIngest
from attributary.workers.stream.merge import MergePartition
from attributary.workers.stream.metrics import StreamMetrics
from attributary.workers.stream.options import IngestOptions, MergeOptions

MODEL, OUTPUT = "m", "y"
#: The card's defaults, panes of 10 s and tumbling windows of a minute, but for the lifetime: it has no alert.
PANES, WINDOW = 6, 60
#: Any multiple of the window's length.
START = 1_700_000_040

#: (metric, labels in alphabetical order) → value: what a scrape of the worker says.
Scrape = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Played(NamedTuple):
    """What was published by the time of a scrape, seconds after the first row, and the scrape."""

    time: float
    messages: list[WindowAttribution | WindowDrift]
    scrape: Scrape


def play(X: Any, y: Any, names: Sequence[str], window_rows: int) -> Iterator[Played]:
    """Yield what the workers say of rows X (n, d) and outputs y (n,), ``window_rows`` a minute, window by
    window; the last one that they say something of is the last that a row comes after.

    ValueError where a window's rows do not divide into its panes.
    """
    if window_rows % PANES:
        raise ValueError(f"{window_rows} rows a window; choose a multiple of {PANES}")
    catalogue = ControlCatalogue()
    card = ModelCard(
        model=MODEL,
        features=[Feature(name=name) for name in names],
        outputs=[OUTPUT],
        windows=[Tumbling(seconds=WINDOW)],
    )
    catalogue.add_card(MODEL.encode(), card.to_bytes())
    ingest = PartitionIngest("rows", 0, 0, catalogue, IngestOptions())
    options = MergeOptions()
    merge = MergePartition(catalogue, options)
    registry = CollectorRegistry()
    gauges = ModelGauges(
        StreamMetrics.build(registry), options.exported_features, options.series_per_model
    )
    step, pane_rows = WINDOW / window_rows, window_rows // PANES
    for offset, first in enumerate(range(0, len(X) - pane_rows + 1, pane_rows)):
        rows = range(first, first + pane_rows)
        now = (rows[-1] + 1) * step
        ingest.add([Record(offset, _ms(rows[-1] * step), _message(X, y, names, rows, step))], now)
        for grid in ingest.proposals(now):
            catalogue.add_grid(grid.to_bytes())
        if offset == 0 or offset % PANES:
            continue
        ingest.count(now)
        flush = ingest.flush(offset + 1)
        for header, body in flush.sketches:
            merge.add_sketch(header, body, _ms(now))
        for manifest in flush.manifests:
            merge.add_manifest(manifest, _ms(now))
        ingest.acknowledged(flush)
        messages = list(merge.publish(_ms(now)))
        for message in messages:
            (gauges.attributions if isinstance(message, WindowAttribution) else gauges.drift)(
                message
            )
        yield Played(now, messages, _scrape(registry))


def _scrape(registry: CollectorRegistry) -> Scrape:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in registry.collect()
        if family.type == "gauge"
        for sample in family.samples
    }


def _ms(seconds: float) -> int:
    return round((START + seconds) * 1000)


def _message(X: Any, y: Any, names: Sequence[str], rows: range, step: float) -> bytes:
    return json.dumps(
        [
            {
                "model": MODEL,
                "features": dict(zip(names, X[k].tolist(), strict=True)),
                "outputs": [float(y[k])],
                "time": START + k * step,
            }
            for k in rows
        ]
    ).encode()
