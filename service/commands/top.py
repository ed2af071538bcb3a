"""``attributary top``: what moves the models, live in the terminal."""

from __future__ import annotations

import click


@click.command()
@click.option("--model", metavar="NAME", help="Of this model only.")
@click.option("--output", metavar="NAME", help="This output of the models; else the first, and o.")
@click.option(
    "--window",
    type=click.Choice(["tumbling", "hopping", "decayed", "lifetime"]),
    help="Windows of this kind only; else the shortest, and w.",
)
@click.option(
    "--top",
    type=click.IntRange(1),
    show_default="as many as there is room for; 12 where there is no end of it",
    help="Most features of a model.",
)
@click.option(
    "--every",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often it is drawn; without a terminal at most every 5 s.",
)
@click.option("--once", is_flag=True, help="Print what is there now, and end.")
def top(
    model: str | None,
    output: str | None,
    window: str | None,
    top: int | None,
    every: float,
    once: bool,
) -> None:
    """Watch which features move the models, and whether the pipeline keeps up.

    Of each model the newest final window: the leading features by the lower end of their strength
    |2·CIR - 1|, which the bar shows (solid: sure, shaded: within the error), the direction (▲ moves
    with the output, ▼ against it, · not sure), the co-movement ratio CIR with its 95 %
    interval, the effect (mean output in the feature's upper quarter minus that in its lower quarter),
    and the feature's drift: its PSI, ! from 0.1, !! from 0.25 where chance does not explain it, KS where the
    Kolmogorov–Smirnov distance exceeds its critical value. A narrow terminal shows fewer columns.

    Above them: rows a second, how far the watermark is behind the clock (rows of the past are),
    what was rejected and why, late rows and gaps. The first line begins with what is wrong: a broker
    that does not answer, offsets lost, dead letters. Lag is what lies in the rows topic and is not
    counted yet, as the manifests tell; rows that are counted and in no result yet are told beside it.

    Of one --model all results are read. Of all models the newest, and before them those of models
    that are not among these, for some seconds; a model without any is named.

    \b
    Keys: w  the next window        o  the next output
          m  one model, the next    a  all models        q  quit

    \b
    Examples:
      attributary top
      attributary top --model churn --window hopping
      attributary top --once > frame.txt

    Exit code 2, with --once also where there is no such model, output or window.
    """
    from attributary.service.global_options import current_settings
    from attributary.service.top.choice import Choice
    from attributary.service.top.run import show_top

    choice = Choice(window=window, output=output, features=top)
    show_top(current_settings(), model, choice, once=once, seconds=every)
