"""``attributary topics``: create the topics, or check that they are there."""

from __future__ import annotations

from typing import Any

import click

from attributary.service.help_settings import help_settings_option


@click.group()
def topics() -> None:
    """Create the topics, or check that they are there."""


@topics.command()
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="Partitions of rows and of sketches, which bound how many workers share the work "
    "[ATTRIBUTARY_LAYOUT__ROWS_PARTITIONS, ATTRIBUTARY_LAYOUT__SKETCHES_PARTITIONS; else 4].",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(min=1),
    help="Copies of every topic [ATTRIBUTARY_LAYOUT__REPLICATION_FACTOR; else 1].",
)
@help_settings_option
def create(partitions: int | None, replication_factor: int | None) -> None:
    """Create the topics that are missing.

    Topics that exist stay as they are; what differs from the settings is said.
    """
    import asyncio

    from attributary.service.global_options import current_settings
    from attributary.service.topics import create_topics

    layout: dict[str, Any] = {}
    if partitions is not None:
        layout |= {"rows_partitions": partitions, "sketches_partitions": partitions}
    if replication_factor is not None:
        layout["replication_factor"] = replication_factor
    settings = current_settings({"layout": layout})
    report = asyncio.run(create_topics(settings.connection, settings.topics, settings.layout))
    for name in report.created:
        click.echo(f"created  {name}")
    for name in report.existing:
        click.echo(f"exists   {name}")
    for difference in report.differences:
        click.echo(f"differs  {difference}")


@topics.command()
def check() -> None:
    """Check that the broker answers and that every topic is there."""
    import asyncio

    from attributary.service.global_options import current_settings
    from attributary.service.topics import check_topics

    settings = current_settings()
    asyncio.run(check_topics(settings.connection, settings.topics))
    click.echo(f"all {len(type(settings.topics).model_fields)} topics are there")
