"""docs/performance.md, docs/results.md and docs/scale.md, written from results alone."""

from __future__ import annotations

from typing import Any

from benchmarks.suite import Suite, table

#: What stands at the top of each page, by the page's name.
HEADS = {
    "performance": """# Performance

Written by `make bench` from what it measured, to the last figure; nothing is edited by hand. The
code is in `benchmarks/`, the raw results are in `benchmarks/results/`. A peer is installed from PyPI at a
pinned version (`benchmarks/requirements-*.txt`) into an environment of its own, and runs in a process
of its own on the same rows in the same run, held to one thread as attributary is.
`make bench ARGS=throughput` measures one section again, `make bench ARGS=--quick` tries all in seconds.
""",
    "results": """# Results

The papers' experiments, run again on data that needs no download, beside the methods that they are compared
with, on the same models and rows in the same run. Written by `make bench` from what it measured, to the last
figure; nothing is edited by hand. The code is in `benchmarks/`, the raw results are in `benchmarks/results/`,
the peers' versions are pinned in `benchmarks/requirements-*.txt`. What is computed and what the metrics mean:
[explainers](explainers.md).
""",
    "scale": """# Scale

What large deployments need, where they break first, and what failures do to them: computed from the costs of
single steps, which are measured, and checked beside whole runs. Written by
`python -m benchmarks unit-costs capacity outages`, to the last figure; nothing is edited by hand. For numbers
of your own: `python -m benchmarks.plan --help`. The raw results are in `benchmarks/results/`. None of these
deployments has been run at full size: this is what the parts say.
""",
}


#: Cores that others may keep busy without a remark.
QUIET = 0.5


def document(page: str, suites: list[Suite], results: dict[str, Any]) -> str:
    """Return a page: one section for each of its suites that has results, command and machine."""
    parts = [HEADS[page]]
    shown: dict[str, Any] | None = None
    for suite in suites:
        if suite.page != page or suite.name not in results:
            continue
        kept = results[suite.name]
        about = f"`python -m benchmarks {suite.name}`"
        if kept["machine"] != shown:
            parts.append(_machine(kept["machine"]))
            shown = kept["machine"]
        if lead := suite.lead(results):
            parts.append(lead + "\n")
        before, after = kept["load"]
        made = (
            f"{about}, {kept['made']}, {before} cores busy before the run and {after} at its end."
        )
        if kept["quick"]:
            made += " **Quick form: too few rows and repeats to rely on.**"
        # At its end the run itself keeps one core busy.
        if max(before, after - 1.0) > QUIET:
            made += " **Other work kept the machine busy: caches and cores were shared, times are longer.**"
        parts.append(f"## {suite.title}\n\n{made}\n\n{suite.section(kept['cases'])}\n")
        for figure in suite.figures(kept["cases"]):
            if figure.name in kept["figures"]:
                parts.append(f"![{figure.alt}](figures/{figure.name}.svg)\n")
    return "\n".join(parts)


def _machine(machine: dict[str, Any]) -> str:
    lines = [[name, str(value)] for name, value in machine.items()]
    return table(["measured on", ""], lines, left=2) + "\n"
