"""``attributary register CARD.json``: declare a model."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("card", type=click.Path(path_type=Path))
def register(card: Path) -> None:
    """Declare a model with the model card in the file CARD, as JSON.

    Models need no card: without one, features and outputs are learnt from the first rows. A card says
    what rows cannot: which numbers are categories, which features form a group, how windows are cut.
    The newest card of a model holds.

    \b
    Example:
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


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}" if number else f"no {what}s declared"
