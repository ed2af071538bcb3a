"""``attributary explain``: why did the model say this of that row?"""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--model", required=True, metavar="NAME", help="The model that is asked.")
@click.option(
    "--instance",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="The row or rows to explain: JSON, JSONL or CSV with the features' names; - reads standard input.",
)
@click.option(
    "--sample",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Explain N rows of the model's own stream instead.",
)
@click.option(
    "--method",
    type=click.Choice(["t-explainer", "ordshap", "mcir-m"]),
    default="t-explainer",
    show_default=True,
    help="t-explainer: what each feature contributes. ordshap: what values and positions in a sequence "
    "are worth. mcir-m: what features say about the output that others do not.",
)
@click.option("--output", metavar="NAME", help="One output, by name or position [default: all].")
@click.option(
    "--background",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Rows that contributions are against [default: samples of the stream]; of ordshap, rows that "
    "masked features are taken from, in place of --parameter mask=VALUE.",
)
@click.option(
    "--window",
    metavar="TIME",
    help="Take rows of the stream from this event time alone: 90s, 10m, 2h or 7d up to the newest, or "
    "FROM/TO in RFC 3339. mcir-m explains all rows of it.",
)
@click.option(
    "--rows",
    type=click.IntRange(1, 100_000),
    help="Most rows of the stream in the background [default: 100], for mcir-m in the window "
    "[default: 2000].",
)
@click.option(
    "--parameter",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter of the method, again for more.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of what is drawn."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1, max=86_400),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="After that the answer is of no use any more.",
)
@click.option("--high", is_flag=True, help="Before requests of normal priority.")
@click.option(
    "--top", type=click.IntRange(1), default=15, show_default=True, help="Features shown."
)
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE",
    help="Draw what ordshap answers (worth by position as a heat map, value against position), or "
    "mcir-m (scores with their intervals) into a file *.html or *.png; a PNG needs attributary[png].",
)
@click.option("--json", "as_json", is_flag=True, help="The answer as one line of JSON.")
def explain(
    model: str,
    instance: Path | None,
    sample: int | None,
    method: str,
    output: str | None,
    background: Path | None,
    window: str | None,
    rows: int | None,
    parameters: tuple[str, ...],
    seed: int,
    timeout: float,
    high: bool,
    top: int,
    save: Path | None,
    as_json: bool,
) -> int:
    """Ask a request worker why the model says what it says of a row.

    The row goes to the workers (attributary ondemand), which load the model that the card names, ask it about
    rows nearby, and answer with what every feature contributes to the output, in the output's units:
    base value + contributions + what is left over = the model's output. The base value is the model's mean
    output over a background: rows that you give, or samples of the stream (a card with "samples" above 0).
    ordshap takes the card's features as a sequence, in their order, and answers what each value is worth,
    and how much more one place later.

    \b
    Examples:
      attributary explain --model churn --instance row.json
      attributary explain --model churn --sample 1 --window 24h
      echo '{"age": 41, "plan": "pro"}' | attributary explain --model churn --instance -
      attributary explain --model churn --instance rows.csv --background train.csv --json
      attributary explain --model churn --method mcir-m --window 24h --rows 5000 --save churn.html
      attributary explain --model mood --sample 1 --method ordshap --parameter mask=[PAD] --save mood.png

    Exit code 0: there is a result; 1: the answer is an error, or came too late; 2: it could not be asked;
    130: taken back with Ctrl-C.
    """
    from attributary.service.asking import Question, ask
    from attributary.service.global_options import current_settings

    return ask(
        current_settings(),
        Question(
            model=model,
            instance=instance,
            sample=sample,
            method=method,
            output=output,
            background=background,
            window=window,
            rows=rows,
            parameters=parameters,
            seed=seed,
            timeout=timeout,
            high=high,
        ),
        top=top,
        as_json=as_json,
        save=save,
    )
