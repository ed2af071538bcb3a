"""``attributary register CARD.json``: declare a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from attributary.schemas.card import ModelCard


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
    model takes them. The options here win over what the card says.

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

    from attributary.schemas.card import ModelCard
    from attributary.schemas.errors import ConfigurationError, RejectedError
    from attributary.service.global_options import current_settings
    from attributary.service.registry import find_card, send_card
    from attributary.service.topics import check_topics

    settings = current_settings()
    try:
        found = ModelCard.from_bytes(card.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{card}: {error.strerror}") from None
    except RejectedError as error:
        raise ConfigurationError(f"{card}: {error}") from None
    found = _completed(found, artefact, categories, samples)

    async def send() -> bool:
        await check_topics(settings.connection, settings.topics, roles=["models"])
        earlier = await find_card(settings.connection, settings.topics, found.model)
        await send_card(settings.connection, settings.topics, found)
        return earlier is not None

    replaced = asyncio.run(send())
    click.echo(
        f"{'replaced the card of' if replaced else 'registered'} {found.model}: "
        f"{_count(len(found.features), 'feature')}, {_count(len(found.outputs), 'output')}, "
        f"{_count(len(found.windows), 'window')}"
    )


def _completed(
    card: ModelCard, artefact: str | None, categories: str | None, samples: int | None
) -> ModelCard:
    """Return the card with what the options say."""
    from attributary.schemas.errors import ConfigurationError
    from attributary.service.artefacts import artefact_of

    added: dict[str, Any] = {} if samples is None else {"samples": samples}
    if artefact is not None:
        added["artefact"] = artefact_of(artefact, card.artefact)
    if categories is not None:
        declared = added.get("artefact", card.artefact)
        if declared is None:
            raise ConfigurationError(
                "--categories says how a model takes them: name it, --artefact"
            )
        added["artefact"] = declared.model_copy(update={"categories": categories})
    return card.model_copy(update=added)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}" if number else f"no {what}s declared"
