"""What fills the board: the results as they come, and now and then the ends of the topics."""

from __future__ import annotations

import asyncio

from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics
from attributary.service.log_extents import LogExtents
from attributary.service.subscribe import subscribe
from attributary.service.top.board import Board

# How many of the messages that are there already are read: they hold every busy model's newest windows.
BACKLOG = 1000


async def follow_results(
    board: Board, connection: Connection, topics: Topics, model: str | None, *, follow: bool
) -> None:
    """Feed results into the board: the newest that are there, and with ``follow`` those to come."""
    async with subscribe(
        connection,
        model=model,
        kinds=("attributions", "drift"),
        topics=topics,
        newest=BACKLOG,
        follow=follow,
    ) as messages:
        async for message in messages:
            board.add(message)
            board.skipped = messages.skipped
            await asyncio.sleep(0)  # a burst must not hold up the keys
        board.skipped = messages.skipped


def ends_reader(connection: Connection, topics: Topics) -> LogExtents:
    """Return what tells how far rows and dead letters go, and how far ingest has committed."""
    return LogExtents(connection, [topics.rows, topics.dead_letters], f"{topics.rows}-ingest")


async def refresh_ends(board: Board, topics: Topics, reader: LogExtents) -> None:
    """Write onto the board how far the topics go; BrokerError where that cannot be read."""
    found = await reader.refresh()
    rows = {f"{at.topic}/{at.partition}": e for at, e in found.items() if at.topic == topics.rows}
    board.rows_ends = {name: extent.end for name, extent in rows.items()}
    board.committed = {name: extent.end - extent.behind for name, extent in rows.items()}
    dead = [extent for at, extent in found.items() if at.topic == topics.dead_letters]
    board.dead_letters = sum(extent.end - extent.first for extent in dead)
