"""``attributary tail``: what comes out, message by message."""

from __future__ import annotations

import click


@click.command()
@click.option("--model", metavar="NAME", help="Of this model only.")
@click.option("--output", metavar="NAME", help="Of this output of the model only.")
@click.option(
    "--kind",
    type=click.Choice(["attributions", "drift", "unique-information", "dead-letters", "rows"]),
    default="attributions",
    show_default=True,
    help="What to show.",
)
@click.option(
    "--window",
    type=click.Choice(["tumbling", "hopping", "lifetime", "decayed"]),
    help="Attributions and drift of this kind of window only.",
)
@click.option("-n", "count", type=click.IntRange(1), help="Stop after so many.")
@click.option(
    "--top", type=click.IntRange(1), default=15, show_default=True, help="Features shown."
)
@click.option("--from-beginning", is_flag=True, help="Start with the oldest, not with the next.")
@click.option(
    "--follow/--no-follow", default=True, help="Wait for more, or stop at what there is now."
)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON for each.")
def tail(
    model: str | None,
    output: str | None,
    kind: str,
    window: str | None,
    count: int | None,
    top: int,
    from_beginning: bool,
    follow: bool,
    as_json: bool,
) -> None:
    """Show attributions, drift, scheduled runs of mcir-m, rejected messages or rows as they come.

    Of two messages for one model, output and window, the one that counts more rows replaces the other.

    \b
    Examples:
      attributary tail --model churn --window tumbling
      attributary tail --kind dead-letters --from-beginning --no-follow
      attributary tail --kind drift --json | jq '.output_drift.psi'
    """
    from attributary.service.global_options import current_settings
    from attributary.service.tailing import Filter, show

    show(
        current_settings(),
        Filter(kind, model, output, window),
        count=count,
        top=top,
        from_beginning=from_beginning,
        # Without --from-beginning there is nothing to stop at.
        follow=follow,
        as_json=as_json,
    )
