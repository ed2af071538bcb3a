"""The demonstration from start to end: broker, workers, model, stream, and what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rich.console import Console

from attributary.schemas.card import ModelCard
from attributary.schemas.errors import BrokerError
from attributary.service.artefacts import artefact_of
from attributary.service.demo.dataset import Dataset
from attributary.service.demo.display import console
from attributary.service.demo.flights import flights
from attributary.service.demo.report import report
from attributary.service.demo.session import Outcome, Session
from attributary.service.demo.small import small
from attributary.service.embedded import EmbeddedBroker, require_plain
from attributary.service.global_options import current_settings
from attributary.service.registry import send_card
from attributary.service.settings import Settings
from attributary.service.supervisor import READY, Supervisor
from attributary.service.topics import create_topics

INEXACT, INTERRUPTED = 1, 130

_WHOLE_SECONDS = 60.0
_SMALL_RATE = 1000.0
_READY_SECONDS = 60.0
_WORKER_SECONDS = 4.0
_LAST_LINES = 20
# Of --seconds, what is kept for counting the last rows.
_RESERVE_SECONDS, _RESERVE_SHARE = 5.0, 0.3
_PARTITIONS = 2
_STREAM, _REQUESTS = "worker", "request worker"
# Rows come a few hundred to a message and a year passes in a minute: blocks of a few thousand rows let
# the grid follow the seasons. Finer digests cost little on so few columns, and sharpen the centres.
_WORKER_SETTINGS = {
    "ATTRIBUTARY_INGEST__BLOCK_OFFSETS": "16",
    "ATTRIBUTARY_INGEST__COMPRESSION": "1000",
    "ATTRIBUTARY_LOG_LEVEL": "warning",
}


@dataclass(frozen=True)
class DemoOptions:
    """What the command was asked for; None: the default of the data set."""

    dataset: str
    seconds: float | None = None
    rate: float | None = None
    seed: int = 0


def run_demo(options: DemoOptions) -> int:
    """Run it and return the exit code: 0, or 1 where the accounting is not exact.

    ConfigurationError and BrokerError say in one line why it did not come that far.
    """
    require_plain(current_settings().connection)
    shown = console()
    broker = EmbeddedBroker()
    with contextlib.ExitStack() as stack:
        # First of all, so that a signal at any moment ends what has been started.
        workers = _Workers(shown)
        stack.enter_context(workers.supervisor)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="attributary-")))
        stack.callback(broker.stop)
        stack.callback(workers.stop)
        with step(shown, "starting a broker in memory and the workers"):
            broker.start()
            settings = _settings(broker)
            asyncio.run(create_topics(settings.connection, settings.topics, settings.layout))
            workers.start(settings, folder if options.dataset == "flights" else None)
        seconds = streaming_seconds(options)
        loading = step(shown, f"loading {options.dataset} and training its model")
        with interruptible(workers.supervisor), loading:
            dataset = load(options, seconds)
        with step(shown, "waiting for the workers"):
            if not workers.ready():
                return INTERRUPTED
            card = with_model(dataset, folder)
            asyncio.run(send_card(settings.connection, settings.topics, card))
        shown.print(f"\n{dataset.description}.")
        shown.print(f"Drift: {dataset.drift}.")
        shown.print(f"Broker {broker.bootstrap}, metrics {workers.metrics}")
        if card.artefact is not None:
            shown.print("Why one of these predictions? While it runs, in another shell:")
            shown.print(
                f"  attributary --bootstrap {broker.bootstrap} explain --model {card.model} --sample 1"
            )
        shown.print()
        outcome = _stream(options, settings, dataset, seconds, workers, shown)
    return 0 if report(dataset, outcome, shown) else INEXACT


def with_model(dataset: Dataset, folder: Path) -> ModelCard:
    """Return the card, with the model's file in ``folder`` where there is one."""
    if dataset.model is None:
        return dataset.card
    path = folder / f"{dataset.card.model}.ubj"
    part = path.with_suffix(".part")
    part.write_bytes(dataset.model)
    part.replace(path)  # a worker may be reading the one of an earlier run
    artefact = artefact_of(str(path)).model_copy(update={"categories": "codes"})
    return dataset.card.model_copy(update={"artefact": artefact})


def _settings(broker: EmbeddedBroker) -> Settings:
    return current_settings(
        {
            "connection": {"bootstrap": broker.bootstrap},
            "layout": {"rows_partitions": _PARTITIONS, "sketches_partitions": _PARTITIONS},
        }
    )


