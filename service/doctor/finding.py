"""One line of the doctor's: what was looked at, how it is, and what to do."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import Literal

from attributary.service.global_options import GlobalOptions

Level = Literal["ok", "warn", "fail"]

# Options of their own are part of a command already; one that starts a broker takes no address of one.
_COMMAND = re.compile(r"`attributary (?!-)(up --port)?")


@dataclass(frozen=True)
class Finding:
    """``fix`` says what to do; None where there is nothing."""

    check: str
    level: Level
    message: str
    fix: str | None = None

    def as_dict(self) -> dict[str, str | None]:
        """Return the fields by name."""
        return asdict(self)


def as_given(finding: Finding, options: GlobalOptions) -> Finding:
    """Return the finding with ``options`` in every command that it names, so that each can be copied."""

    def command(found: re.Match[str]) -> str:
        starts_broker = found[1] is not None
        words = options.words(bootstrap=not starts_broker)
        return f"`attributary {words}{' ' if words else ''}{found[1] or ''}"

    fix = None if finding.fix is None else _COMMAND.sub(command, finding.fix)
    return replace(finding, message=_COMMAND.sub(command, finding.message), fix=fix)


def ok(check: str, message: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(check, "ok", message)


def warn(check: str, message: str, fix: str) -> Finding:
    """Return a finding that may become, or be, a problem."""
    return Finding(check, "warn", message, fix)


def fail(check: str, message: str, fix: str) -> Finding:
    """Return a finding that something is wrong."""
    return Finding(check, "fail", message, fix)
