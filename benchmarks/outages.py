"""What failures do to a deployment that docs/scale.md plans: delays, lag, rows read again, memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.capacity import TARGET, variants
from benchmarks.capacity_model import Capacity
from benchmarks.capacity_report import APART, duration, quantity
from benchmarks.planner import Plan, plan
from benchmarks.simulation import Cluster, Simulation, Trace, zipf_rates
from benchmarks.suite import Figure, Options, Panel, Suite, number, table
from benchmarks.unit_fit import UnitCosts

#: The variant of docs/scale.md that fails.
VARIANT = "E"
FAILED_AT = 300.0
_SECONDS = 1_200.0
_HOT = (0.5, 1.0)
_WARM = 120.0
# A partition falls behind whose backlog grows by so many seconds of its rows in the second half.
_BEHIND = 5.0


def cluster(found: Plan, **changes: Any) -> Cluster:
    """Return one deployment of a plan, in steady state."""
    one = found.capacity
    partitions, sinks = one.deployment.source_partitions, one.deployment.sketch_partitions
    client = one.costs.client
    rows = one.workload.rows_per_second
    fetched = one.messages * client["fetch_record"] + one.rows_bytes * client["fetch_byte"]
    manifests = (
        one.ingest_cores["manifests"]
        + one.manifest_copies * client["send_record"]
        + one.manifest_bytes * client["send_byte"]
    )
    sketches = one.total_ingest - manifests - fetched
    sketches -= one.ingest_cores["read"] + one.ingest_cores["reduce"]
    merge = one.merge_cores
    round_cores = merge["endless views"] + merge["windows"] + merge["rounds"]
    return Cluster(
        **{
            "rates": np.full(partitions, rows / partitions),
            "models": np.full(partitions, one.models_per_partition),
            "ingest_processes": found.ingest_processes,
            "merge_processes": found.merge_processes,
            "sketch_partitions": sinks,
            "row_seconds": (fetched + one.ingest_cores["read"] + one.ingest_cores["reduce"]) / rows,
            "sketch_seconds": sketches / one.sketches,
            "ingest_share": manifests / found.ingest_processes,
            "merge_sketch_seconds": (one.total_merge - round_cores) / one.sketches,
            "merge_share": round_cores / found.merge_processes,
            "load_seconds": _load_seconds(one) / sinks,
            "block_rows": one.block_seconds * rows / partitions,
            "flush": one.deployment.ingest.flush_seconds,
            "publish": one.deployment.merge.publish_seconds,
            "snapshot": one.deployment.merge.snapshot_seconds,
            "session": one.deployment.ingest.session_seconds,
            **changes,
        }
    )


def _load_seconds(one: Capacity) -> float:
    """Return the core seconds to begin from snapshots: endless views, and the sketches of open windows.

    Loading a window takes as long as reading a full sketch.
    """
    costs = one.costs
    windows = one.pairs * one.endless * float(costs.sketch("read_sketch", costs.rows[-1]))
    kept = max((each.seconds for each in one.windowed), default=0.0)
    kept += one.deployment.lateness_seconds if one.windowed else 0.0
    again = one.emitted.mean(
        lambda rows: costs.sketch("read_sketch", rows) + costs.sketch("merge", rows), final=True
    )
    return windows + one.pairs * kept * again


def _crash(simulation: Simulation, count: int, role: str) -> None:
    for process in range(count):
        simulation.crash(FAILED_AT, process, role)


def _restarts(simulation: Simulation, count: int) -> None:
    """One worker after the other stops in order, and is back soon: two rebalances each."""
    for turn in range(count):
        simulation.restart(FAILED_AT + 30.0 * turn, turn % simulation.cluster.ingest_processes)


def scenarios() -> dict[str, tuple[dict[str, Any], Callable[[Simulation], None]]]:
    """Return what is simulated: changes to the cluster, and what fails."""

    def tenth(simulation: Simulation) -> None:
        _crash(simulation, max(2, simulation.cluster.ingest_processes // 10), "ingest")

    def nothing(simulation: Simulation) -> None:
        """Let it run."""

    small = {"shorter": 4.0}
    return {
        "nothing fails": ({}, nothing),
        "an ingest worker crashes": ({}, lambda s: _crash(s, 1, "ingest")),
        "the same, blocks a quarter as long": (small, lambda s: _crash(s, 1, "ingest")),
        "a tenth of the ingest workers crash": ({}, tenth),
        "ten ingest workers are restarted, every 30 s one": ({}, lambda s: _restarts(s, 10)),
        "a merge worker crashes": ({}, lambda s: _crash(s, 1, "merge")),
        "a broker of three is lost": ({}, lambda s: s.lose_broker(FAILED_AT)),
        **{
            f"models of unequal load, Zipf {exponent:g}": ({"zipf": exponent}, nothing)
            for exponent in _HOT
        },
    }


def simulate(name: str, options: Options) -> dict[str, Any]:
    """Return what a scenario does to the deployment."""
    costs = UnitCosts(options.measured("unit-costs")).of(TARGET.features, TARGET.outputs)
    ((_, _, work, like),) = [each for each in variants() if each[0] == VARIANT]
    if options.quick:
        work = replace(work, rows_per_second=1e5, models=1_000)
    found = plan(work, like, costs)
    changes, fail = scenarios()[name]
    changes = dict(changes)
    exponent, shorter = changes.pop("zipf", None), changes.pop("shorter", 1.0)
    if exponent is not None:
        one = found.capacity
        rates, models = zipf_rates(
            one.workload.rows_per_second,
            one.workload.models,
            one.deployment.source_partitions,
            exponent,
        )
        changes.update(rates=rates, models=models)
    made = cluster(found, **changes)
    made = replace(made, block_rows=made.block_rows / shorter)
    simulation = Simulation(made, seed=11)
    fail(simulation)
    seconds = _SECONDS / 2 if options.quick else _SECONDS
    return {
        "rows_per_second": float(made.rates.sum()),
        "ingest_processes": made.ingest_processes,
        "merge_processes": made.merge_processes,
        "partitions": len(made.rates),
        "deployments": like.deployments,
        "block_rows": made.block_rows,
        "times": {
            "session": made.session,
            "rebalance": made.rebalance,
            "restart": made.restart,
            "election": made.election,
            "load": made.load_seconds,
        },
        **_told(simulation.run(seconds), made, found),
    }


def _told(trace: Trace, made: Cluster, found: Plan) -> dict[str, Any]:
    ends, delays = trace.delay((0.5, 0.99, 1.0), max(made.flush, made.publish))
    p50, p99, longest = delays.T
    steady = (ends > _WARM) & (ends <= FAILED_AT)
    # Rows of the last minutes may be counted after the run.
    late = (ends > FAILED_AT) & (ends < ends[-1] - _WARM)
    before = float(np.median(p99[steady]))
    after = ends[late & (p99 > before * (1 + APART) + made.tick)]
    lag = trace.backlog.sum(axis=1)
    base = found.capacity.costs.client["worker_memory"]
    memory = [
        base + most * held / partitions
        for most, held, partitions in (
            (trace.owned[:, 0].max(), found.capacity.ingest_memory, len(made.rates)),
            (trace.owned[:, 1].max(), found.capacity.merge_memory, made.sketch_partitions),
        )
    ]
    uncounted = trace.published[-1].sum() - trace.acknowledged[-1].sum()
    never = bool(np.isinf(p99[late]).any())
    half = len(trace.times) // 2
    behind = trace.backlog[-1] - trace.backlog[half] > made.rates * _BEHIND
    return {
        "p50": _known(np.median(p50[steady])),
        "p99": _known(before),
        "worst_p99": None if never else float(p99[late].max()),
        "longest": _known(longest[late].max()),
        "recovery": None if never else float(after[-1] - FAILED_AT) if len(after) else 0.0,
        "replayed": float(trace.replayed[-1]),
        "lag_seconds": float(lag.max() / made.rates.sum()),
        "behind": int(behind.sum()),
        "busiest": float(made.rates.max() / made.rates.mean()),
        "uncounted_seconds": float(uncounted / made.rates.sum()),
        "memory": [float(each) for each in memory],
        "series": {
            "seconds": ends.tolist(),
            "p99": [None if np.isinf(each) else float(each) for each in p99],
            "lag": np.interp(ends, trace.times, lag / made.rates.sum()).tolist(),
        },
    }


def _known(seconds: float) -> float | None:
    return float(seconds) if np.isfinite(seconds) else None


def cases(options: Options) -> dict[str, Callable[[], Any]]:
    """Return a case for every scenario."""
    return {f"outages, {name}": partial(simulate, name, options) for name in scenarios()}


def section(results: dict[str, Any]) -> str:
    """Return the table of scenarios."""
    first = next(iter(results.values()))
    times = first["times"]
    lines = []
    for name, each in results.items():
        lines.append(
            [
                name.removeprefix("outages, "),
                *(
                    "never" if each[key] is None else duration(each[key])
                    for key in ("p50", "p99", "worst_p99", "longest", "recovery")
                ),
                f"{each['replayed'] / each['rows_per_second']:,.0f} s",
                duration(each["lag_seconds"]),
                str(each["behind"]),
                quantity(each["memory"][0]),
                quantity(each["memory"][1]),
            ]
        )
    head = [
        "what fails",
        "p50",
        "p99",
        "p99, worst",
        "longest",
        "over after",
        "read again",
        "most lag",
    ]
    head += ["partitions that fall behind", "ingest process", "merge process"]
    hot = [_hot(name, each) for name, each in results.items() if "Zipf" in name]
    return "\n\n".join(
        [
            f"{VARIANT} of the table above: {number(first['rows_per_second'])} rows/s, "
            f"{first['ingest_processes']} ingest and {first['merge_processes']} merge processes, "
            f"{first['partitions']} partitions of rows, blocks of {number(first['block_rows'])} rows. "
            f"Something fails at {FAILED_AT:g} s of {duration(first['series']['seconds'][-1])}. Simulated, "
            "not measured, with the measured costs of steps: a silent worker is missed after "
            f"{times['session']:g} s (`session_seconds`), a group stops for {times['rebalance']:g} s to "
            f"share its partitions anew, a crashed worker is back after {times['restart']:g} s, a lost "
            f"broker's partitions have leaders after {times['election']:g} s. All but the first are assumed.",
            "Delays are from a row to the first round of publishing that can count it, by when the row came "
            "(a window's message comes when the window has ended, besides): before the "
            f"failure, and the worst stretch after it. It is over when p99 stays within {APART:.0%} of "
            "before. Rows read again and lag are given in seconds of all rows; lag is what the log holds "
            "unread, all partitions together. Memory is that of the process with the most partitions.",
            table(head, lines),
            _SAID,
            *hot,
        ]
    )


def _hot(name: str, each: dict[str, Any]) -> str:
    said = f"At {name.rpartition(', ')[2]} the busiest partition brings {number(each['busiest'])} "
    said += "times the mean"
    if not each["behind"]:
        return said + "."
    return said + (
        f", and {each['behind']} of {each['partitions']} partitions never catch up: "
        "their rows wait longer and longer."
    )


_SAID = """The client library's groups share all partitions anew whenever a worker comes or goes: the
whole group stops, and every partition is read again from its open block, not only those that move. So a
crash costs the group two rebalances and two replays, and large blocks make them long. A flush sends
manifests to every partition of sketches: while one of them has no leader no flush is acknowledged and no
rows are read. Merge workers begin from snapshots: their crashes hold up results and read no rows again.
Partitions are not split: one that brings more than a process takes falls behind, whatever the number of
processes."""


def figures(results: dict[str, Any]) -> list[Figure]:
    """Return p99 and lag over time, of failures and of models of unequal load."""

    def picture(name: str, alt: str, labels: dict[str, str]) -> Figure:
        shown = {label: results[f"outages, {key}"]["series"] for key, label in labels.items()}

        def over_time(key: str) -> dict[str, Any]:
            return {label: (each["seconds"], each[key]) for label, each in shown.items()}

        when, seconds = "seconds, by when a row came", "seconds of rows"
        delay = Panel("Delay, p99", when, "seconds", over_time("p99"), log_y=True)
        return Figure(
            name, alt, [delay, Panel("Rows not read yet", "seconds", seconds, over_time("lag"))]
        )

    return [
        picture("scale_outages", "Delay of rows and lag over time, for each failure", _LABELS),
        picture("scale_hot", "The same for models of unequal load", _HOT_LABELS),
    ]


_LABELS = {
    "an ingest worker crashes": "ingest crash",
    "the same, blocks a quarter as long": "short blocks",
    "a tenth of the ingest workers crash": "a tenth",
    "ten ingest workers are restarted, every 30 s one": "ten restarts",
    "a merge worker crashes": "merge crash",
    "a broker of three is lost": "broker",
}
_HOT_LABELS = {
    "nothing fails": "all alike",
    **{f"models of unequal load, Zipf {each:g}": f"Zipf {each:g}" for each in _HOT},
}


SUITE = Suite("outages", "When something fails", cases, section, page="scale", figures=figures)
