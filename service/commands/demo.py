"""``attributary demo``: watch it explain a real model on real rows, on this machine."""

from __future__ import annotations

from pathlib import Path

import click

DATASETS = ("flights", "breast_cancer", "diabetes", "digits")


@click.command()
@click.option(
    "--dataset",
    type=click.Choice(DATASETS),
    default="flights",
    show_default=True,
    help="What is streamed, see above.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=5, max=86_400),
    metavar="N",
    help="End by itself after N seconds of streaming, the counting of the last rows included; "
    "loading comes on top. Without it the stream ends with its rows, after about a minute.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=1, max=1_000_000),
    metavar="ROWS",
    help="Rows per second [default: 4,800 for flights, 200 for them live, 1,000 for the others].",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0, max=2**32 - 1),
    default=0,
    show_default=True,
    help="Seed of the models and of the resampled rows: the same seed streams the same rows.",
)
@click.option(
    "--publish-only",
    is_flag=True,
    help="Only publish: broker, topics and workers run already, at --bootstrap.",
)
@click.option(
    "--live",
    is_flag=True,
    help="With --publish-only: flights without end, as if they left now, and requests for explanations.",
)
@click.option(
    "--models",
    type=click.Path(file_okay=False, path_type=Path),
    help="With --publish-only: a folder for the model's file, one that request workers may load from.",
)
@click.pass_context
def demo(
    ctx: click.Context,
    dataset: str,
    seconds: float | None,
    rate: float | None,
    seed: int,
    publish_only: bool,
    live: bool,
    models: Path | None,
) -> int:
    """Watch it explain a real model on real rows, on this machine.

    Starts a broker in memory and the workers, trains a model, publishes its predictions row by row as a
    serving process would, and shows what the workers say about them as it comes: which features move
    the output, with 95 % intervals, which way and by how much, and what drifts. At the end every row
    published must have been counted exactly once, and the streamed scores are compared with
    a computation over all rows at once. Nothing is left running.

    \b
    --dataset flights        New York's flights of 2013 with the weather: an XGBoost model of
                             January and February predicts arrival delays for the rest of the
                             year, while the seasons change under it
    --dataset breast_cancer  30 measures of a tumour, one margin; a drift at half time
    --dataset diabetes       10 measures, one of them a category; a drift at half time
    --dataset digits         64 pixels, ten outputs; the images darken at half time

    \b
    Examples:
      attributary demo
      attributary demo --seconds 30
      attributary demo --dataset digits --rate 3000
      attributary --bootstrap kafka:9092 demo --publish-only --rate 50
      attributary --bootstrap kafka:9092 demo --publish-only --live --models /models

    The exit code is 0 where the accounting is exact, else 1. Ctrl-C ends the stream early, in order.
    """
    from attributary.schemas.errors import ConfigurationError
    from attributary.service.global_options import GlobalOptions

    given = ctx.find_object(GlobalOptions)
    if given is not None and given.bootstrap is not None and not publish_only:
        raise ConfigurationError(
            "the demonstration brings its own broker: leave --bootstrap away, or add --publish-only "
            "where workers run on yours"
        )
    if models is not None and not publish_only:
        raise ConfigurationError("--models goes with --publish-only")
    if live and not (publish_only and dataset == "flights"):
        raise ConfigurationError("--live goes with --publish-only and the flights")
    from attributary.service.demo.run import DemoOptions, run_demo

    options = DemoOptions(dataset=dataset, seconds=seconds, rate=rate, seed=seed)
    if not publish_only:
        return run_demo(options)
    from attributary.service.demo.publish_only import publish_demo, publish_live

    return (publish_live if live else publish_demo)(options, models)
