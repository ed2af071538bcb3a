"""What a deployment needs, from measured unit costs: cores, bytes, memory, series.

Rows come evenly to all models and as a Poisson process to each. Times are in the order of the stream: late
rows, rejected rows, groups of features and row samples are left out. See ``benchmarks.simulation`` for
uneven models and failures.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from attributary.schemas.card import (
    DEFAULT_PANE_SECONDS,
    DEFAULT_WINDOWS,
    Hopping,
    ModelCard,
    Tumbling,
)
from attributary.workers.maths.pane import REDUCED_ROWS
from attributary.workers.stream.options import IngestOptions, MergeOptions
from attributary.workers.stream.series import DRIFTED, DRIFTS, SCORES, admitted, shares
from benchmarks.emissions import Emissions, emissions
from benchmarks.unit_fit import Costs

#: A poll of the rows topic returns at most so many messages.
POLL_MESSAGES = 4_000
# An ingest process tells so many times `max_models` models apart in its metrics.
_MODELS_TOLD_APART = 2
# Merge looks again after this, where a round brought no news.
_SOON = 0.2
_LATENESS = float(ModelCard.model_fields["allowed_lateness_seconds"].default)
# Gauges of a scored output and window, without those of the lightweight mode.
_OUTPUT = 5
# Of a model in merge (its watermark and a counter of windows), and in each ingest process that reads rows of
# it (two counters).
_MERGE_SERIES, _INGEST_SERIES = 2, 2


@dataclass(frozen=True)
class Workload:
    """What is to be explained. ``keyed``: all rows of a model lie on one source partition.

    ``row_bytes`` None: as measured, for random numbers with all their digits.
    """

    rows_per_second: float
    models: int
    features: int
    outputs: int = 1
    format: Literal["json", "arrow"] = "json"
    message_rows: int = 1
    keyed: bool = False
    row_bytes: float | None = None


@dataclass(frozen=True)
class Deployment:
    """How it is run. ``partitions_per_process`` of rows, at most; sketches likewise.

    ``deployments`` of this kind stand side by side, on topics of their own, and share the models; the other
    numbers are those of each.
    """

    source_partitions: int
    sketch_partitions: int
    ingest: IngestOptions = field(default_factory=IngestOptions)
    merge: MergeOptions = field(default_factory=MergeOptions)
    windows: Sequence[Any] = DEFAULT_WINDOWS
    replication: int = 3
    partitions_per_process: int = 1
    deployments: int = 1
    pane_seconds: float = DEFAULT_PANE_SECONDS
    lateness_seconds: float = _LATENESS
    poll_messages: float = POLL_MESSAGES


@dataclass(frozen=True)
class Capacity:
    """A workload on a deployment. Everything is of all processes together, a second, unless it says so."""

    workload: Workload
    deployment: Deployment
    costs: Costs

    @property
    def touched(self) -> int:
        """Source partitions that a model's rows lie on."""
        return 1 if self.workload.keyed else self.deployment.source_partitions

    @property
    def pairs(self) -> float:
        """(Model, source partition) pairs."""
        return self.workload.models * float(self.touched)

    @property
    def models_per_partition(self) -> float:
        """Models of one source partition."""
        return self.pairs / self.deployment.source_partitions

    @property
    def row_bytes(self) -> float:
        """Bytes of a row in its message."""
        work = self.workload
        if work.row_bytes is not None:
            return work.row_bytes
        return self.costs.each[f"{work.format}_row_bytes"]

    @property
    def messages(self) -> float:
        """Messages of the rows topic."""
        return self.workload.rows_per_second / self.workload.message_rows

    @cached_property
    def block_seconds(self) -> float:
        """How long a block of a source partition lasts."""
        options, partitions = self.deployment.ingest, self.deployment.source_partitions
        by_offsets = options.block_offsets * partitions / self.messages
        by_bytes = (
            options.block_bytes * partitions / (self.workload.rows_per_second * self.row_bytes)
        )
        return min(by_offsets, by_bytes, options.block_seconds)

    @cached_property
    def models_per_block(self) -> float:
        """Models with a row in a block, on average."""
        here = self.models_per_partition
        rate = self.messages / self.pairs
        return here * -math.expm1(-rate * self.block_seconds)

    @property
    def more_models(self) -> float:
        """Models that a manifest names besides the first."""
        return max(0.0, self.models_per_block - 1)

    @cached_property
    def emitted(self) -> Emissions:
        """The sketches of one (model, source partition)."""
        return emissions(
            self.workload.rows_per_second / self.pairs,
            self.block_seconds,
            self.deployment.pane_seconds,
            self.deployment.ingest.flush_seconds,
            self.workload.message_rows,
        )

    @property
    def sketches(self) -> float:
        """Sketches sent."""
        return self.pairs * self.emitted.sketches

    @property
    def rows_per_sketch(self) -> float:
        """Rows of a block's final sketch, on average."""
        return self.workload.rows_per_second / (self.pairs * self.emitted.cells)

    @property
    def manifests(self) -> float:
        """Manifests made; each is sent to every sketches partition."""
        each = 1 / self.block_seconds + 1 / self.deployment.ingest.flush_seconds
        return self.deployment.source_partitions * each

    @cached_property
    def ingest_cores(self) -> Counter[str]:
        """Cores of ingest by what they do."""
        work, costs, each = self.workload, self.costs, self.costs.each
        per_poll = min(self.deployment.poll_messages, self.messages)
        sources = self.deployment.source_partitions
        fed = self.pairs / sources * min(sources, self.deployment.partitions_per_process)
        groups = fed * -math.expm1(-per_poll / fed)
        found = Counter(
            {
                "client": self.messages * costs.client["fetch_record"]
                + work.rows_per_second * self.row_bytes * costs.client["fetch_byte"]
                + self._sent(self.sketches, self.sketch_bytes)
                + self._sent(self.manifest_copies, self.manifest_bytes),
                "read": work.rows_per_second * each["read_json_row"]
                if work.format == "json"
                else self.messages * each["read_arrow_message"]
                + work.rows_per_second * each["read_arrow_row"],
                "reduce": self.pairs * self.emitted.mean(_whole_batches, final=True)
                * each["reduce_row"],
                "sketches": self.pairs
                * self.emitted.mean(lambda rows: costs.sketch("encode", rows)),
                "manifests": self.manifests
                * (
                    costs.books["manifest_encode"]
                    + self.more_models * costs.books["manifest_encode_entry"]
                ),
            }
        )  # fmt: skip
        if work.format == "json":
            found["read"] += self.messages / per_poll * groups * each["read_group"]
        found["read"] += self.pairs * self.emitted.cells * each["read_new"]
        return found

    @property
    def manifest_copies(self) -> float:
        """Manifests sent."""
        return self.manifests * self.deployment.sketch_partitions

    @cached_property
    def sketch_bytes(self) -> float:
        """Bytes of sketches sent."""
        return self.pairs * self.emitted.mean(lambda rows: self.costs.sketch("bytes", rows))

    @property
    def manifest_bytes(self) -> float:
        """Bytes of manifests sent."""
        books = self.costs.books
        entries = self.more_models * books["manifest_entry_bytes"]
        return self.manifest_copies * (books["manifest_bytes"] + entries)

    @property
    def endless(self) -> int:
        """Lifetime and decayed views of a model."""
        return len(self.deployment.windows) - len(self.windowed)

    @property
    def windowed(self) -> list[Tumbling | Hopping]:
        """Windows of the cards that end."""
        return [each for each in self.deployment.windows if isinstance(each, Tumbling | Hopping)]

    @property
    def live_windows(self) -> float:
        """Windows of a model that one row is in."""
        return sum(each.seconds / _hop(each) for each in self.windowed)

    @property
    def open_windows(self) -> float:
        """Windows of a model that can still change."""
        return sum(
            (each.seconds + self.deployment.lateness_seconds) / _hop(each) for each in self.windowed
        )

    @cached_property
    def publications(self) -> Counter[str]:
        """Windows published, by whether they are final."""
        round_seconds = self.deployment.merge.publish_seconds
        rate = self.messages / self.workload.models
        changed = -math.expm1(-rate * max(round_seconds, self.deployment.ingest.flush_seconds))
        rounds = 1 / max(round_seconds, self.deployment.ingest.flush_seconds)
        final = sum(-math.expm1(-rate * each.seconds) / _hop(each) for each in self.windowed)
        return Counter(
            {
                "final": self.workload.models * final,
                "endless": self.workload.models * self.endless * rounds * changed,
            }
        )

    @cached_property
    def merge_cores(self) -> Counter[str]:
        """Cores of merge by what they do."""
        costs, books, each = self.costs, self.costs.books, self.costs.each
        sinks, sources = self.deployment.sketch_partitions, self.deployment.source_partitions
        read, merge = self._of("read_sketch"), self._of("merge")
        full = float(costs.sketch("merge", costs.rows[-1]))
        here = self.workload.models / sinks
        named = min(self.models_per_block / sinks, here)
        closed = self.pairs * self.emitted.mean(
            lambda rows: read(rows) + (self.live_windows + self.endless) * merge(rows), final=True
        )
        # Of each source with an open block: its newest cell once more, on a copy of what is before it.
        open_share = self._open_share
        newest = float(self._mean_cell(lambda rows: read(rows) + merge(rows)))
        gathered = (
            self.touched * open_share * (each["copy_window"] + newest) + (self.touched - 1) * full
        )
        # A cell that does not change any more is added once to what runs ahead of the closed blocks.
        steady = (
            self.pairs
            * max(0.0, 1 / self.deployment.pane_seconds - 1 / self.block_seconds)
            * newest
        )
        gathered += each["copy_window"]
        due = self.publications
        return Counter(
            {
                "client": self.sketches * costs.client["fetch_record"]
                + self.manifest_copies * costs.client["fetch_record"]
                + (self.sketch_bytes + self.manifest_bytes) * costs.client["fetch_byte"]
                + self._sent(self.messages_out, self.bytes_out),
                "sketches": self.sketches * books["take_sketch"] + closed,
                "manifests": self.manifest_copies
                * (
                    books["manifest_decode"]
                    + self.more_models * books["manifest_decode_entry"]
                    + books["manifest_book"]
                    + here * books["manifest_pass_model"]
                    + named * books["manifest_book_model"]
                    + named * sources * books["manifest_book_model_source"]
                ),
                "endless views": due["endless"] * (gathered + each["publish_endless"])
                + self.endless * steady,
                "windows": due["final"] * (gathered + each["publish_final"]),
                "rounds": sinks * self.round_seconds / self._round_every,
            }
        )  # fmt: skip

    @property
    def round_seconds(self) -> float:
        """How long a round of publishing takes a sketches partition in which there is nothing to publish."""
        books, sources = self.costs.books, self.deployment.source_partitions
        return (
            self.workload.models
            / self.deployment.sketch_partitions
            * (
                books["round_model"]
                + sources * books["round_model_source"]
                + (self.touched - 1) * books["round_pair"]
            )
        )

    @property
    def _round_every(self) -> float:
        """Seconds from round to round: after one without news the next comes soon."""
        if self.endless:
            return self.deployment.merge.publish_seconds
        return min(self.deployment.merge.publish_seconds, _SOON + self.round_seconds)

    @property
    def burst_seconds(self) -> float:
        """How long a merge process evaluates windows when those of all models end, which they do together."""
        each = len(self.windowed) * self.costs.each["publish_final"]
        return self.workload.models / self.deployment.sketch_partitions * each

    @cached_property
    def _open_share(self) -> float:
        """How often a (model, source partition) has rows in its open block."""
        expected = self.messages / self.pairs * self.block_seconds
        return 1 + math.expm1(-expected) / expected if expected > 1e-6 else expected / 2

    def _of(self, name: str) -> Any:
        return lambda rows: self.costs.sketch(name, rows)

    def _mean_cell(self, cost: Any) -> float:
        return self.emitted.mean(cost, final=True) / self.emitted.cells

    def _sent(self, records: float, size: float) -> float:
        client = self.costs.client
        return records * client["send_record"] + size * client["send_byte"]

    @property
    def messages_out(self) -> float:
        """Attribution and drift messages."""
        due = self.publications
        return self.workload.outputs * (3 * due["final"] + due["endless"])

    @property
    def bytes_out(self) -> float:
        """Their bytes; a message names every source partition."""
        each, due = self.costs.each, self.publications
        attribution = each["attribution_bytes"] + 25 * self.deployment.source_partitions
        final = attribution + 2 * each["drift_bytes"]
        return self.workload.outputs * (due["final"] * final + due["endless"] * attribution)

    @property
    def snapshot_bytes(self) -> float:
        """Bytes of snapshots."""
        shares = self.pairs * self.endless
        rate = self.messages / self.pairs
        period = max(self.deployment.merge.snapshot_seconds, self.block_seconds)
        changed = -math.expm1(-rate * period)
        return shares * changed * self.costs.each["window_bytes"] / period

    @property
    def rows_bytes(self) -> float:
        """Bytes of rows."""
        return self.workload.rows_per_second * self.row_bytes

    @property
    def ingest_memory(self) -> float:
        """Bytes that all ingest processes hold for models: panes of blocks that are not acknowledged."""
        here = self.deployment
        # Of the open block the newest pane is half full, on average, and there are those before it.
        newest = self._mean_cell(lambda rows: self.costs.sketch("pane_memory", rows / 2))
        older = 0.5 * self.block_seconds / here.pane_seconds
        each = newest + older * self._mean_cell(self._of("pane_memory"))
        # A block that has ended is reduced, and waits to be acknowledged: half a flush, on average.
        ended = 0.5 * here.ingest.flush_seconds * self.emitted.cells
        full = float(self.costs.sketch("pane_memory", self.costs.rows[-1]))
        return self.pairs * (self._open_share * each + ended * full)

    @property
    def merge_memory(self) -> float:
        """Bytes that all merge processes hold for models."""
        each = self.costs.each
        endless = self.endless * (1 + self._open_share) * each["window_memory"]
        windows = self.open_windows * each["window_memory"]
        body = float(self._mean_cell(self._of("bytes")))
        panes = 1 + 0.5 * self.block_seconds / self.deployment.pane_seconds
        return self.pairs * (endless + windows + self._open_share * panes * body)

    @property
    def merge_series(self) -> int:
        """Prometheus series of all models in merge."""
        work, here = self.workload, self.deployment
        each = series_of_model(work.features, work.outputs, here.windows, here.merge)
        return work.models * each

    @property
    def series(self) -> int:
        """Prometheus series of all models."""
        work, here = self.workload, self.deployment
        processes = -(-here.source_partitions // here.partitions_per_process)
        read = min(
            work.models,
            self.models_per_partition * here.partitions_per_process,
            _MODELS_TOLD_APART * here.ingest.max_models,
        )
        return round(self.merge_series + processes * read * _INGEST_SERIES)

    @property
    def total_ingest(self) -> float:
        """Cores of ingest."""
        return float(sum(self.ingest_cores.values()))

    @property
    def total_merge(self) -> float:
        """Cores of merge."""
        return float(sum(self.merge_cores.values()))

    def broken(self) -> list[str]:
        """Return the limits that it runs into, each with the setting to change."""
        found = []
        ingest, merge = self.deployment.ingest, self.deployment.merge
        if self.models_per_block > 0.95 * ingest.max_models:
            found.append(
                f"a block holds rows of {self.models_per_block:,.0f} models, "
                f"`ingest.max_models` is {ingest.max_models:,}: rows of the others are dead letters"
            )
        here = self.workload.models / self.deployment.sketch_partitions
        if here > 0.95 * merge.max_models:
            found.append(
                f"a sketches partition has {here:,.0f} models, `merge.max_models` is "
                f"{merge.max_models:,}: the others are left out"
            )
        if here * self.open_windows > 0.95 * merge.max_windows_in_all:
            found.append(
                f"{here * self.open_windows:,.0f} windows of a sketches partition are open, "
                f"`merge.max_windows_in_all` is {merge.max_windows_in_all:,}: the oldest are settled early"
            )
        if self.sketch_bytes > self.rows_bytes:
            found.append("sketches take more of the network than the rows")
        return found


def _hop(window: Tumbling | Hopping) -> float:
    return window.hop_seconds if isinstance(window, Hopping) else window.seconds


def _whole_batches(rows: Any) -> Any:
    return rows // REDUCED_ROWS * REDUCED_ROWS


def series_of_model(
    features: int, outputs: int, windows: Sequence[Any], options: MergeOptions
) -> int:
    """Return the series of a model of numeric features in merge, once all of its windows are published."""
    windowed = sum(isinstance(each, Tumbling | Hopping) for each in windows)
    budget = options.series_per_model
    scored, drifted = map(min, (outputs * len(windows), 2 * outputs * windowed), admitted(budget))
    references = min(2 * windowed, drifted)
    share = shares(
        budget, options.exported_features,
        scored=scored, drifted=drifted, references=references, groups=0,
    )  # fmt: skip
    return (
        _MERGE_SERIES
        + scored * (_OUTPUT + SCORES * min(features, share.scores))
        + drifted * DRIFTED
        + references * (1 + DRIFTS * min(features, share.drifts))
    )
