"""The option ``--help-settings``: every setting, as the environment variable that gives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def help_settings_option(command: Command) -> Command:
    """Add ``--help-settings`` to a command."""
    return click.option(
        "--help-settings",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show,
        help="List all settings, with their environment variables and defaults, and exit.",
    )(command)


def _show(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from attributary.service.settings import environment_variables

    formatter = click.HelpFormatter(max_width=100, width=100)
    formatter.write_text(
        "Environment variables. In the TOML file that --config or ATTRIBUTARY_CONFIG names, two "
        "underscores are a level: ATTRIBUTARY_INGEST__FLUSH_SECONDS is flush_seconds in [ingest]."
    )
    formatter.write_paragraph()
    with formatter.indentation():
        for name, default, description in environment_variables():
            formatter.write_text(f"{name}={default}")
            with formatter.indentation():
                formatter.write_text(description)
    click.echo(formatter.getvalue(), nl=False)
    context.exit()