def streaming_seconds(options: DemoOptions) -> float | None:
    """Return how long to publish: without the time that counting the last rows may take."""
    if options.seconds is None:
        return None
    return options.seconds - min(_RESERVE_SECONDS, _RESERVE_SHARE * options.seconds)


def rate_of(options: DemoOptions, dataset: Dataset) -> float:
    """Return the rows a second to publish."""
    whole = len(dataset.rows) / _WHOLE_SECONDS
    return options.rate or (whole if options.dataset == "flights" else _SMALL_RATE)


def load(options: DemoOptions, seconds: float | None) -> Dataset:
    """Return the data set with its model's outputs, rows for ``seconds``."""
    if options.dataset == "flights":
        return flights(seed=options.seed)
    rows = round((options.rate or _SMALL_RATE) * (seconds or _WHOLE_SECONDS))
    return small(options.dataset, rows=max(rows, 1), seed=options.seed)


def _stream(
    options: DemoOptions,
    settings: Settings,
    dataset: Dataset,
    seconds: float | None,
    workers: _Workers,
    shown: Console,
) -> Outcome:
    session = Session(
        dataset,
        settings.connection,
        settings.topics,
        rate=rate_of(options, dataset),
        seconds=seconds,
        stopping=workers.supervisor.stopping.is_set,
        check=workers.check,
    )
    return asyncio.run(session.run(shown))


class _Workers:
    """The worker processes. What they write is kept for the case that one ends."""

    def __init__(self, shown: Console) -> None:
        self.metrics = ""
        self.supervisor = Supervisor(self._output)
        self._shown = shown
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)

    def start(self, settings: Settings, models: Path | None) -> None:
        """Start one worker for all that streams, and one for requests where there are ``models``."""
        common = [
            "attributary.service", "--bootstrap", settings.connection.bootstrap,
            "--prefix", settings.topic_prefix,
        ]  # fmt: skip
        served = ["--metrics-host", settings.metrics_host, "--metrics-port"]
        with _environment(_WORKER_SETTINGS):
            stream = [*common, "stream", *served, str(settings.metrics_port)]
            self.supervisor.start(_STREAM, stream)
            if models is not None:
                requests = [*common, "ondemand", "--model-root", str(models), *served, "0"]
                self.supervisor.start(_REQUESTS, requests)

    def ready(self) -> bool:
        """Wait for the workers; False on a signal. BrokerError where one ends or takes too long."""
        ready = self.supervisor.wait_ready(_READY_SECONDS)
        if self.supervisor.stopping.is_set():
            return False
        if ready:
            return True
        self.check()
        raise BrokerError(f"the worker is not ready after {_READY_SECONDS:g} s")

    def check(self) -> None:
        """Raise BrokerError where a worker has ended, KeyboardInterrupt on a second signal."""
        if self.supervisor.hurried.is_set():
            raise KeyboardInterrupt
        if (child := self.supervisor.dead()) is not None:
            child.drain(1.0)
            for line in self._lines:
                self._shown.print(line, markup=False)
            raise BrokerError(
                f"the {child.name} ended by itself (exit code {child.process.returncode}); "
                "its last lines are above"
            )

    def stop(self) -> None:
        """Stop the workers, in order where they answer."""
        for name in self.supervisor.stop(_WORKER_SECONDS):
            self._shown.print(f"{name} did not stop in time and was killed")

    def _output(self, name: str, line: str) -> None:
        self._lines.append(line)
        if name == _STREAM and line.startswith(READY):
            self.metrics = line.rpartition(" ")[2]


@contextlib.contextmanager
def step(shown: Console, what: str) -> Iterator[None]:
    """Say what goes on, and how long it took."""
    started = time.monotonic()
    shown.print(f"{what} ...", end="" if shown.is_terminal else "\n")
    try:
        yield
    except BaseException:
        if shown.is_terminal:
            shown.print()
        raise
    shown.print(f" {time.monotonic() - started:.1f} s")


@contextlib.contextmanager
def interruptible(supervisor: Supervisor) -> Iterator[None]:
    """Let SIGINT and SIGTERM raise KeyboardInterrupt: for work that asks nobody whether to go on."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        supervisor.stopping.set()
        raise KeyboardInterrupt

    # What is raised while a finaliser runs is lost: leave none to run.
    gc.collect()
    earlier = {
        number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        if supervisor.stopping.is_set():  # it came just before
            raise KeyboardInterrupt
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Give child processes these variables, where the environment does not say otherwise."""
    added = [name for name in values if name not in os.environ]
    os.environ.update({name: values[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
