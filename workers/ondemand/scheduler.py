"""Sends the scheduled requests of the models whose partition of requests this worker owns, and shows
their newest runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from attributary.schemas.card import ModelCard
from attributary.schemas.topics import Topics
from attributary.workers.ondemand.answers import AnswerLog
from attributary.workers.ondemand.final_windows import FinalWindows
from attributary.workers.ondemand.information_gauges import InformationGauges
from attributary.workers.ondemand.metrics import OnDemandMetrics
from attributary.workers.ondemand.options import OnDemandOptions
from attributary.workers.ondemand.schedule import (
    period_ms,
    request_partition,
    scheduled_record,
    scheduled_request,
)
from attributary.workers.ondemand.scheduled_runs import ScheduledRuns
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.producer import AcknowledgedProducer

_log = logging.getLogger(__name__)


class Scheduler:
    """What is due, from the cards, the clock, the newest final windows and the log of answers.

    It keeps nothing that the logs do not hold: whoever owns a partition next goes on.
    """

    def __init__(
        self,
        topics: Topics,
        options: OnDemandOptions,
        catalogue: ControlCatalogue,
        answers: AnswerLog,
        windows: FinalWindows,
        metrics: OnDemandMetrics,
    ) -> None:
        self.windows = windows
        self._topics = topics
        self._options = options
        self._catalogue = catalogue
        self._answers = answers
        self._sent_total = metrics.scheduled
        self._runs = ScheduledRuns()
        answers.on_final = self._runs.add
        self._gauges = InformationGauges(
            metrics, options.exported_features, options.series_per_model
        )
        self._sent: dict[str, int] = {}

    @property
    def wanted(self) -> bool:
        """Whether any card asks for scheduled runs."""
        return any(self._scheduled())

    def _scheduled(self) -> list[ModelCard]:
        cards = map(self._catalogue.card, self._catalogue.models)
        return [card for card in cards if card is not None and card.unique_information is not None]

    async def turn(
        self, owned: Collection[int], partitions: int, producer: AcknowledgedProducer
    ) -> None:
        """Send what is due of the models in the partitions that are owned, of so many."""
        mine = {
            card.model: card
            for card in self._scheduled()
            if request_partition(card.model, partitions) in owned
        }
        self._gauges.keep(mine)
        self._sent = {model: tick for model, tick in self._sent.items() if model in mine}
        for card in mine.values():
            try:
                await self._turn(card, request_partition(card.model, partitions), producer)
            except KafkaError as error:
                _log.warning("the scheduled run of %s is tried again soon: %s", card.model, error)

    async def _turn(self, card: ModelCard, partition: int, producer: AcknowledgedProducer) -> None:
        schedule = card.unique_information
        assert schedule is not None  # noqa: S101
        period = period_ms(schedule, self._options.schedule_seconds)
        tick = round(time.time() * 1000) // period * period
        place = TopicPartition(self._topics.requests, partition)
        # The run before says which neighbourhoods to keep, and whether there is anything new.
        await self._answers.know_since(place, tick - 2 * period)
        run = self._runs.newest(card.model)
        if run is not None:
            self._gauges.show(run)
        if self._sent.get(card.model, 0) >= tick or (run is not None and run.tick >= tick):
            return
        width = schedule.window_seconds
        window = self.windows.newest(card.model, None if width is None else round(width * 1000))
        if window is None:
            return
        before = None if run is None else run.result
        if before is not None and before.window is not None and before.window.end == window[1]:
            return
        request = scheduled_request(card, tick, window, before)
        if len(request.to_bytes()) > self._options.max_request_bytes:
            # So many and so long names that their neighbourhoods are found anew.
            request = scheduled_request(card, tick, window, None)
        await producer.send([scheduled_record(request, tick, period, self._topics, partition)])
        self._sent[card.model] = tick
        self._sent_total.labels(card.model).inc()
