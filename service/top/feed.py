"""What fills the board: results, cards, manifests, and the ends of the topics; all again where the broker was
away."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from attributary.schemas.connection import Connection
from attributary.schemas.errors import BrokerError
from attributary.schemas.topics import Topics
from attributary.service.accounting import AccountingReader
from attributary.service.log_extents import Extent, LogExtents
from attributary.service.reach import require_broker
from attributary.service.reader import Reader
from attributary.service.top.board import Board
from attributary.service.top.results import Results

_EVERY_SECONDS = 1.0
# How long the broker may take to answer, and how long it may take at first.
_PATIENCE_SECONDS, _FIRST_SECONDS = 3.0, 15.0
# How long one frame waits for all manifests, of which there may be a week's.
_MANIFESTS_SECONDS = 30.0
# Manifests cost time to add up: so many times longer than that they rest, up to a limit.
_REST, _REST_SECONDS = 5.0, 15.0


class Extents(Protocol):
    """What tells how far topics go."""

    async def refresh(self) -> Mapping[TopicPartition, Extent]:
        """Return the extents as they are now."""


class SilentError(BrokerError):
    """The broker does not answer."""


class Feed:
    """Fills a board: ``fill`` with what is there now, ``follow`` with what comes."""

    def __init__(self, board: Board, connection: Connection, topics: Topics) -> None:
        self._board = board
        self._connection = connection
        self._topics = topics
        self._accounted = asyncio.Event()

    async def fill(self) -> None:
        """Read what is there now; BrokerError where it cannot be read."""
        board, results = self._board, self._results()
        async with self._ends() as ends:
            await self._read_cards(follow=False)
            await results.read_newest()
            accounting = asyncio.create_task(self._account())
            try:
                await self._await_manifests()
            finally:
                await _end(accounting)
            await refresh_ends(board, self._topics, ends, _FIRST_SECONDS)
            await results.read_older()

    async def follow(self) -> None:
        """Keep the board up to date for ever; BrokerError where the broker has never answered."""
        await keep_trying(self._board, self._session)

    async def _session(self) -> None:
        await _require_answer(self._connection)
        self._accounted.clear()
        async with self._ends() as ends:
            await _together(
                self._watch(ends),
                self._account(),
                self._read_cards(follow=True),
                self._read_results(),
            )

    def _ends(self) -> LogExtents:
        return LogExtents(self._connection, [self._topics.rows, self._topics.dead_letters], None)

    def _results(self) -> Results:
        return Results(self._board, self._connection, self._topics)

    async def _watch(self, ends: LogExtents) -> None:
        board = self._board
        while True:
            patience = _FIRST_SECONDS if board.answered is None else _PATIENCE_SECONDS
            await refresh_ends(board, self._topics, ends, patience)
            await asyncio.sleep(_EVERY_SECONDS)

    async def _account(self) -> None:
        """Add up the manifests; nothing is known of them where they may not be read."""
        while True:
            try:
                async with AccountingReader(
                    self._connection, self._topics, partition=None
                ) as reader:
                    while True:
                        started = time.monotonic()
                        self._board.accounting = await reader.refresh()
                        self._accounted.set()
                        spent = time.monotonic() - started
                        await asyncio.sleep(max(_EVERY_SECONDS, min(_REST * spent, _REST_SECONDS)))
            except (BrokerError, KafkaError):
                self._board.accounting = None
                self._accounted.set()
                await asyncio.sleep(_REST_SECONDS)

    async def _read_cards(self, *, follow: bool) -> None:
        reader = Reader(self._connection, [self._topics.models], from_beginning=True, follow=follow)
        await reader.start()
        found = self._board.registered = set()
        try:
            while (records := await reader.read()) is not None:
                for record in records:
                    name = (record.key or b"").decode("utf-8", "replace")
                    (found.discard if record.value is None else found.add)(name)
        finally:
            await reader.stop()

    async def _read_results(self) -> None:
        results = self._results()
        await results.read_newest()
        await _together(results.follow(), self._read_older(results))

    async def _read_older(self, results: Results) -> None:
        await self._await_manifests()  # they name the models that have no card
        await results.read_older()

    async def _await_manifests(self) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._accounted.wait(), _MANIFESTS_SECONDS)


async def refresh_ends(board: Board, topics: Topics, reader: Extents, patience: float) -> None:
    """Write onto the board how many dead letters there are; SilentError where the broker takes longer than
    ``patience`` seconds to tell, BrokerError where it does not tell."""
    try:
        found = await asyncio.wait_for(reader.refresh(), patience)
    except asyncio.TimeoutError:
        raise SilentError(
            f"the broker at {board.broker} has not answered for {patience:g} s"
        ) from None
    dead = [extent for at, extent in found.items() if at.topic == topics.dead_letters]
    board.dead_letters = sum(extent.end - extent.first for extent in dead)
    board.answered, board.trouble = round(time.time() * 1000), None


async def keep_trying(board: Board, session: Callable[[], Awaitable[None]]) -> None:
    """Run sessions for ever: where one fails, the board tells so until another one has an answer.

    BrokerError where the broker has never answered: then its address may be wrong, or a topic missing.
    """
    while True:
        try:
            await session()
        except (BrokerError, KafkaError) as error:
            if board.answered is None:
                raise error if isinstance(error, BrokerError) else BrokerError(str(error)) from None
            board.trouble = "" if isinstance(error, SilentError) else str(error)
        await asyncio.sleep(_EVERY_SECONDS)


async def _require_answer(connection: Connection) -> None:
    """Ask before clients do: they would try for long, and cannot be stopped well meanwhile."""
    try:
        await asyncio.to_thread(require_broker, connection, _PATIENCE_SECONDS)
    except BrokerError as error:
        raise SilentError(str(error)) from None


async def _together(*parts: Coroutine[Any, Any, None]) -> None:
    """Run the parts until all are done or one fails, whose error is raised once the others are stopped."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.cancelled():  # by aiokafka, as it closes
                raise BrokerError("reading was cut off")
            if task.done():
                task.result()
    finally:
        await _end(*tasks)


async def _end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
