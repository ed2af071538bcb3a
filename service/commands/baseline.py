"""``attributary baseline FILE``: a model's card from its training table."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attributary.service.command_options import check_source, names, query_options

if TYPE_CHECKING:
    from attributary.schemas.card import Artefact
    from attributary.service.baseline import MadeBaseline
    from attributary.workers.ondemand.policy import LoadPolicy

_SHOWN = 5
_PROGRESS_SECONDS = 5.0


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@query_options
@click.option("--model", metavar="NAME", help="Name of the model [default: the card's].")
@click.option(
    "--card",
    "given",
    type=click.Path(path_type=Path),
    metavar="CARD.json",
    help="A card that declares features, levels, groups, windows, the artefact: the baseline is added.",
)
@click.option(
    "--artefact",
    metavar="FILE|URL",
    help="The model: it says the outputs of every row, and the card names it, as with register.",
)
@click.option(
    "--categories",
    type=click.Choice(["one-hot", "codes"]),
    help="How the model takes a categorical [default: one-hot].",
)
@click.option(
    "--outputs",
    multiple=True,
    callback=names,
    metavar="COL,COL",
    help="Columns that hold what the model said of the rows, in place of --artefact.",
)
@click.option(
    "--features",
    multiple=True,
    callback=names,
    metavar="COL,COL",
    help="The model's features, in its order [default: the card's, else every other column].",
)
@click.option(
    "--leave-out",
    multiple=True,
    callback=names,
    metavar="COL,COL",
    help="Columns that are no features: ids, times, what the model learnt to predict.",
)
@click.option(
    "--categorical",
    multiple=True,
    callback=names,
    metavar="COL,COL",
    help="Features whose values are categories though they look like numbers.",
)
@click.option("--weight-column", metavar="COL", help="Column with the row's weight, above 0.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["auto", "csv", "jsonl", "parquet"]),
    default="auto",
    help="Format of the file [default: by its name].",
)
@click.option(
    "--group-threshold",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.7,
    show_default=True,
    help="Mean rank correlation from which numeric features form a group.",
)
@click.option("--no-groups", is_flag=True, help="Form no groups but those of the card.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="CARD.json",
    help="Write the card there [default: to the standard output, unless it is registered].",
)
@click.option(
    "--register", is_flag=True, help="Send the card; it replaces the model's earlier one."
)
def baseline(
    file: Path | None,
    query: str | None,
    database: Path | None,
    model: str | None,
    given: Path | None,
    artefact: str | None,
    categories: str | None,
    outputs: tuple[str, ...],
    features: tuple[str, ...],
    leave_out: tuple[str, ...],
    categorical: tuple[str, ...],
    weight_column: str | None,
    kind: str,
    group_threshold: float,
    no_groups: bool,
    out: Path | None,
    register: bool,
) -> int:
    """Make a model's card from its training table FILE: CSV, JSONL or Parquet, of any length; or from a
    DuckDB query.

    The card holds what windows are compared with: the distribution of every column and output, missing
    rates, the grid, the attribution scores, and groups of features that move together. No row is kept, but
    a distribution's outermost values are values of the table.

    The outputs are what the model says of the rows (--artefact, or the artefact of --card), or columns that
    hold it (--outputs). A model is opened in a process of its own, as on request.

    Exit code 0: every row was counted; 1: some were left out; 2: it could not go on.

    \b
    Examples:
      attributary baseline train.parquet --model churn --outputs margin --leave-out churned --out churn.json
      attributary baseline train.csv --card churn.json --artefact churn.ubj --register
    """
    import asyncio

    from attributary.schemas.errors import ConfigurationError
    from attributary.service.artefacts import declared_artefact
    from attributary.service.baseline import BaselineJob, make_baseline
    from attributary.service.columns import Choice
    from attributary.service.global_options import current_settings
    from attributary.service.printable import printable
    from attributary.service.registry import read_card, register_card

    check_source(file, query, database, kind, command="baseline")
    settings = current_settings()
    card = None if given is None else read_card(given)
    named = model or (None if card is None else card.model)
    if named is None:
        raise ConfigurationError("name the model: --model NAME, or --card CARD.json")
    found = declared_artefact(artefact, categories, None if card is None else card.artefact)
    if artefact is not None and outputs:
        raise ConfigurationError("--artefact and --outputs both say the outputs: choose one")
    if found is None and not outputs and not (file is not None and _travelling(file, kind)):
        raise ConfigurationError(
            "who says the outputs? --artefact FILE, or --outputs COL,COL for columns that hold them"
        )
    rejected = 0

    def reject(problem: str) -> None:
        nonlocal rejected
        rejected += 1
        if rejected <= _SHOWN:
            name = "query" if file is None else file.name
            click.echo(f"{name}: left out: {printable(problem)}", err=True)

    made = make_baseline(
        BaselineJob(
            path=file,
            model=named,
            choice=Choice(
                outputs,
                features or None,
                categorical,
                weight=weight_column,
                left_out=leave_out,
                modelled=found is not None and not outputs,
            ),
            kind=kind,
            query=query or "",
            database=database,
            card=card,
            artefact=found,
            group_threshold=None if no_groups else group_threshold,
        ),
        settings.ingest,
        _allowing(settings.models, found),
        reject=reject,
        progress=_Said(),
    )
    _tell(made, rejected)
    if out is not None:
        out.write_bytes(made.card.to_bytes() + b"\n")
    if register:
        click.echo(
            asyncio.run(register_card(settings.connection, settings.topics, made.card)), err=True
        )
    if out is None and not register:
        click.echo(made.card.to_bytes())
    return 1 if rejected else 0


def _travelling(file: Path, kind: str) -> bool:
    """Whether the file may hold rows as they travel, which have outputs of their own."""
    from attributary.service.table_files import kind_of

    return kind_of(file, kind) == "jsonl"


def _allowing(policy: LoadPolicy, artefact: Artefact | None) -> LoadPolicy:
    """Allow what the command names: whoever runs it has named the file or the server."""
    from urllib.parse import urlsplit

    if artefact is None:
        return policy
    if artefact.uri.startswith(("http://", "https://")):
        host = urlsplit(artefact.uri).hostname or ""
        return policy.model_copy(update={"server_hosts": (*policy.server_hosts, host)})
    folder = Path(urlsplit(artefact.uri).path).resolve().parent
    return policy.model_copy(update={"roots": (*policy.roots, folder)})


def _tell(made: MadeBaseline, rejected: int) -> None:
    """Say what the card rests on; the standard output may be the card itself."""
    from attributary.service.printable import printable

    card, layout = made.card, made.layout
    parts = [
        f"{int(made.state.rows):,} rows",
        f"{len(card.features)} features ({len(layout.columns)} columns)",
        f"{len(card.outputs)} outputs",
        f"{len(card.to_bytes()) / 1024:,.0f} KiB",
    ]
    if rejected:
        parts.append(f"{rejected:,} rows left out")
    click.echo(f"baseline of {card.model}: {', '.join(parts)}", err=True)
    if made.left_out:
        click.echo(f"not features: {', '.join(map(printable, made.left_out))}", err=True)
    for name, members in made.groups.items():
        click.echo(f"group {printable(name)}: {', '.join(map(printable, members))}", err=True)
    if card.artefact is not None and made.learnt_levels:
        click.echo(
            f"levels in alphabetical order of {', '.join(map(printable, made.learnt_levels))}: where the "
            "model takes another order, declare it in --card",
            err=True,
        )


class _Said:
    """Says every few seconds how far the pass is."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> Any:
        now = time.monotonic()
        if now - self._said >= _PROGRESS_SECONDS:
            self._said = now
            share = f" {done / total:.0%}" if total else ""
            click.echo(f"reading {what}:{share}", err=True)
