"""``attributary stream``: one worker process."""

from __future__ import annotations

import click

from attributary.service.command_options import given, metrics_options
from attributary.service.help_settings import help_settings_option

_ROLES = ("ingest", "merge")


@click.command()
@click.option(
    "--role",
    "roles",
    type=click.Choice(_ROLES),
    multiple=True,
    help="What this worker does, again for more than one; without it, both. ingest: rows to sketches. "
    "merge: sketches to attributions.",
)
@metrics_options
@help_settings_option
def stream(roles: tuple[str, ...], metrics_host: str | None, metrics_port: int | None) -> None:
    """Run one worker, until Ctrl-C or SIGTERM.

    Start as many as there is work for, on any machines: they share the partitions of the topics,
    and another one takes over where one stops or dies. The topics must exist (attributary topics create).
    ATTRIBUTARY_INGEST__LIGHTWEIGHT=behind lets ingest sketch a fraction of the rows while it lags; all are
    counted.
    /metrics, /healthz and /readyz are served for Prometheus and for whoever supervises the process.
    """
    import asyncio

    from attributary.service.global_options import current_settings
    from attributary.service.logs import configure_logging
    from attributary.service.topics import check_topics

    settings = current_settings(given(metrics_host=metrics_host, metrics_port=metrics_port))
    configure_logging(settings.log_level)
    asyncio.run(check_topics(settings.connection, settings.topics))

    from attributary.service.serving import served
    from attributary.workers.stream.metrics import StreamMetrics
    from attributary.workers.stream.worker import run_worker

    with served(settings, StreamMetrics.build) as (metrics, signs):
        run_worker(
            settings.connection,
            settings.topics,
            settings.ingest,
            settings.merge,
            roles=frozenset(roles or _ROLES),
            metrics=metrics,
            signs=signs,
        )
