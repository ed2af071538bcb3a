"""The options before the command's name, and the settings that they make together with the rest."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from attributary.service.settings import Settings


@dataclass(frozen=True)
class GlobalOptions:
    """``attributary --config FILE --bootstrap HOST:PORT --prefix PREFIX``; None: not given."""

    config: Path | None = None
    bootstrap: str | None = None
    prefix: str | None = None

    def words(self, *, bootstrap: bool = True) -> str:
        """Return them as a shell takes them, before a command's name; ``bootstrap``: that one too."""
        given = {"--config": self.config, "--prefix": self.prefix}
        if bootstrap:
            given["--bootstrap"] = self.bootstrap
        named = sorted((name, str(value)) for name, value in given.items() if value is not None)
        return shlex.join(word for pair in named for word in pair)

    def settings(self, overrides: Mapping[str, Any] | None = None) -> Settings:
        """Return the settings, with these options and then ``overrides`` (nested) winning."""
        from attributary.service.settings import load_settings

        given: dict[str, Any] = dict(overrides or {})
        if self.bootstrap is not None:
            given.setdefault("connection", {"bootstrap": self.bootstrap})
        if self.prefix is not None:
            given.setdefault("topic_prefix", self.prefix)
        return load_settings(self.config, given)


def current_settings(overrides: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings of the command that runs; ConfigurationError where they cannot work."""
    return current_options().settings(overrides)


def current_options() -> GlobalOptions:
    """Return the options before the name of the command that runs."""
    context = click.get_current_context(silent=True)
    options = context.find_object(GlobalOptions) if context is not None else None
    return options or GlobalOptions()
