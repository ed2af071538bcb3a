"""``attributary register CARD.json``: declare a model."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("card", type=click.Path(path_type=Path))
@click.option(
    "--artefact",
    metavar="FILE|URL",
    help="The model itself, for explanations on request: a file, whose sha256 is taken now and must hold "
    "when it is loaded, or http(s)://HOST/v2/models/NAME of a model server.",
)
@click.option(
    "--categories",
    type=click.Choice(["one-hot", "codes"]),
    help="How the model takes a categorical: a 0/1 column per level, or the level's position "
    "[default: one-hot].",
)
@click.option(
    "--samples",
    type=click.IntRange(0, 10_000),
    help="Rows kept per pane with their raw values: what explanations are compared with.",
)
def register(card: Path, artefact: str | None, categories: str | None, samples: int | None) -> None:
    """Declare a model with the model card in the file CARD, as JSON.

    Models need no card: without one, features and outputs are learnt from the first rows. A card says
    what rows cannot: which numbers are categories, which features form a group, how windows are cut.
    The newest card of a model holds.

    Explanations on request need the model itself, and a card that names its features in the order that the
    model takes them. A pickle is refused: workers do not open what runs code (docs/models.md has the formats
    that they do). The options here win over what the card says.

    \b
    Examples:
      attributary register churn.json
      attributary register churn.json --artefact /srv/models/churn.ubj --samples 100

    \b
    A card:
      {"model": "churn", "outputs": ["margin"],
       "features": [{"name": "age"}, {"name": "plan", "kind": "categorical"}],
       "windows": [{"kind": "tumbling", "seconds": 60}, {"kind": "lifetime"}]}
    """
    import asyncio

    from attributary.service.artefacts import declared_artefact, loading_hints
    from attributary.service.command_options import given
    from attributary.service.global_options import current_settings
    from attributary.service.registry import read_card, register_card

    settings = current_settings()
    found = read_card(card)
    taken = declared_artefact(artefact, categories, found.artefact)
    found = found.model_copy(update=given(artefact=taken, samples=samples))
    done = asyncio.run(register_card(settings.connection, settings.topics, found))
    click.echo(
        f"{done}: {_count(len(found.features), 'feature')}, {_count(len(found.outputs), 'output')}, "
        f"{_count(len(found.windows), 'window')}"
    )
    if found.artefact is not None:
        for hint in loading_hints(found.artefact, settings.models.roots):
            click.echo(hint)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}" if number else f"no {what}s declared"
