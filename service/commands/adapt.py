"""``attributary adapt``: the bridge from other systems' topics to rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from attributary.service.command_options import given, metrics_options, names
from attributary.service.foreign_names import FOREIGN
from attributary.service.help_settings import help_settings_option

if TYPE_CHECKING:
    from attributary.workers.adapt.service import AdaptService


@click.command()
@click.option(
    "--from",
    "foreign",
    multiple=True,
    required=True,
    callback=names,
    metavar="TOPIC,TOPIC",
    help="Topics to read.",
)
@click.option(
    "--format",
    "kind",
    required=True,
    type=click.Choice(FOREIGN),
    metavar="FORMAT",
    help=f"What lies there: {', '.join(FOREIGN)}.",
)
@click.option("--model", metavar="NAME", help="The model of all rows [default: as the log says].")
@click.option(
    "--features",
    multiple=True,
    callback=names,
    metavar="NAME,NAME",
    help="Features to take; names for values that have none, in their order.",
)
@click.option(
    "--outputs",
    multiple=True,
    callback=names,
    metavar="NAME,NAME",
    help="The same for what the model said.",
)
@click.option(
    "--only",
    multiple=True,
    callback=names,
    metavar="NAME,NAME",
    help="Only models that the log calls so.",
)
@click.option(
    "--mapping",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="For --format mapping: where features and outputs lie, as TOML.",
)
@click.option(
    "--registry",
    metavar="URL",
    help="Values are Avro or Protobuf by this schema registry [ATTRIBUTARY_ADAPT__REGISTRY; its user and "
    "password: ..._USER, ..._PASSWORD].",
)
@click.option("--group", metavar="NAME", help="Consumer group [default: made of the topics].")
@click.option(
    "--pair-seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="So long a request waits for its response [ATTRIBUTARY_ADAPT__PAIR_SECONDS; else 60].",
)
@metrics_options
@help_settings_option
def adapt(
    foreign: tuple[str, ...],
    kind: str,
    model: str | None,
    features: tuple[str, ...],
    outputs: tuple[str, ...],
    only: tuple[str, ...],
    mapping: Path | None,
    registry: str | None,
    group: str | None,
    pair_seconds: float | None,
    metrics_host: str | None,
    metrics_port: int | None,
) -> None:
    """Turn what a serving system logs to Kafka into rows, until Ctrl-C or SIGTERM.

    Requests and responses that come as messages of their own are paired. A row is published once, also when
    the bridge is killed and started again. Messages that cannot be used go to the dead letters; halves
    that stay alone are counted. To try a format on a file first: attributary publish --format.

    \b
    Examples:
      attributary adapt --from inference-log --format kserve --model churn --outputs p0,p1
      attributary adapt --from seldon.default.model.iris.inputs,seldon.default.model.iris.outputs \\
        --format seldon
      attributary adapt --from scored --format mapping --mapping scored.toml --model churn
    """
    import asyncio

    from attributary.service.foreign_files import describe
    from attributary.service.foreign_options import build_adapter
    from attributary.service.global_options import current_settings
    from attributary.service.logs import configure_logging
    from attributary.service.topics import check_topics

    adapter = build_adapter(
        kind, model=model, features=features, outputs=outputs, only=only, mapping=mapping
    )
    adapting = given(pair_seconds=pair_seconds, registry=registry)
    settings = current_settings(
        given(metrics_host=metrics_host, metrics_port=metrics_port, adapt=adapting or None)
    )
    configure_logging(settings.log_level)
    asyncio.run(check_topics(settings.connection, settings.topics, roles=["rows", "dead_letters"]))

    from attributary.service.serving import served
    from attributary.workers.adapt.metrics import AdaptMetrics
    from attributary.workers.adapt.worker import run_bridge

    def on_end(service: AdaptService) -> None:
        totals = service.totals
        told = f"published {totals['rows']:,} rows from {totals['messages']:,} messages"
        if totals["rejected"]:
            told += f"; {totals['rejected']:,} rows rejected"
        click.echo(told)
        if service.converter.skipped:
            click.echo(f"messages skipped: {describe(service.converter.skipped)}")
        if service.converter.pairing.lost:
            click.echo(f"halves lost: {describe(service.converter.pairing.lost)}")

    with served(settings, AdaptMetrics.build) as (metrics, signs):
        run_bridge(
            settings.connection,
            settings.topics,
            foreign,
            group or f"{settings.topics.rows}-adapt-{'-'.join(sorted(foreign))}"[:240],
            adapter,
            settings.adapt,
            metrics=metrics,
            signs=signs,
            on_end=on_end,
        )
