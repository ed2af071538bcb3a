"""What the doctor says, for people and as JSON, and the exit code."""

from __future__ import annotations

import asyncio
import logging
import sys

import msgspec
from rich.console import Console
from rich.text import Text

from attributary.service.doctor.examine import examine
from attributary.service.doctor.finding import Finding, as_given
from attributary.service.global_options import GlobalOptions
from attributary.service.printable import printable

SOME_FAILED = 1
_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}
_PIPED_WIDTH = 120


def run_doctor(options: GlobalOptions, *, write: bool, seconds: float, as_json: bool) -> int:
    """Examine, and print every finding; return the exit code: 0, or 1 where a check failed."""
    settings = options.settings()
    for library in ("aiokafka", "attributary.subscription", "attributary.workers.stream.catalogue"):
        logging.getLogger(library).setLevel(logging.CRITICAL)
    width = None if sys.stdout.isatty() else _PIPED_WIDTH
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    findings: list[Finding] = []

    def tell(told: Finding) -> None:
        finding = as_given(told, options)
        findings.append(finding)
        if not as_json:
            console.print(as_text(finding), soft_wrap=True)

    asyncio.run(examine(settings, tell, write=write, seconds=seconds))
    failed = sum(finding.level == "fail" for finding in findings)
    warned = sum(finding.level == "warn" for finding in findings)
    if as_json:
        checks = [finding.as_dict() for finding in findings]
        print(msgspec.json.encode({"ok": not failed, "checks": checks}).decode())
    else:
        console.print(summary(failed, warned), soft_wrap=True)
    return SOME_FAILED if failed else 0


def as_text(finding: Finding) -> Text:
    """Return the finding in a line, and what to do in another."""
    text = Text().append(f"{finding.level:<5}", style=_STYLES[finding.level])
    text.append(f"{finding.check:<12}", style="dim").append(printable(finding.message))
    if finding.fix is not None:
        text.append(f"\n{'':17}→ {printable(finding.fix)}", style="cyan")
    return text


def summary(failed: int, warned: int) -> str:
    """Return how it is, in a line."""
    if failed:
        return f"\n{failed} to mend, {warned} to look at"
    return f"\nnothing to mend, {warned} to look at" if warned else "\nall is well"
