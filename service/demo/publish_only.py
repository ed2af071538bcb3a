"""The demonstration's rows on a broker whose workers run already, once or without end."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rich.console import Console

from attributary.schemas.card import ModelCard
from attributary.service.client import Publisher
from attributary.service.demo.dataset import Dataset
from attributary.service.demo.display import console
from attributary.service.demo.flights import LIVE_RATE, live_flights
from attributary.service.demo.live import Live, promise
from attributary.service.demo.run import (
    INTERRUPTED,
    DemoOptions,
    interruptible,
    load,
    rate_of,
    step,
    with_model,
)
from attributary.service.demo.stream import RowStream
from attributary.service.global_options import current_settings
from attributary.service.registry import send_card
from attributary.service.settings import Settings
from attributary.service.supervisor import Supervisor
from attributary.service.topics import check_topics

_FLUSH_SECONDS = 10.0


def publish_demo(options: DemoOptions, models: Path | None) -> int:
    """Register the model, publish its rows, and return the exit code."""
    settings, shown = _begin()
    with Supervisor(lambda _name, _line: None) as supervisor:
        loading = step(shown, f"loading {options.dataset} and training its model")
        with interruptible(supervisor), loading:
            dataset = load(options, options.seconds)
        card = _card(dataset, models)
        rate = rate_of(options, dataset)
        shown.print(f"publishing {len(dataset.rows):,} rows of {card.model}, {rate:g} a second")
        published = asyncio.run(
            _publish(settings, dataset, card, rate, options.seconds, supervisor)
        )
    shown.print(f"published {published:,} rows")
    return INTERRUPTED if supervisor.hurried.is_set() else 0


def publish_live(options: DemoOptions, models: Path | None) -> int:
    """Register the model, publish its rows until a signal comes, and return the exit code."""
    settings, shown = _begin()
    with Supervisor(lambda _name, _line: None) as supervisor:
        with interruptible(supervisor), step(shown, "loading flights and training their model"):
            dataset = live_flights(seed=options.seed)
        card = _card(dataset, models)
        rate = options.rate or LIVE_RATE
        for line in promise(dataset, rate, card.artefact is not None):
            shown.print(line, soft_wrap=True)

        def say(line: str) -> None:
            shown.print(line, markup=False, soft_wrap=True)

        live = Live(dataset, card, rate=rate, stopping=supervisor.stopping.is_set, say=say)
        published, lost = asyncio.run(live.run(settings, options.seconds))
    say(f"published {published:,} rows; {live.answered:,} requests answered")
    if lost:
        say(f"rows never acknowledged by the broker: {lost:,}")
    return INTERRUPTED if supervisor.hurried.is_set() else int(lost > 0)


def _begin() -> tuple[Settings, Console]:
    settings = current_settings()
    asyncio.run(check_topics(settings.connection, settings.topics))
    return settings, console()


def _card(dataset: Dataset, models: Path | None) -> ModelCard:
    if models is None:
        return dataset.card
    models.mkdir(parents=True, exist_ok=True)
    return with_model(dataset, models)


async def _publish(
    settings: Settings,
    dataset: Dataset,
    card: ModelCard,
    rate: float,
    seconds: float | None,
    supervisor: Supervisor,
) -> int:
    await send_card(settings.connection, settings.topics, card)
    async with Publisher(
        settings.connection,
        model=card.model,
        topic=settings.topics.rows,
        output_names=card.outputs,
    ) as publisher:
        stream = RowStream(dataset, publisher, rate=rate)
        await stream.run(supervisor.stopping.is_set, seconds)
        await publisher.aflush(_FLUSH_SECONDS)
        return publisher.published
