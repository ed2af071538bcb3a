"""``attributary ondemand``: one request worker."""

from __future__ import annotations

import click

from attributary.service.command_options import given, metrics_options
from attributary.service.help_settings import help_settings_option


@click.command()
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    metavar="cpu|cuda:N",
    help="Where models compute. One process for each device.",
)
@click.option(
    "--mixed-precision",
    type=click.Choice(["off", "bfloat16", "float16"]),
    help="Torch's autocast: faster, with fewer digits [ATTRIBUTARY_MODELS__MIXED_PRECISION].",
)
@click.option(
    "--model-root",
    "roots",
    multiple=True,
    type=click.Path(),
    help="A folder that models may be loaded from, again for more [ATTRIBUTARY_MODELS__ROOTS].",
)
@metrics_options
@help_settings_option
def ondemand(
    device: str,
    mixed_precision: str | None,
    roots: tuple[str, ...],
    metrics_host: str | None,
    metrics_port: int | None,
) -> None:
    """Run one worker that explains predictions on request, until Ctrl-C or SIGTERM.

    Start one for each device, on any machines: they share the requests, and another one takes over where one
    dies. A model is loaded from the artefact that its card names (attributary register), which must lie in
    one of the folders that are allowed here, in a process of its own with limits.

    \b
    Examples:
      attributary ondemand --model-root /srv/models
      attributary ondemand --model-root /srv/models --device cuda:0 --mixed-precision bfloat16
      attributary explain --model churn --instance row.json
    """
    import asyncio

    from attributary.service.global_options import current_settings
    from attributary.service.logs import configure_logging
    from attributary.service.model_places import check_device, check_roots
    from attributary.service.topics import check_topics

    check_device(device)
    models = given(mixed_precision=mixed_precision, roots=roots or None)
    settings = current_settings(
        given(metrics_host=metrics_host, metrics_port=metrics_port, models=models or None)
    )
    check_roots(settings.models.roots)
    configure_logging(settings.log_level)
    asyncio.run(check_topics(settings.connection, settings.topics))

    from attributary.schemas.card import ModelCard
    from attributary.service.serving import served
    from attributary.workers.ondemand.metrics import OnDemandMetrics
    from attributary.workers.ondemand.model_handle import ModelHandle
    from attributary.workers.ondemand.models import open_model
    from attributary.workers.ondemand.worker import run_worker

    def opened(card: ModelCard) -> ModelHandle:
        return open_model(card, settings.models, device)

    with served(settings, OnDemandMetrics.build, f"device {device}") as (metrics, signs):
        run_worker(
            settings.connection,
            settings.topics,
            settings.ondemand,
            opened,
            metrics=metrics,
            signs=signs,
            device=device,
        )
