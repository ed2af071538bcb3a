"""One request worker: a process for one device."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from functools import partial

from attributary.schemas.card import ModelCard
from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics
from attributary.workers.ondemand.answering import Answering
from attributary.workers.ondemand.answers import AnswerLog
from attributary.workers.ondemand.cancellations import CancellationReader
from attributary.workers.ondemand.final_windows import FinalWindows
from attributary.workers.ondemand.metrics import OnDemandMetrics
from attributary.workers.ondemand.model_cache import ModelCache
from attributary.workers.ondemand.model_handle import ModelHandle
from attributary.workers.ondemand.options import OnDemandOptions
from attributary.workers.ondemand.request_service import RequestService
from attributary.workers.ondemand.samples import SampleReader
from attributary.workers.ondemand.scheduler import Scheduler
from attributary.workers.stream.control import ControlReader
from attributary.workers.stream.host import Hosted, Signs, host


def run_worker(
    connection: Connection,
    topics: Topics,
    options: OnDemandOptions,
    open_model: Callable[[ModelCard], ModelHandle],
    *,
    metrics: OnDemandMetrics,
    signs: Signs,
    device: str = "cpu",
) -> None:
    """Run until SIGINT or SIGTERM, then hand over and return. ``device``: "cpu" or "cuda:N".

    BrokerError: the broker or a topic is missing.
    """

    def build(loop: asyncio.AbstractEventLoop) -> Hosted:
        return build_worker(connection, topics, options, open_model, metrics, loop, device)

    host("attributary-ondemand", connection, build, signs)


def build_worker(
    connection: Connection,
    topics: Topics,
    options: OnDemandOptions,
    open_model: Callable[[ModelCard], ModelHandle],
    metrics: OnDemandMetrics,
    loop: asyncio.AbstractEventLoop,
    device: str = "cpu",
) -> Hosted:
    """Return the services of one worker; ``open_model`` opens the model of a card, from any thread."""
    worker = uuid.uuid4().hex
    control = ControlReader(connection, topics, loop=loop)
    answers = AnswerLog(connection, topics, worker, loop=loop)
    cancellations = CancellationReader(connection, topics, loop=loop)
    samples = SampleReader(connection, topics, control.catalogue, options.sample_rows, loop=loop)
    cache = ModelCache(open_model, options, metrics)
    for place in {"cpu", device}:
        metrics.device_memory.labels(place).set_function(partial(cache.memory, place))
    windows = FinalWindows(connection, topics, loop=loop)
    scheduler = Scheduler(topics, options, control.catalogue, answers, windows, metrics)

    def answering(partitions: int) -> Answering:
        return Answering(
            topics,
            options,
            control.catalogue,
            answers,
            samples,
            cache,
            metrics,
            answer_partitions=partitions,
            worker=worker,
            device=device,
        )

    requests = RequestService(
        connection,
        topics,
        options,
        answering,
        answers,
        cancellations,
        metrics,
        scheduler,
        worker,
        loop=loop,
    )
    return Hosted([control, answers, cancellations, samples], [requests])
