"""Measure the suites that are named, all by default, and write the pages from the results."""

from __future__ import annotations

import argparse
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks import (
    accuracy,
    capacity,
    client,
    coverage,
    drift_delay,
    endtoend,
    excir_centring,
    excir_diagnostics,
    excir_groups,
    excir_light,
    excir_sufficiency,
    explain_speed,
    figures,
    journal,
    machine,
    mcir_conditioning,
    mcir_estimators,
    mcir_interactions,
    mcir_redundancy,
    mcir_speed,
    ordshap_calls,
    ordshap_intervals,
    ordshap_overhead,
    ordshap_text,
    ordshap_tokens,
    outages,
    overload,
    prequential,
    report,
    state,
    streaming_maths,
    t_explainer,
    unit_costs,
)
from benchmarks.suite import Options

ROOT = Path(__file__).parents[1]
SUITES = [
    streaming_maths.SUITE,
    state.SUITE,
    accuracy.SUITE,
    coverage.SUITE,
    endtoend.SUITE,
    overload.SUITE,
    client.SUITE,
    mcir_speed.SUITE,
    t_explainer.SUITE,
    explain_speed.SUITE,
    ordshap_intervals.SUITE,
    ordshap_calls.SUITE,
    ordshap_tokens.SUITE,
    ordshap_text.SUITE,
    ordshap_overhead.SUITE,
    mcir_redundancy.SUITE,
    mcir_estimators.SUITE,
    mcir_conditioning.SUITE,
    mcir_interactions.SUITE,
    excir_light.SUITE,
    excir_centring.SUITE,
    excir_groups.SUITE,
    excir_sufficiency.SUITE,
    excir_diagnostics.SUITE,
    capacity.SUITE,
    outages.SUITE,
    unit_costs.SUITE,
    drift_delay.SUITE,
    prequential.SUITE,
]


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 2 where a suite is unknown, 130 when interrupted."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    if unknown := sorted(set(asked.suites) - set(names())):
        parser.error(f"no suite is named {', '.join(unknown)}; choose from {', '.join(names())}")
    folder: Path = asked.results or ROOT / "benchmarks" / "results" / ("quick" * asked.quick)

    def measured(suite: str) -> dict[str, Any]:
        return _measured(suite, options, kept, folder)

    options = Options(quick=asked.quick, peers=asked.peers, measured=measured)
    pages: Path = asked.pages or (folder if options.quick else ROOT / "docs")
    if asked.write_only:
        return _write(pages, folder)
    chosen = [suite for suite in SUITES if suite.name in (asked.suites or names())]
    about = {
        "machine": machine.describe(),
        "quick": options.quick,
        "made": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
    }
    load = [machine.busy()]
    key = {**about, "code": journal.code_digest(), "peers": options.peers}
    kept = journal.Journal(folder, key, fresh=asked.fresh)
    ordered = sorted(chosen, key=lambda suite: not suite.first)
    cases = {suite.name: suite.cases(options) for suite in ordered}
    total = sum(len(part) for part in cases.values())
    left = [name for part in cases.values() for name in part if name not in kept.cases]
    if len(left) < total:
        print(
            f"going on with a run that was interrupted: {total - len(left)} of {total} cases done"
        )
    done, start = total - len(left), time.monotonic()
    try:
        for part in cases.values():
            for name, measure in part.items():
                if name in kept.cases:
                    continue
                done += 1
                print(f"[{done:2}/{total}] {name} ...", flush=True)
                began = time.monotonic()
                kept.keep(name, measure())
                print(f"        {time.monotonic() - began:.0f} s", flush=True)
    except KeyboardInterrupt:
        print("\ninterrupted; the same command goes on from here", file=sys.stderr)
        return 130
    load.append(machine.busy())
    drawn = {
        suite.name: figures.draw(
            suite.figures({name: kept.cases[name] for name in cases[suite.name]}), pages / "figures"
        )
        for suite in chosen
        if options.peers
    }
    measured = {suite: list(part) for suite, part in cases.items()}
    kept.finish(measured, {**about, "load": load}, drawn)
    print(f"{time.monotonic() - start:.0f} s in all")
    return _write(pages, folder)


def _measured(name: str, options: Options, kept: journal.Journal, folder: Path) -> dict[str, Any]:
    """Return the cases of a suite, of this run, else of the last one that ended."""
    (suite,) = [suite for suite in SUITES if suite.name == name]
    wanted = list(suite.cases(options))
    if all(case in kept.cases for case in wanted):
        return {case: kept.cases[case] for case in wanted}
    found = journal.finished(folder)
    if name not in found:
        raise LookupError(f"no results of {name}: name it too, it is measured first")
    cases: dict[str, Any] = found[name]["cases"]
    return cases


def _write(pages: Path, folder: Path) -> int:
    pages.mkdir(parents=True, exist_ok=True)
    results = journal.finished(folder)
    for page in report.HEADS:
        path = pages / f"{page}.md"
        path.write_text(report.document(page, SUITES, results), encoding="utf-8")
        print(f"the tables are in {path}")
    return 0


def names() -> list[str]:
    """Return the suites' names in the order of the pages."""
    return [suite.name for suite in SUITES]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"from {', '.join(names())}")
    parser.add_argument("--quick", action="store_true", help="few rows and repeats, own folder")
    parser.add_argument(
        "--no-peers", dest="peers", action="store_false", help="measure attributary alone"
    )
    parser.add_argument("--fresh", action="store_true", help="do not go on with an interrupted run")
    parser.add_argument(
        "--write-only", action="store_true", help="write the pages from the results that are there"
    )
    parser.add_argument("--results", type=Path, help="folder of the results")
    parser.add_argument("--pages", type=Path, help="folder of the pages to write")
    return parser


if __name__ == "__main__":
    sys.exit(main())
