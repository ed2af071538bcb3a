"""Flights without end on a broker whose workers run already: rows of now, and questions about them.

What a production model and its people would bring: predictions at a steady pace, a request for an explanation
every few seconds, and a card that asks for scheduled runs.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from datetime import datetime, timezone

import numpy as np

from attributary.schemas.card import ModelCard
from attributary.schemas.errors import AttributaryError
from attributary.schemas.request import Instance, StreamWindow, Value
from attributary.service.client import Explainer, Publisher
from attributary.service.demo.dataset import Dataset
from attributary.service.demo.flights import LIVE_HOP, LIVE_WINDOW
from attributary.service.demo.stream import RowStream
from attributary.service.registry import send_card
from attributary.service.settings import Settings

ASK_SECONDS = 3.0
TELL_SECONDS = 60.0
# Workers take the card in before the first row, and have sampled rows before the first request.
_CARD_SECONDS, _SAMPLES_SECONDS = 2.0, 10.0
_ANSWER_SECONDS = 30.0
_BACKGROUND_ROWS = 100
_FLUSH_SECONDS = 5.0


class Live:
    """Publishes ``dataset`` round and round until ``stopping()``, and asks about its rows.

    ``card`` without an artefact: nothing can be explained, so nothing is asked. ``say`` gets
    what a person should know.
    """

    def __init__(
        self,
        dataset: Dataset,
        card: ModelCard,
        *,
        rate: float,
        stopping: Callable[[], bool],
        say: Callable[[str], None],
    ) -> None:
        self.answered = 0
        self.unanswered = 0
        self._dataset = dataset
        self._card = card
        self._rate = rate
        self._stopping = stopping
        self._say = say
        self._failing = False

    async def run(self, settings: Settings, seconds: float | None) -> tuple[int, int]:
        """Run until the signal, or for ``seconds``; return the rows published, and those that were not."""
        await send_card(settings.connection, settings.topics, self._card)
        await asyncio.sleep(_CARD_SECONDS)
        async with Publisher(
            settings.connection,
            model=self._card.model,
            topic=settings.topics.rows,
            output_names=self._card.outputs,
        ) as publisher:
            stream = RowStream(self._dataset, publisher, rate=self._rate, live=True)
            beside = [asyncio.create_task(self._tell(stream, publisher))]
            if self._card.artefact is not None:
                beside.append(asyncio.create_task(self._ask(settings, stream)))

            def over() -> bool:
                return self._stopping() or any(task.done() for task in beside)

            try:
                await stream.run(over, seconds)
            finally:
                for task in beside:
                    task.cancel()
                ended = await asyncio.gather(*beside, return_exceptions=True)
            await publisher.aflush(_FLUSH_SECONDS)
            for problem in ended:
                if isinstance(problem, Exception):
                    raise problem
            return publisher.published, stream.rows - publisher.published

    async def _ask(self, settings: Settings, stream: RowStream) -> None:
        await asyncio.sleep(_SAMPLES_SECONDS)
        explainer = Explainer(settings.connection, model=self._card.model, topics=settings.topics)
        try:
            while True:
                due = time.monotonic() + ASK_SECONDS
                await self._one(explainer, self.instance(stream.rows - 1))
                await asyncio.sleep(max(0.0, due - time.monotonic()))
        finally:
            await explainer.aclose()

    async def _one(self, explainer: Explainer, instance: Instance) -> None:
        background = StreamWindow(seconds=LIVE_WINDOW, rows=_BACKGROUND_ROWS)
        try:
            answer = await explainer.arequest(
                [instance], background=background, timeout=_ANSWER_SECONDS
            )
        except AttributaryError as error:
            problem: str | None = str(error)
        else:
            problem = None if answer.outcome == "result" else answer.outcome
            if answer.error is not None:
                problem = f"{answer.error.code.value}: {answer.error.message}"
        self.answered += problem is None
        self.unanswered += problem is not None
        if problem is not None and not self._failing:
            self._say(f"a request was not answered: {problem}")
        self._failing = problem is not None

    def instance(self, row: int) -> Instance:
        """Return a row that was sent, as a request names it."""
        at = row % len(self._dataset.rows)
        features: dict[str, Value] = {}
        for name, values in self._dataset.rows.features.items():
            value = values[at]
            if isinstance(value, str):
                features[name] = value
            else:
                features[name] = float(value) if math.isfinite(value) else None
        return Instance(features=features)

    async def _tell(self, stream: RowStream, publisher: Publisher) -> None:
        while True:
            await asyncio.sleep(TELL_SECONDS)
            season = self._dataset.rows.times[(stream.rows - 1) % len(self._dataset.rows)]
            day = datetime.fromtimestamp(int(season) / 1000, timezone.utc)
            self._say(
                f"{publisher.published:,} rows published, now the flights of {day:%-d %B}; "
                f"{self.answered:,} requests answered, {self.unanswered:,} not"
            )


def promise(dataset: Dataset, rate: float, explained: bool) -> list[str]:
    """Return what a live publisher says that it is about to do."""
    rows = dataset.rows
    days = np.ptp(rows.times) / 86_400_000
    seconds = len(rows) / rate
    return [
        f"publishing {dataset.description}",
        f"{rate:g} rows a second, event time is now: a day of flights takes {seconds / days:.1f} s, the year "
        f"{seconds / 60:.0f} min; windows of {LIVE_WINDOW:g} s every {LIVE_HOP:g} s, compared with the "
        "training months",
        f"asking for an explanation every {ASK_SECONDS:g} s"
        if explained
        else "asking for no explanations: without --models no worker can open the model",
    ]
