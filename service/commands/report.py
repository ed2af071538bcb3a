"""``attributary report``: one HTML page about a model."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--model", required=True, metavar="NAME", help="The model to report on.")
@click.option(
    "--save",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where the page goes; replaced where it exists. -: the standard output.",
)
@click.option(
    "--output", "outputs", multiple=True, metavar="NAME", help="This output, or again for more."
)
@click.option(
    "--window",
    type=click.Choice(["tumbling", "hopping", "decayed", "lifetime"]),
    help="Windows of this kind; else the newest final one, whatever its kind.",
)
@click.option(
    "--top",
    type=click.IntRange(1, 500),
    default=20,
    show_default=True,
    help="Features in a figure, and dependence profiles.",
)
def report(model: str, save: Path, outputs: tuple[str, ...], window: str | None, top: int) -> None:
    """Write one HTML page about a model: what moves it, how surely, what drifts, what it rests on.

    Per output it takes the newest final window from the results topics: scores with error bars,
    directions, effects, groups, dependence profiles; drift against the baseline and the window before,
    with critical values; the accounting of rows and offsets; and how to read all that. The page is one
    file, loads nothing, runs no script, and follows the reader's light or dark setting: it can be
    mailed, archived or printed.

    \b
    Examples:
      attributary report --model churn --save churn.html
      attributary report --model churn --window lifetime --output score --save lifetime.html
    """
    import asyncio
    import logging
    import time

    from attributary.schemas.errors import ConfigurationError
    from attributary.service.global_options import current_settings
    from attributary.service.reach import require_broker
    from attributary.service.report.collect import chapters, collect
    from attributary.service.report.page import page

    settings = current_settings()
    require_broker(settings.connection)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    board = asyncio.run(collect(settings.connection, settings.topics, model))
    found = chapters(board, window=window, outputs=outputs)
    document = page(model, found, made_at=round(time.time() * 1000), top=top)
    if str(save) == "-":
        click.echo(document, nl=False)
        return
    try:
        save.write_text(document, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"--save {save}: {error.strerror}") from None
    count = len(found)
    click.echo(f"{count} output{'' if count == 1 else 's'} of {model} in {save}")
