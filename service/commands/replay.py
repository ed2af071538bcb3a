"""``attributary replay``: count a stretch of the rows topic again, into topics of its own."""

from __future__ import annotations

from datetime import datetime

import click

_TIME = click.DateTime(["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d", "%Y-%m-%dT%H:%M:%S%z"])


@click.command()
@click.option("--from", "start", type=_TIME, help="Broker's time, UTC [default: the oldest row].")
@click.option("--to", "end", type=_TIME, help="Broker's time, UTC [default: the newest row].")
@click.option(
    "--into",
    required=True,
    metavar="PREFIX",
    help="Prefix of the topics that results go to, such as 'audit-march.'. They are created.",
)
def replay(start: datetime | None, end: datetime | None, into: str) -> None:
    """Count rows again, into topics of their own, with the numbers of the live run.

    Reads the rows topic from --from to --to by the broker's clock (from the start of the block that holds
    it), on the grids that the live run used, and writes attributions, drift, dead letters and sketches
    under another prefix. Two replays of one stretch write the same bytes; windows that lie wholly in the
    stretch equal the live ones, except for when they were computed. The live topics are only read.

    \b
    Examples:
      attributary replay --from 2026-03-01 --to 2026-04-01 --into audit-march.
      attributary --prefix audit-march. tail --from-beginning --no-follow
    """
    import asyncio

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from attributary.schemas.errors import ConfigurationError
    from attributary.schemas.topics import Topics
    from attributary.service.global_options import current_settings
    from attributary.service.logs import configure_logging
    from attributary.service.topics import check_topics, create_topics
    from attributary.service.words import left_out
    from attributary.workers.heap import keep_freed_memory
    from attributary.workers.stream.replay import Replayed, Stretch
    from attributary.workers.stream.replay import replay as run

    settings = current_settings({})
    configure_logging("WARNING")
    keep_freed_memory()
    target = Topics.with_prefix(into)
    if target == settings.topics:
        raise ConfigurationError(f"--into {into!r} is the live prefix; choose another")
    stretch = Stretch(_milliseconds(start), _milliseconds(end))

    async def go(progress: Progress) -> Replayed:
        await check_topics(settings.connection, settings.topics)
        await create_topics(settings.connection, target, settings.layout)
        task = progress.add_task("rows topic", total=None)

        def show(done: Replayed) -> None:
            progress.update(task, completed=done.records, total=done.of_records)

        return await run(
            settings.connection,
            settings.topics,
            target,
            settings.ingest,
            settings.merge,
            stretch,
            show,
        )

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True) as progress:
        done = asyncio.run(go(progress))
    click.echo(
        f"replayed {done.records:,} messages: {done.accepted:,} rows accepted"
        f"{left_out(done.thinned)}, {done.rejected:,} rejected, {done.messages:,} results in "
        f"{target.attributions} and {target.drift}"
    )


def _milliseconds(moment: datetime | None) -> int | None:
    if moment is None:
        return None
    from datetime import timezone

    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return round(moment.timestamp() * 1000)
