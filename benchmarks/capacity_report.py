"""The pages' part on capacity, from results alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from benchmarks.suite import Figure, Panel, number, table

#: A prediction that is further off is marked.
APART = 0.25
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def quantity(count: float) -> str:
    """Return bytes for people, of any size."""
    for unit in _UNITS:
        if count < 1024 or unit == _UNITS[-1]:
            break
        count /= 1024
    return f"{number(count)} {unit}"


def duration(seconds: float) -> str:
    """Return seconds for people."""
    return f"{number(seconds)} s" if seconds < 120 else f"{number(seconds / 60)} min"


def plan_table(plans: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """Return plans side by side, as ``capacity.summary`` gives them."""

    def cores(each: dict[str, Any], role: str) -> float:
        return float(sum(each[f"{role}_cores"].values()))

    lines: list[tuple[str, Any]] = [
        ("partitions of rows", lambda p: f"{p['source_partitions']:,}"),
        ("partitions of sketches", lambda p: f"{p['sketch_partitions']:,}"),
        ("ingest processes", lambda p: f"{p['ingest_processes']:,}"),
        ("merge processes", lambda p: f"{p['merge_processes']:,}"),
        ("cores busy, ingest", lambda p: number(cores(p, "ingest"))),
        ("cores busy, merge", lambda p: number(cores(p, "merge"))),
        ("memory of an ingest process", lambda p: quantity(p["ingest_process_memory"])),
        ("memory of a merge process", lambda p: quantity(p["merge_process_memory"])),
        ("memory of all", lambda p: quantity(p["memory"])),
        ("rows, a second", lambda p: quantity(p["bytes"]["rows"])),
        ("sketches, a second", lambda p: quantity(p["bytes"]["sketches"])),
        ("manifests, a second", lambda p: quantity(p["bytes"]["manifests"])),
        ("results, a second", lambda p: quantity(p["bytes"]["results"])),
        ("snapshots, a second", lambda p: quantity(p["bytes"]["snapshots"])),
        ("Prometheus series", lambda p: f"{p['series']:,}"),
        ("series of a merge process", lambda p: f"{p['series_per_merge_process']:,.0f}"),
        ("sketches sent, a second", lambda p: number(p["sketches"])),
        ("rows in a block's sketch", lambda p: number(p["rows_per_sketch"])),
        ("models in a block", lambda p: number(p["models_per_block"])),
        ("windows end together, and take", lambda p: duration(p["burst_seconds"])),
        ("a block lasts", lambda p: duration(p["block_seconds"])),
        ("rows read again after a crash, a partition", lambda p: f"{p['replay_rows'] / 2:,.0f}"),
    ]
    rows = [[title, *(show(each) for each in plans)] for title, show in lines]
    return table(["", *names], rows)


def part_table(plans: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """Return what the cores of plans are busy with."""
    rows = []
    for role in ("ingest", "merge"):
        for part in plans[0][f"{role}_cores"]:
            busy = [each[f"{role}_cores"][part] for each in plans]
            rows.append([f"{role}: {part}", *map(number, busy)])
    return table(["cores busy with", *names], rows)


def limits(plans: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """Return the limits that plans run into, as a list."""
    lines = [
        f"- **{name}**: {text}."
        for name, each in zip(names, plans, strict=True)
        for text in [
            *(
                ["no number of partitions is enough: every one adds work of its own"]
                if not each["fits"]
                else []
            ),
            *each["broken"],
        ]
    ]
    return "\n".join(lines) if lines else "None of the limits is reached."


def _unfit(plans: Sequence[dict[str, Any]]) -> list[str]:
    unfit = [each for each in plans if not each["fits"]]
    if not unfit:
        return []
    most = unfit[0]["source_partitions"]
    named = " and ".join(each["name"] for each in unfit)
    return [
        f"For {named} no number of partitions up to {most:,} is enough: the columns say what that many of "
        "each would need, in cores that their processes do not have."
    ]


def _breaks(plans: Sequence[dict[str, Any]]) -> list[str]:
    """Return sentences on what is largest in the first plan, and what each change does to it."""
    lines = []
    for before, after in pairwise(plans):
        both = [
            sum(each["ingest_cores"].values()) + sum(each["merge_cores"].values())
            for each in (before, after)
        ]
        parts = {
            (role, part): before[f"{role}_cores"][part] - after[f"{role}_cores"][part]
            for role in ("ingest", "merge")
            for part in before[f"{role}_cores"]
        }
        (role, part), saved = max(parts.items(), key=lambda each: each[1])
        lines.append(
            f"- **{before['name']} → {after['name']}** ({after['change']}): cores {number(both[0])} → "
            f"{number(both[1])}, most of it in {role}: {part} ({number(saved)} fewer); memory "
            f"{quantity(before['memory'])} → {quantity(after['memory'])}; sketches "
            f"{quantity(before['bytes']['sketches'])}/s → {quantity(after['bytes']['sketches'])}/s; "
            f"series {before['series']:,} → {after['series']:,}."
        )
    return lines


def _largest(each: dict[str, Any]) -> str:
    found = {
        f"{role}: {part}": cores
        for role in ("ingest", "merge")
        for part, cores in each[f"{role}_cores"].items()
    }
    ordered = sorted(found.items(), key=lambda item: -item[1])[:3]
    return ", ".join(f"{name} ({number(cores)} cores)" for name, cores in ordered)


def _checks(results: Sequence[dict[str, Any]]) -> str:
    """Return measured and predicted side by side, and where they are apart."""
    heads, columns = ["a second of the stream"], []
    for each in results:
        heads += [
            f"{each['models']} × {number(each['rate'])} rows/s, {each['format']}",
            "model",
            "off",
        ]
        columns.append(each["pairs"])
    rows, apart, count, within = [], [], 0, 0
    for name in columns[0]:
        cells = [name]
        for pairs, each in zip(columns, results, strict=True):
            measured, predicted = pairs[name]
            off = predicted / measured - 1 if measured else 0.0
            show = quantity if "bytes" in name or "memory" in name else number
            count, within = count + 1, within + (abs(off) <= APART)
            far = abs(off) > APART
            if far:
                apart.append((abs(off), f"{name}, {each['models']} models: {off:+.0%}"))
            cells += [show(measured), show(predicted), f"**{off:+.0%}**" if far else f"{off:+.0%}"]
        rows.append(cells)
    said = f"{within} of {count} predictions are within {APART:.0%}."
    if apart:
        said += " Further off: " + "; ".join(text for _, text in sorted(apart, reverse=True)) + "."
    return table(heads, rows) + "\n\n" + said


def _runs(results: Sequence[dict[str, Any]]) -> str:
    lines = []
    for each in results:
        rows = f"{each['models']} model{'s' * (each['models'] > 1)} of {each['features']} features"
        outputs = f"{each['outputs']} output{'s' * (each['outputs'] > 1)}"
        where = "each on one partition" if each["keyed"] else "spread over all partitions"
        when = f"flushed every {each['flush']} s and published every {each['publish']} s"
        lines.append(
            f"{rows} and {outputs}, {number(each['rate'])} rows/s each, {where} ({each['sources']} of rows, "
            f"{each['sinks']} of sketches), {when}, blocks of {number(each['block_seconds'])} s"
        )
    return "; ".join(lines)


def section(results: dict[str, Any]) -> str:
    """Return what is needed, where it breaks, and the checks."""
    found = results["capacity, what it needs"]
    plans = found["variants"]
    names = [each["name"] for each in plans]
    work = found["workload"]
    checks = [each for each in results.values() if "pairs" in each]
    changes = [[each["name"], each["change"]] for each in plans]
    parts = [
        f"{work['rows_per_second']:,.0f} rows a second, {work['models']:,} models of "
        f"{work['features']} features and one output, {work['rows_per_second'] / work['models']:g} rows a "
        f"second each: {len(plans)} ways to run it, each with one change to the one before. Processes are "
        "as many as keep each below 60 % of one core, with a partition of rows (ingest) or of sketches "
        "(merge) for each. Bytes are before replication, which multiplies what brokers take in by "
        f"{plans[0]['replication']}.",
        table(["", "what is changed"], changes, left=2),
        plan_table(plans, names),
        *_unfit(plans),
        "### Where it breaks first",
        f"As shipped ({names[0]}), the largest parts are {_largest(plans[0])}. Limits that are run into:",
        limits(plans, names),
        "What each change does:",
        "\n".join(_breaks(plans)),
        f"What is left in {names[-1]}: {_largest(plans[-1])}.",
        _sketches(found["sketch"]),
        _EXPLAINED,
        part_table(plans, names),
        "### How far the model can be trusted",
        "The same cores, fed in one process with a stream on a clock of its own: " + _runs(checks) + ". "
        "Seconds are those of one core, warm-up left out; shapes that were not measured step by step are "
        "interpolated, so they test that too.",
        _checks(checks),
    ]  # fmt: skip
    for each in results.values():
        if "worker" in each:
            measured, predicted = each["worker"]
            parts.append(
                f"A real ingest worker on the embedded broker, {number(each['rows_per_second'])} rows/s: "
                f"{number(measured)} µs of its processor time a row; the model says {number(predicted)} µs "
                f"({predicted / measured - 1:+.0%})."
            )
    return "\n\n".join(parts)


def _sketches(sketch: dict[str, dict[str, float]]) -> str:
    """Return what a sketch costs by the rows in it, and so a row."""

    def milliseconds(rows: str) -> float:
        each = sketch[rows]
        return 1e3 * (each["encode"] + each["read_sketch"] + each["merge"])

    said = ", ".join(
        f"one of {int(rows):,} row{'s' * (rows != '1')} {number(milliseconds(rows))} ms and "
        f"{quantity(each['bytes'])} ({number(milliseconds(rows) / int(rows))} ms and "
        f"{quantity(each['bytes'] / int(rows))} a row)"
        for rows, each in sketch.items()
    )
    return (
        f"To make a sketch, read it and add it to a window takes, by the rows in it: {said}. So what counts "
        "is how many (model, source partition, block, pane) there are: rows of a model on every partition "
        "make a sketch of it there, and short blocks one in every block."
    )


_EXPLAINED = """`Publisher` spreads rows over all partitions, which suits few models with many rows.
For many models with few rows each, `Publisher(..., keyed=True)` writes a model's rows on one partition, as
does any producer
that writes its name as their Kafka key ([the formats](messages.md)). Then a model that alone brings more
rows than a process takes needs a second name, or spread rows. Larger blocks make fewer sketches and longer
replays: after a crash, and after every rebalance, a partition is read again from the start of its open
block. A lifetime view is evaluated in every round of publishing, windows once, those of all models together
when they end; where a round brings no news, merge looks at all of its models again soon. Manifests go from
every partition of rows to every partition of sketches, so their number is the product of the two: where
that is what hurts, several deployments side by side (`ATTRIBUTARY_TOPIC_PREFIX`), each with some of the
models, have fewer."""


def figures(results: dict[str, Any]) -> list[Figure]:
    """Return cores, memory and network of the variants."""
    plans = results["capacity, what it needs"]["variants"]
    names = [each["name"] for each in plans]

    def bars(values: dict[str, Callable[[dict[str, Any]], float]]) -> dict[str, Any]:
        return {key: (names, [value(each) for each in plans]) for key, value in values.items()}

    def panel(title: str, unit: str, values: dict[str, Any]) -> Panel:
        return Panel(title, "", unit, bars(values), kind="bars", log_y=True)

    def memory(role: str) -> Callable[[dict[str, Any]], float]:
        return lambda p: p[f"{role}_processes"] * p[f"{role}_process_memory"] / 2**30

    cores = {
        role: lambda p, role=role: sum(p[f"{role}_cores"].values()) for role in ("ingest", "merge")
    }
    sent = {
        name: lambda p, name=name: p["bytes"][name] / 2**20
        for name in ("rows", "sketches", "manifests")
    }
    return [
        Figure(
            "scale_needs",
            "Cores and memory of each way to run it",
            [
                panel("Cores busy", "cores", cores),
                panel("Memory", "GiB", {role: memory(role) for role in ("ingest", "merge")}),
            ],
        ),
        Figure(
            "scale_network",
            "Rows, sketches and manifests a second of each way to run it",
            [panel("Network, before replication", "MiB/s", sent)],
        ),
    ]
