"""``attributary publish FILE``: the rows of a file as a model's rows."""

from __future__ import annotations

from pathlib import Path

import click

from attributary.schemas.errors import ConfigurationError
from attributary.service.command_options import check_source, names, query_options
from attributary.service.foreign_names import FOREIGN


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@query_options
@click.option(
    "--model",
    metavar="NAME",
    help="The model that these rows are of. May be left out where another system's log names it.",
)
@click.option(
    "--outputs",
    multiple=True,
    callback=names,
    metavar="COL,COL",
    help="Columns that hold what the model said: values, margins or logits.",
)
@click.option(
    "--features",
    multiple=True,
    callback=names,
    metavar="COL,COL",
    help="Columns that hold what it saw [default: every other column].",
)
@click.option(
    "--categorical",
    multiple=True,
    callback=names,
    metavar="COL,COL",
    help="Features whose values are categories though they look like numbers. Implies --register.",
)
@click.option("--id-column", metavar="COL", help="Column that identifies a row.")
@click.option(
    "--time-column",
    metavar="COL",
    help="Column that says when a row happened: timestamps, ISO 8601, or seconds since 1970 "
    "[default: when the broker takes it].",
)
@click.option(
    "--time-unit",
    type=click.Choice(["s", "ms", "us", "ns"]),
    default="s",
    show_default=True,
    help="Unit of a time column of numbers.",
)
@click.option(
    "--time-zone",
    default="UTC",
    show_default=True,
    metavar="ZONE",
    help="Time zone of times that name none, such as Europe/Berlin.",
)
@click.option(
    "--time-format",
    metavar="FORMAT",
    help="How times are written as text, such as '%d.%m.%Y %H:%M:%S' [default: ISO 8601].",
)
@click.option("--weight-column", metavar="COL", help="Column with the row's weight, above 0.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["auto", "csv", "jsonl", "parquet", *FOREIGN]),
    metavar="FORMAT",
    default="auto",
    help="csv, jsonl or parquet [default: by the file's name], or what another system logged: "
    f"{', '.join(FOREIGN)}; see docs/adapters.md.",
)
@click.option(
    "--mapping",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="For --format mapping: where features and outputs lie, as TOML.",
)
@click.option(
    "--only",
    multiple=True,
    callback=names,
    metavar="NAME,NAME",
    help="Of another system's log, only models that it calls so.",
)
@click.option(
    "--as",
    "content",
    type=click.Choice(["arrow", "json"]),
    help="How rows travel [default: arrow for CSV and Parquet, json for JSONL].",
)
@click.option(
    "--batch-rows",
    type=click.IntRange(1, 100_000),
    default=2000,
    show_default=True,
    help="Most rows in a message.",
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Rows a second at most.")
@click.option(
    "--register",
    is_flag=True,
    help="Send a model card first, unless the model has one: columns of text and --categorical are "
    "categories, the others numbers. Without a card the stream learns this from the first rows.",
)
@click.option(
    "--skip-rows",
    "skip",
    type=click.IntRange(min=0),
    default=0,
    help="Leave out so many rows (JSONL: lines) at the beginning: what a run that was stopped says.",
)
@click.option("--strict", is_flag=True, help="Stop at the first row that cannot be used.")
def publish(
    file: Path | None,
    query: str | None,
    database: Path | None,
    model: str | None,
    outputs: tuple[str, ...],
    features: tuple[str, ...],
    categorical: tuple[str, ...],
    id_column: str | None,
    time_column: str | None,
    time_unit: str,
    time_zone: str,
    time_format: str | None,
    weight_column: str | None,
    kind: str,
    mapping: Path | None,
    only: tuple[str, ...],
    content: str | None,
    batch_rows: int,
    rate: float | None,
    register: bool,
    skip: int,
    strict: bool,
) -> int:
    """Send the rows of FILE, a CSV, JSONL or Parquet file, as rows of a model.

    Tables need --outputs. A line of a JSONL file is a row as it travels, {"features": {...}, "outputs":
    ...}, or, with --outputs, a flat object. CSV and JSONL may be compressed (.gz).

    With --query the rows are what DuckDB answers (the extra attributary[duckdb]): a backfill from a
    database, a lake of Parquet files, or a file that needs a join first.

    With the --format of another system, every line is a message that it logged, or one recorded with
    `kcat -C -J`; requests and responses that are messages of their own are paired. --features and
    --outputs then name values that have no names, or choose among those that have.

    Rows that cannot be used are left out and counted. Exit code 0: every row was sent and acknowledged;
    1: some were left out; 2: it could not go on; 130: stopped with Ctrl-C.

    \b
    Examples:
      attributary publish flights.csv --model delays --outputs predicted --time-column departed
      attributary publish rows.parquet --model churn --outputs p0,p1 --rate 2000
      attributary publish rows.jsonl --model churn
      attributary publish --query "SELECT * FROM 'logs/*.parquet' WHERE day > '2026-01-01' ORDER BY served_at"
                          --model churn --outputs score --time-column served_at --time-zone Europe/Berlin
      attributary publish kserve.jsonl --format kserve --model churn --outputs p1
    """
    from attributary.service.columns import Choice
    from attributary.service.event_times import EventTimes
    from attributary.service.file_publisher import FilePublisher, Job
    from attributary.service.global_options import current_settings

    check_source(file, query, database, kind, command="publish")
    adapter = None
    if kind in FOREIGN:
        from attributary.service.foreign_options import build_adapter

        unused = {
            "--categorical": categorical,
            "--id-column": id_column,
            "--time-column": time_column,
            "--time-format": time_format,
            "--weight-column": weight_column,
            "--register": register,
            "--skip-rows": skip,
        }
        for option, value in unused.items():
            if value:
                raise ConfigurationError(f"{option} is of CSV, JSONL and Parquet, not of {kind}")
        if content == "arrow":
            raise ConfigurationError(f"--as arrow: rows from {kind} travel as json")
        adapter = build_adapter(
            kind, model=model, features=features, outputs=outputs, only=only, mapping=mapping
        )
    elif model is None:
        raise ConfigurationError("Missing option '--model': the model that these rows are of")
    elif mapping is not None or only:
        raise ConfigurationError("--mapping and --only belong to the --format of another system")
    choice = Choice(outputs, features or None, categorical, id_column, time_column, weight_column)
    job = Job(
        path=file,
        model=model or "",
        choice=choice,
        kind=kind,
        content=content,
        times=EventTimes(time_unit, time_zone, time_format),
        query=query,
        database=database,
        skip=skip,
        batch_rows=batch_rows if rate is None else max(1, min(batch_rows, round(rate / 10))),
        rate=rate,
        register=register or bool(categorical),
        strict=strict,
        adapter=adapter,
    )
    return FilePublisher(current_settings(), job).run()
