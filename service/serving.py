"""The metrics of a process that works until it is stopped, and its word that it is ready."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import click
from prometheus_client import (
    CollectorRegistry,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from attributary.service.exposition import Exposition
from attributary.service.supervisor import READY
from attributary.workers.heap import keep_freed_memory
from attributary.workers.stream.host import Signs

if TYPE_CHECKING:
    from attributary.service.settings import Settings

Metrics = TypeVar("Metrics")


@contextmanager
def served(
    settings: Settings, build: Callable[[CollectorRegistry], Metrics], about: str = ""
) -> Iterator[tuple[Metrics, Signs]]:
    """Serve metrics while inside: give what ``build`` makes, and what the worker calls.

    ``about`` is said of it besides where its broker and its metrics are.
    """
    keep_freed_memory()
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    metrics = build(registry)
    with Exposition(registry, settings.metrics_host, settings.metrics_port) as exposition:

        def on_ready() -> None:
            exposition.ready()
            place = f"{READY} broker {settings.connection.bootstrap}"
            click.echo(" ".join(filter(None, (place, about, f"metrics {exposition.url}"))))

        yield metrics, Signs(on_ready, exposition.beat)
