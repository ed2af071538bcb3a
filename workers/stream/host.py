"""Hosts services in a Faust app: one worker process from its start to an orderly end.

Faust carries the worker's lifecycle and timers. Its own consumer, agents and web server stay off: an agent
handles a few thousand messages a second, a consumer group cannot give every worker every card and
grid, and offsets must be committed after what they stand for is acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

import faust
from aiokafka.errors import KafkaError
from faust.app.base import BootStrategy
from mode import Service

from attributary.schemas.connection import Connection
from attributary.schemas.errors import AttributaryError, BrokerError
from attributary.workers.stream.group_service import GroupService

# A drain that a broker's absence holds up must not keep the process alive.
_STOP_SECONDS = 8.0
_BEAT_SECONDS = 1.0


class _Boot(BootStrategy):
    enable_kafka = False
    enable_web = False
    enable_sensors = False


class _App(faust.App):
    BootStrategy = _Boot

    def _create_directories(self) -> None:
        """Make none: tables would live there, and there are no tables."""


class Signs(NamedTuple):
    """What a worker calls so that others see how it is."""

    ready: Callable[[], None]
    #: Called each second that the event loop comes round.
    beat: Callable[[], None]


@dataclass(frozen=True)
class Hosted:
    """What a worker consists of, in the order of its start: readers first, then members of groups."""

    readers: list[Service]
    groups: list[GroupService]


def host(
    name: str,
    connection: Connection,
    build: Callable[[asyncio.AbstractEventLoop], Hosted],
    signs: Signs,
) -> None:
    """Run until SIGINT or SIGTERM, then hand over and return. ``signs.ready``: every group is joined.

    Raises BrokerError where the broker or a topic is missing, and whatever a service crashes with.
    """
    asyncio.run(_run(name, connection, build, signs))


async def _run(
    name: str,
    connection: Connection,
    build: Callable[[asyncio.AbstractEventLoop], Hosted],
    signs: Signs,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    app = _App(
        name,
        broker=[f"aiokafka://{address}" for address in connection.bootstrap.split(",")],
        autodiscover=False,
        loop=loop,
    )
    hosted = build(loop)
    beating = asyncio.create_task(_beat(signs.beat))
    services: list[Service] = [*hosted.readers, *hosted.groups]
    try:
        await app.start()
        try:
            for service in services:
                await app.add_runtime_dependency(service)
        except KafkaError as error:
            raise BrokerError(
                f"the broker at {connection.bootstrap} went away while the worker started: {error}"
            ) from error
        ended = [stop.wait, *(service._crashed.wait for service in [app, *services])]
        for group in hosted.groups:
            await _first(group.joined.wait(), *(event() for event in ended))
        if all(group.joined.is_set() for group in hosted.groups):
            # What is there now stays: the collector need not go through it for every batch of records.
            gc.freeze()
            signs.ready()
        await _first(*(event() for event in ended))
        _raise_crash([app, *services])
    finally:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(_stop_all(app, services), _STOP_SECONDS)
        beating.cancel()


async def _beat(beat: Callable[[], None]) -> None:
    while True:
        beat()
        await asyncio.sleep(_BEAT_SECONDS)


async def _first(*events: Awaitable[object]) -> None:
    """Return with the first of the events, and drop the others."""
    waiting = [asyncio.ensure_future(event) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


def _raise_crash(services: list[Service]) -> None:
    for service in services:
        if (reason := service.crash_reason) is not None:
            raise (
                reason
                if isinstance(reason, AttributaryError)
                else BrokerError(f"the worker stopped on an unexpected error: {reason!r}")
            ) from reason


async def _stop_all(app: faust.App, services: list[Service]) -> None:
    for service in reversed(services):
        if service.started:
            await service.stop()
    await app.stop()
