"""Partitions, processes, memory, network and Prometheus series for rows of your own.

The answer is computed from what single steps cost, as `python -m benchmarks unit-costs` measured them (on
the machine that docs/scale.md names; measure again on yours). Start with your numbers alone:

  python -m benchmarks.plan --rows-per-second 1e6 --models 10000 --features 200

Then change one thing at a time. What usually helps, in this order:

  --keyed             many models with few rows each: write a model's rows to one partition
  --block-offsets, --block-bytes
                      a block with few rows of each model makes many small sketches; larger blocks
                      make longer replays after a crash or a rebalance
  --flush-seconds, --publish-seconds
                      results come later, and cost less
  --pane-seconds      a pane is the least that a window is made of: with as wide ones as the windows
                      are, fewer sketches are made
  --no-lifetime       a lifetime view is evaluated in every round of publishing
  --deployments       manifests go from every partition of rows to every one of sketches: several
                      deployments side by side, each with some of the models, do without most of them
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pydantic import ValidationError

from attributary.schemas.card import Lifetime, ModelCard, Tumbling
from attributary.workers.stream.options import IngestOptions, MergeOptions
from benchmarks.capacity import summary
from benchmarks.capacity_model import Deployment, Workload
from benchmarks.capacity_report import limits, part_table, plan_table
from benchmarks.planner import TARGET, plan
from benchmarks.unit_fit import RESULTS, UnmeasuredError, load

_SHORTEST_FLUSH = 0.1


def main(arguments: list[str] | None = None) -> int:
    """Print the plan; 1 where there are no unit costs, 3 where no number of partitions is enough."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    windows = [
        *(Tumbling(seconds=seconds) for seconds in asked.window or [60.0]),
        *([] if asked.no_lifetime else [Lifetime()]),
    ]
    try:
        ModelCard(model="plan", pane_seconds=asked.pane_seconds, windows=windows)
    except ValidationError as error:
        parser.error(f"no card can have these windows: {error.errors()[0]['msg']}")
    ingest, merge = IngestOptions(), MergeOptions()
    workload = Workload(
        rows_per_second=asked.rows_per_second,
        models=asked.models,
        features=asked.features,
        outputs=asked.outputs,
        format="arrow" if asked.arrow else "json",
        message_rows=asked.arrow or 1,
        keyed=asked.keyed,
        row_bytes=asked.row_bytes,
    )
    deployment = Deployment(
        1,
        1,
        IngestOptions(
            block_offsets=asked.block_offsets or ingest.block_offsets,
            block_bytes=asked.block_bytes or ingest.block_bytes,
            flush_seconds=asked.flush_seconds or ingest.flush_seconds,
            max_models=asked.max_models or ingest.max_models,
        ),
        MergeOptions(
            publish_seconds=asked.publish_seconds or merge.publish_seconds,
            exported_features=asked.exported_features or merge.exported_features,
            max_models=asked.max_models or merge.max_models,
        ),
        windows=windows,
        pane_seconds=asked.pane_seconds,
        replication=asked.replication,
        partitions_per_process=asked.partitions_per_process,
        deployments=asked.deployments,
    )
    try:
        costs = load(asked.results).of(asked.features, asked.outputs)
    except UnmeasuredError as error:
        print(error, file=sys.stderr)
        return 1
    found = plan(workload, deployment, costs, asked.busy)
    shown, name = [summary(found)], ["needs"]
    print("\n\n".join([plan_table(shown, name), part_table(shown, name), limits(shown, name)]))
    return 0 if found.fits else 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.plan",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    rows = parser.add_argument_group("the rows")
    rows.add_argument("--rows-per-second", type=_positive, required=True, help="of all models")
    rows.add_argument("--models", type=_count, required=True)
    rows.add_argument(
        "--features", type=_count, required=True, help="of each model, levels counted"
    )
    rows.add_argument("--outputs", type=_count, default=1, help="of each model (1)")
    rows.add_argument(
        "--keyed", action="store_true", help="all rows of a model lie on one partition"
    )
    rows.add_argument(
        "--arrow", type=_count, metavar="ROWS", help="Arrow messages of so many rows (JSON rows)"
    )
    rows.add_argument(
        "--row-bytes", type=_positive, help="of a row (numbers with all their digits)"
    )
    settings = parser.add_argument_group("settings, as shipped where left out")
    settings.add_argument("--block-offsets", type=_count, help="ingest.block_offsets")
    settings.add_argument("--block-bytes", type=_count, help="ingest.block_bytes")
    settings.add_argument("--flush-seconds", type=_flush, help="ingest.flush_seconds")
    settings.add_argument("--publish-seconds", type=_positive, help="merge.publish_seconds")
    settings.add_argument("--exported-features", type=_count, help="merge.exported_features")
    settings.add_argument(
        "--max-models", type=_count, help="ingest.max_models and merge.max_models"
    )
    settings.add_argument(
        "--window",
        type=_positive,
        action="append",
        metavar="SECONDS",
        help="a tumbling window of the cards, again for more (60)",
    )
    settings.add_argument(
        "--pane-seconds", type=_positive, default=10.0, help="pane_seconds of the cards (10)"
    )
    settings.add_argument("--no-lifetime", action="store_true", help="cards without a lifetime")
    shape = parser.add_argument_group("the deployment")
    shape.add_argument("--partitions-per-process", type=_count, default=1, help="(1)")
    shape.add_argument("--deployments", type=_count, default=1, help="side by side (1)")
    shape.add_argument("--replication", type=_count, default=3, help="of the topics (3)")
    shape.add_argument(
        "--busy", type=_share, default=TARGET, help=f"of each core, at most ({TARGET:g})"
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="folder of the measured unit costs"
    )
    return parser


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text}")
    return value


def _flush(text: str) -> float:
    value = _positive(text)
    if value < _SHORTEST_FLUSH:
        raise argparse.ArgumentTypeError(f"expected at least {_SHORTEST_FLUSH:g}, got {text}")
    return value


def _count(text: str) -> int:
    value = _positive(text)
    if value != int(value):
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text}")
    return int(value)


def _share(text: str) -> float:
    value = _positive(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"expected a share of a core, at most 1, got {text}")
    return value


if __name__ == "__main__":
    sys.exit(main())
