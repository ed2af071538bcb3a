"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from attributary.schemas.errors import ConfigurationError

Command = TypeVar("Command", bound=Callable[..., Any])


def names(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of ``a,b`` or of a repeated option: a callback."""
    return tuple(name.strip() for part in value for name in part.split(",") if name.strip())


def query_options(command: Command) -> Command:
    """Add ``--query`` and ``--database``, which stand in place of a file."""
    database = click.option(
        "--database",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="A DuckDB database for --query; it is only read.",
    )
    query = click.option(
        "--query",
        metavar="SQL",
        help="In place of FILE: the rows that DuckDB answers with, from --database or files that it names.",
    )
    return query(database(command))


def check_source(
    file: Path | None, query: str | None, database: Path | None, kind: str, *, command: str
) -> None:
    """Raise ConfigurationError unless rows come from one place: a file, or a query."""
    if (file is None) == (query is None):
        raise ConfigurationError(f"{command} FILE, or {command} --query SQL: one of them")
    if query is None and database is not None:
        raise ConfigurationError("--database belongs to --query")
    if query is not None and kind != "auto":
        raise ConfigurationError(f"--format {kind} is of a file, --query has none")


def metrics_options(command: Command) -> Command:
    """Add ``--metrics-host`` and ``--metrics-port``."""
    port = click.option(
        "--metrics-port",
        type=int,
        help="Its port; 0 takes a free one [ATTRIBUTARY_METRICS_PORT].",
    )
    host = click.option(
        "--metrics-host", help="Address that serves /metrics [ATTRIBUTARY_METRICS_HOST]."
    )
    return host(port(command))


def given(**options: Any) -> dict[str, Any]:
    """Return the options that were given, by name: the settings hold for the others."""
    return {name: value for name, value in options.items() if value is not None}
