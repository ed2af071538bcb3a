"""Reads one kind of message and prints each: a table for people, or a line of JSON."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from attributary.schemas.errors import ConfigurationError
from attributary.schemas.retry_marker import RetryMarker
from attributary.service.items import (
    DeadItem,
    Item,
    ResultItem,
    RunItem,
    human_printer,
    row_items,
)
from attributary.service.reach import require_broker
from attributary.service.reader import Reader
from attributary.service.settings import Settings
from attributary.service.subscribe import subscribe


@dataclass(frozen=True)
class Filter:
    """What to show; None: all of them."""

    kind: str
    model: str | None = None
    output: str | None = None
    window: str | None = None


def show(
    settings: Settings,
    wanted: Filter,
    *,
    count: int | None,
    top: int,
    from_beginning: bool,
    follow: bool,
    as_json: bool,
) -> None:
    """Print messages until there are ``count`` of them, or none left, or Ctrl-C.

    BrokerError: no broker, or no such topic. ConfigurationError: options that do not go together.
    """
    if wanted.kind not in ("attributions", "drift") and (wanted.window or wanted.output):
        raise ConfigurationError(f"--window and --output do not apply to --kind {wanted.kind}")
    require_broker(settings.connection)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    items = _items(settings, wanted, from_beginning or not follow, follow, top)
    if follow and sys.stderr.isatty():
        of = f" of {wanted.model}" if wanted.model else ""
        where = settings.connection.bootstrap
        print(f"waiting for {wanted.kind}{of} at {where}; Ctrl-C stops", file=sys.stderr)
    shown = asyncio.run(_print(items, count, as_json))
    if not shown:
        print(f"no {wanted.kind} there", file=sys.stderr)


async def _print(items: AsyncGenerator[Item, None], count: int | None, as_json: bool) -> int:
    printer = _json_line if as_json else human_printer()
    shown = 0
    async with contextlib.aclosing(items):
        async for item in items:
            printer(item)
            shown += 1
            if shown == count:
                break
    return shown


def _json_line(item: Item) -> None:
    print(item.as_json(), flush=True)


async def _items(
    settings: Settings, wanted: Filter, from_beginning: bool, follow: bool, top: int
) -> AsyncGenerator[Item, None]:
    topics, model = settings.topics, wanted.model
    if wanted.kind in ("attributions", "drift"):
        async with subscribe(
            settings.connection,
            model=model,
            output=wanted.output,
            kinds=["drift" if wanted.kind == "drift" else "attributions"],
            topics=topics,
            from_beginning=from_beginning,
            follow=follow,
        ) as messages:
            async for message in messages:
                if wanted.window in (None, message.window.kind):
                    yield ResultItem(message, top)
        return
    if wanted.kind == "unique-information":
        async with subscribe(
            settings.connection,
            model=model,
            kinds=["unique-information"],
            topics=topics,
            from_beginning=from_beginning,
            follow=follow,
        ) as runs:
            async for run in runs:
                yield RunItem(run, top)
        return
    dead = wanted.kind == "dead-letters"
    reader = Reader(
        settings.connection,
        [topics.dead_letters if dead else topics.rows],
        from_beginning=from_beginning,
        follow=follow,
    )
    await reader.start()
    try:
        while (records := await reader.read()) is not None:
            for record in records:
                if dead and RetryMarker.is_marker(record.headers):
                    continue
                for item in [DeadItem(record)] if dead else row_items(record):
                    if model in (None, item.model):
                        yield item
    finally:
        await reader.stop()
