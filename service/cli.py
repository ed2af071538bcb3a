"""The command line: which commands there are. Each is loaded when it is called, so that help is quick."""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass
from pathlib import Path

import click

from attributary.service.global_options import GlobalOptions


@dataclass(frozen=True)
class _Entry:
    section: str
    module: str
    help: str


_START, _RUN, _USE = "Start here", "Run it", "Rows in, results out"

COMMANDS: dict[str, _Entry] = {
    "demo": _Entry(_START, "demo", "Watch it explain a real model on real rows, on this machine."),
    "up": _Entry(_RUN, "up", "Start a broker in memory and the workers: all it takes to try it."),
    "stream": _Entry(_RUN, "stream", "Run the workers against your own Kafka."),
    "ondemand": _Entry(_RUN, "ondemand", "Run a worker that explains predictions on request."),
    "adapt": _Entry(_RUN, "adapt", "Turn what serving systems log to Kafka into rows."),
    "topics": _Entry(_RUN, "topics", "Create the topics, or check them."),
    "doctor": _Entry(_RUN, "doctor", "Find out what is wrong, and what to do about it."),
    "publish": _Entry(_USE, "publish", "Send the rows of a CSV, JSONL or Parquet file."),
    "register": _Entry(_USE, "register", "Declare a model: its features, outputs and windows."),
    "baseline": _Entry(_USE, "baseline", "Make a model's card from its training table."),
    "replay": _Entry(_USE, "replay", "Count a stretch of rows again, with the same numbers."),
    "tail": _Entry(_USE, "tail", "Show attributions, drift, rejected messages as they come."),
    "top": _Entry(_USE, "top", "Watch what moves the models, live in the terminal."),
    "report": _Entry(_USE, "report", "Write one HTML page about a model, with figures."),
    "explain": _Entry(_USE, "explain", "Ask why the model said this of that row."),
    "dead-letters": _Entry(_USE, "dead_letters", "List, show and retry rejected messages."),
}


class LazyGroup(click.Group):
    """Imports a command's module when the command is used, and lists them by section."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module = importlib.import_module(f"attributary.service.commands.{entry.module}")
        command: click.Command = getattr(module, entry.module)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            close = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(COMMANDS)}"
            ctx.fail(f"no command {name!r}: {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section in (_START, _RUN, _USE):
            rows = [(name, e.help) for name, e in COMMANDS.items() if e.section == section]
            with formatter.section(section):
                formatter.write_dl(rows)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
)
@click.version_option(package_name="attributary", message="attributary %(version)s")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Settings in a TOML file [also ATTRIBUTARY_CONFIG].",
)
@click.option(
    "--bootstrap",
    metavar="HOST:PORT",
    help="The broker [also ATTRIBUTARY_CONNECTION__BOOTSTRAP; else localhost:9092].",
)
@click.option(
    "--prefix",
    metavar="PREFIX",
    help="Prefix of the topics' names [also ATTRIBUTARY_TOPIC_PREFIX; else 'attributary.'].",
)
@click.pass_context
def cli(ctx: click.Context, config: Path | None, bootstrap: str | None, prefix: str | None) -> None:
    """Say continuously which features move a model's outputs, how surely, and whether that drifts.

    Models in production publish what they saw and what they said to Kafka, one row per prediction.
    Attributary reads these rows and publishes, per model, output and time window, a score with an
    interval for every feature, its direction and its effect.

    \b
    Examples:
      attributary demo                                     see it at work, on this machine
      attributary publish rows.csv --model churn --outputs score
      attributary tail --model churn                       watch the results

    Options before the command's name hold for every command.
    """
    ctx.obj = GlobalOptions(config, bootstrap, prefix)
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
