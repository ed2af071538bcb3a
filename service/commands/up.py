"""``attributary up``: a broker in memory, the topics and the workers, in one go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from attributary.service.help_settings import help_settings_option

if TYPE_CHECKING:
    from attributary.service.embedded import EmbeddedBroker


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9092,
    show_default=True,
    help="Port of the broker, on this machine alone; 0 takes a free one.",
)
@click.option(
    "--bootstrap", metavar="HOST:PORT", help="Use the broker that runs there, and start none."
)
@click.option(
    "--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Worker processes."
)
@click.option(
    "--model-root",
    "roots",
    multiple=True,
    type=click.Path(),
    help="A folder with models: starts a worker that explains them on request (attributary explain).",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Port of the first worker's /metrics, and upwards from it; 0 takes free ones.",
)
@help_settings_option
def up(
    port: int,
    bootstrap: str | None,
    workers: int,
    roots: tuple[str, ...],
    metrics_port: int | None,
) -> None:
    """Start a broker in memory, the topics and the workers, until Ctrl-C or SIGTERM.

    Then `attributary publish` and `attributary tail` in another shell need no address. The broker holds its
    records in memory and they end with it: to keep them, run Kafka and give its address with --bootstrap.
    """
    from contextlib import ExitStack

    from attributary.service.embedded import EmbeddedBroker, require_plain
    from attributary.service.global_options import GlobalOptions, current_settings
    from attributary.service.model_places import check_roots
    from attributary.service.pipeline import Pipeline

    options = click.get_current_context().find_object(GlobalOptions) or GlobalOptions()
    # What is wrong with them is said before anything starts.
    given = current_settings({"models": {"roots": roots}} if roots else None)
    check_roots(given.models.roots)
    with ExitStack() as stack:
        broker: EmbeddedBroker | None = None
        address = bootstrap or options.bootstrap
        if address is None:
            require_plain(given.connection)
            broker = stack.enter_context(EmbeddedBroker(port))
            address = broker.bootstrap
        overrides: dict[str, Any] = {"connection": {"bootstrap": address}}
        if roots:
            overrides["models"] = {"roots": roots}
        settings = current_settings(overrides)
        if metrics_port is not None:
            settings = settings.model_copy(update={"metrics_port": metrics_port})
        Pipeline(settings, options.config, workers, broker, _say).run()


def _say(what: str, text: str) -> None:
    click.echo(f"{what:<9} {text}")
