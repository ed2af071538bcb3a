"""The bridge as a process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from attributary.schemas.adapters.formats import Adapter
from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics
from attributary.workers.adapt.metrics import AdaptMetrics
from attributary.workers.adapt.options import AdaptOptions
from attributary.workers.adapt.service import AdaptService
from attributary.workers.stream.host import Hosted, Signs, host


def run_bridge(
    connection: Connection,
    topics: Topics,
    foreign: Sequence[str],
    group: str,
    adapter: Adapter,
    options: AdaptOptions,
    *,
    metrics: AdaptMetrics,
    signs: Signs,
    on_end: Callable[[AdaptService], None],
) -> None:
    """Run until SIGINT or SIGTERM, then hand over, tell ``on_end`` what was done, and return.

    Raises BrokerError where the broker or a topic is missing.
    """
    services: list[AdaptService] = []

    def build(loop: asyncio.AbstractEventLoop) -> Hosted:
        service = AdaptService(
            connection, topics, foreign, group, adapter, options, metrics, loop=loop
        )
        services.append(service)
        return Hosted([], [service])

    try:
        host("attributary-adapt", connection, build, signs)
    finally:
        for service in services:
            on_end(service)
