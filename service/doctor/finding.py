"""One line of the doctor's: what was looked at, how it is, and what to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


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


def ok(check: str, message: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(check, "ok", message)


def warn(check: str, message: str, fix: str) -> Finding:
    """Return a finding that may become, or be, a problem."""
    return Finding(check, "warn", message, fix)


def fail(check: str, message: str, fix: str) -> Finding:
    """Return a finding that something is wrong."""
    return Finding(check, "fail", message, fix)
