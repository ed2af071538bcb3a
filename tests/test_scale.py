"""The capacity model and the simulation behind docs/scale.md, against theory and against the cores."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attributary.schemas.card import Lifetime, Tumbling
from attributary.workers.stream.options import IngestOptions, MergeOptions

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks import plan
from benchmarks.capacity import variants
from benchmarks.capacity_model import Capacity, Deployment, Workload, series_of_model
from benchmarks.emissions import emissions
from benchmarks.pipeline import BEGAN_MS, Pipeline, json_row, names
from benchmarks.planner import plan as planned
from benchmarks.simulation import Cluster, Simulation, zipf_rates
from benchmarks.unit_fit import UnitCosts, UnmeasuredError, load


def cluster(**changes: Any) -> Cluster:
    """Two processes with four partitions, half busy, everything even."""
    made: dict[str, Any] = {
        "rates": np.full(4, 250.0),
        "models": np.ones(4),
        "ingest_processes": 2,
        "merge_processes": 1,
        "sketch_partitions": 2,
        "row_seconds": 0.001,
        "poisson": False,
        "block_rows": 100.0,
    }
    return Cluster(**{**made, **changes})


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_a_queue_is_as_long_as_pollaczek_and_khinchine_say(load: float) -> None:
    """One row of service a tick, Poisson arrivals: the chain that is embedded in M/D/1, exactly."""
    queues = 200
    many = cluster(
        rates=np.full(queues, load), models=np.ones(queues), ingest_processes=queues, row_seconds=1.0,
        poisson=True, block_rows=1e9,
    )  # fmt: skip
    waiting = Simulation(many, seed=3).run(1_200).waiting[200:]
    assert waiting.mean() == pytest.approx(load + load**2 / (2 * (1 - load)), rel=0.03)
    # How often it is empty: 1 - load.
    assert (waiting == 0).mean() == pytest.approx(1 - load, abs=0.01)


def test_a_backlog_is_worked_off_at_the_spare_rate() -> None:
    """All stop for 40 s at half load: it takes 40 s to work off, and then delays are as before."""
    made = cluster(rebalance=40.0, block_rows=1e-3)
    simulation = Simulation(made)
    simulation.at(100.0, lambda now: simulation._rebalance(now, "ingest"))
    trace = simulation.run(300)
    lag = trace.backlog.sum(axis=1)
    assert lag.max() == pytest.approx(40 * 1000.0, rel=0.03)
    recovered = trace.times[np.flatnonzero(lag > 1.0)[-1]]
    assert recovered == pytest.approx(100 + 40 / (1 - 0.5), abs=2.0)
    _, delays = trace.delay((0.0, 0.99, 1.0), seconds=1.0)
    assert delays[[0, 200]] == pytest.approx(np.full((2, 3), 0.5))
    assert delays.max() == pytest.approx(40.5)
    # Of all rows: those of the 40 s waited 40.5 s down to what the next 40 s took to catch up.
    _, (whole,) = trace.delay((0.5, 0.99), seconds=300.0)
    assert whole == pytest.approx([0.5, 39.5], abs=1.1)


def test_no_row_is_lost_and_none_counted_twice_whatever_fails() -> None:
    rng = np.random.default_rng(8)
    for seed in range(8):
        made = cluster(
            poisson=True, rates=rng.uniform(50, 400, 4), block_rows=float(rng.integers(50, 5_000))
        )
        simulation = Simulation(made, seed)
        for _ in range(3):
            simulation.crash(float(rng.integers(10, 150)), int(rng.integers(2)), "ingest")
        simulation.crash(float(rng.integers(10, 150)), 0, "merge") if seed % 2 else None
        simulation.lose_broker(float(rng.integers(10, 150)), int(rng.integers(3)))
        trace = simulation.run(400)
        # In the log or in producers: all that came. Counted and not counted yet: all of it again.
        counted = trace.acknowledged
        left = trace.published - trace.held - counted
        assert (left > -1e-6).all()
        assert (np.diff(counted, axis=0) >= 0).all()
        assert counted[-1] == pytest.approx(trace.published[-1], rel=0.02)
        assert trace.replayed[-1] > 0
        assert np.isfinite(trace.delays[:300]).all()


def test_a_crash_reads_the_open_blocks_of_the_whole_group_again() -> None:
    """Every rebalance takes all partitions from all: each is read again from its open block."""
    made = cluster(block_rows=1e5, restart=20.0)
    simulation = Simulation(made)
    simulation.crash(100.0)
    trace = simulation.run(200)
    # Nothing was ever committed but the beginning: 110 s of two partitions, 100 s of the dead worker's, and
    # what one process has read of it again before the other is back.
    assert trace.replayed[-1] == pytest.approx(55_000 + 50_000 + 5_000, rel=0.02)
    small = Simulation(cluster(block_rows=10.0, restart=20.0))
    small.crash(100.0)
    assert small.run(200).replayed[-1] <= 2 * 4 * 10 + 10 * 500 * 2


def test_hot_models_and_their_partitions() -> None:
    rates, models = zipf_rates(1e6, 10_000, 64, 0.0, seed=1)
    assert rates.sum() == pytest.approx(1e6)
    assert models.sum() == 10_000
    assert rates.max() / rates.mean() < 1.4
    hot, _ = zipf_rates(1e6, 10_000, 64, 1.2, seed=1)
    # The first model alone has 1 / zeta of all rows.
    assert hot.max() > 1e6 / (np.arange(1, 10_001) ** -1.2).sum()


def test_the_same_seed_gives_the_same_run() -> None:
    def run(seed: int) -> Any:
        simulation = Simulation(cluster(poisson=True), seed)
        simulation.crash(20.0)
        return simulation.run(120)

    assert (run(1).delays == run(1).delays).all()
    assert (run(1).published != run(2).published).any()


@pytest.mark.parametrize(("rate", "offsets"), [(20.0, 128), (3.0, 64), (0.4, 16)])
def test_sketches_are_sent_as_often_as_ingest_sends_them(rate: float, offsets: int) -> None:
    """Short blocks within a pane, long ones over several, and rows so rare that flushes find none."""
    pipeline = Pipeline(names(1), 1, 1, ingest=IngestOptions(block_offsets=offsets))
    rng = np.random.default_rng(2)
    seconds = 160
    for second in range(seconds):
        for turn in range(2):
            pipeline.clock = BEGAN_MS + second * 1000 + turn * 500
            rows = rng.poisson(rate / 2)
            pipeline.read(0, [json_row(pipeline.models[0], 1, 1, k) for k in range(rows)])
        pipeline.flush()
    made = emissions(rate, offsets / rate, pane=10.0, flush=1.0)
    assert made.sketches == pytest.approx(pipeline.counts["sketches"] / seconds, rel=0.15)
    # Every row is in one final sketch.
    assert made.mean(lambda rows: rows, final=True) == pytest.approx(rate, rel=1e-9)


def test_emissions_have_the_limits_that_can_be_said() -> None:
    # Rows so rare that each makes its sketch: one when it comes, one when its block ends.
    rare = emissions(1e-4, block=600.0, pane=10.0, flush=1.0)
    assert rare.sketches == pytest.approx(2e-4, rel=0.01)
    # So many that every flush finds some: one a flush, one a pane, and a block's panes at its end.
    full = emissions(1e6, block=600.0, pane=10.0, flush=1.0)
    assert full.sketches == pytest.approx(1.0 + 0.1 + 0.1, rel=0.02)
    # Messages of ten rows come a tenth as often.
    assert emissions(1e-3, 600.0, 10.0, 1.0, message_rows=10.0).sketches == pytest.approx(
        rare.sketches, rel=0.01
    )


@pytest.mark.parametrize(
    ("features", "outputs", "exported", "windows"),
    [(6, 1, 4, [Tumbling(seconds=10), Lifetime()]), (4, 2, 50, [Tumbling(seconds=10)])],
)
def test_series_are_counted_as_they_are_exported(
    features: int, outputs: int, exported: int, windows: list[Any]
) -> None:
    options = MergeOptions(exported_features=exported, idle_seconds=1.0)
    pipeline = Pipeline(names(2), features, outputs, windows=windows, merge=options)
    for second in range(45):
        pipeline.clock = BEGAN_MS + second * 1000
        for name in pipeline.models:
            pipeline.read(0, [json_row(name, features, outputs, second * 5 + k) for k in range(5)])
        pipeline.flush()
        pipeline.take()
        if second % 11 == 10:
            pipeline.publish()
    # The counter, and the watermark, are the service's: two of a model in merge.
    expected = series_of_model(features, outputs, windows, options) - 2
    assert pipeline.series() == 2 * expected


def shape_costs(d: int, c: int, cells: int) -> dict[str, Any]:
    """Costs that are known sums of their parts."""
    value = 2e-6 + 3e-7 * (d + c) + 1e-8 * d * c * cells**2
    each = dict.fromkeys(
        ("read_json_row", "read_group", "read_new", "read_arrow_message", "read_arrow_row", "reduce_row",
         "publish_final", "publish_endless", "copy_window", "window_memory", "window_bytes",
         "attribution_bytes", "drift_bytes", "json_row_bytes", "arrow_row_bytes"), value,
    )  # fmt: skip
    sketches = [
        {"rows": rows, **dict.fromkeys(("encode", "read_sketch", "merge", "bytes", "pane_memory"),
                                       value * (1 + k))}
        for k, rows in enumerate((1, 100, 1000))
    ]  # fmt: skip
    return {"columns": d, "outputs": c, "cells": cells, **each, "sketches": sketches}


def unit_costs() -> UnitCosts:
    books = dict.fromkeys(
        ("manifest_bytes", "manifest_entry_bytes", "manifest_encode", "manifest_encode_entry",
         "manifest_decode", "manifest_decode_entry", "manifest_book", "manifest_pass_model",
         "manifest_book_model", "manifest_book_model_source", "take_sketch", "round_model",
         "round_model_source", "round_pair"), 1e-5,
    )  # fmt: skip
    client = dict.fromkeys(("send_record", "send_byte", "fetch_record", "fetch_byte"), 1e-9)
    return UnitCosts(
        {
            **{
                f"{d}/{c}": shape_costs(d, c, 16)
                for d, c in ((20, 1), (20, 10), (100, 1), (200, 2))
            },
            "unit costs, books": books,
            "unit costs, client": {**client, "worker_memory": 2**27},
        }
    )


def test_costs_of_other_shapes_are_interpolated() -> None:
    found = unit_costs().of(50, 2)
    expected = 2e-6 + 3e-7 * 52 + 1e-8 * 100 * 256
    assert found.each["reduce_row"] == pytest.approx(expected, rel=1e-6)
    assert found.sketch("merge", [1, 10, 100, 1e9]) == pytest.approx(
        expected * np.array([1, 2**0.5, 2, 3]), rel=1e-6
    )
    assert found.sketch("encode", 550) == pytest.approx(expected * 2.5, rel=1e-6)
    with pytest.raises(UnmeasuredError, match="python -m benchmarks unit-costs"):
        load(Path("nowhere"))


def test_a_plan_is_enough_and_not_much_more() -> None:
    costs = unit_costs().of(20, 1)
    work = Workload(rows_per_second=20_000, models=300, features=20, keyed=True)
    found = planned(work, Deployment(1, 1), costs)
    one = found.capacity
    assert found.fits
    for cores, processes in (
        (one.total_ingest, found.ingest_processes), (one.total_merge, found.merge_processes)
    ):  # fmt: skip
        assert cores / 0.6 <= processes <= 1.3 * cores / 0.6 + 1
    several = planned(work, Deployment(1, 1, partitions_per_process=3), costs)
    assert several.capacity.deployment.source_partitions == 3 * several.ingest_processes
    apart = planned(work, Deployment(1, 1, deployments=4), costs)
    assert apart.capacity.workload.rows_per_second == 5_000
    # Twice the rows of the same models: the reading doubles, the sketches do not.
    double = Capacity(replace(work, rows_per_second=40_000), one.deployment, costs)
    assert double.ingest_cores["read"] > 1.9 * one.ingest_cores["read"]
    assert double.sketches < 1.5 * one.sketches


def test_limits_are_told_with_their_settings() -> None:
    costs = unit_costs().of(20, 1)
    work = Workload(rows_per_second=1e5, models=50_000, features=20)
    said = " ".join(Capacity(work, Deployment(4, 4), costs).broken())
    for setting in ("ingest.max_models", "merge.max_models", "merge.max_windows_in_all"):
        assert setting in said
    assert not Capacity(replace(work, models=10), Deployment(4, 4), costs).broken()[1:]


def test_the_command_prints_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--rows-per-second", "2e4", "--models", "300", "--features", "20", "--keyed"]
    assert plan.main([*asked, "--results", str(tmp_path)]) == 1
    assert "run `python -m benchmarks unit-costs` first" in capsys.readouterr().err
    cases = {"cases": dict(unit_costs().cases)}
    (tmp_path / "unit-costs.json").write_text(json.dumps(cases), encoding="utf-8")
    assert plan.main([*asked, "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    for line in (
        "partitions of rows",
        "ingest processes",
        "Prometheus series",
        "None of the limits",
    ):
        assert line in said
    asked[1] = "1e9"
    assert plan.main([*asked, "--results", str(tmp_path)]) == 3
    assert "no number of partitions is enough" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        plan.main([*asked, "--busy", "2"])
    assert "a share of a core" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        plan.main([*asked, "--pane-seconds", "25"])
    assert "not a multiple of pane_seconds" in capsys.readouterr().err


def test_the_variants_of_the_page_are_one_change_each() -> None:
    found = variants()
    assert [name for name, *_ in found] == list("ABCDEF")
    for _, _, work, like in found:
        assert (work.rows_per_second, work.models, work.features) == (1e6, 10_000, 200)
        # As the workers would refuse what they cannot be set to.
        IngestOptions.model_validate(like.ingest.model_dump())
        MergeOptions.model_validate(like.merge.model_dump())
