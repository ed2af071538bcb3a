"""The results for the board: the newest, then those before them where they are needed, and those to come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager

from aiokafka import ConsumerRecord, TopicPartition

from attributary.schemas.attribution import WindowAttribution, WindowDrift
from attributary.schemas.connection import Connection
from attributary.schemas.errors import BrokerError, RejectedError
from attributary.schemas.topics import Topics
from attributary.schemas.unique_information import is_run
from attributary.service.model_board import ModelBoard
from attributary.service.reader import Reader
from attributary.service.subscription import Result
from attributary.service.top.board import Board

# How many of each partition's newest messages are read at once: every busy model's newest windows.
BACKLOG = 1000
# Each step back is so many times as long as the one before.
_LONGER = 4
# How long the models that have no result among them are looked for further back.
_LOOK_SECONDS = 10.0


class Results:
    """Reads results into the board: ``read_newest``, then ``read_older`` and ``follow``, in any order."""

    def __init__(self, board: Board, connection: Connection, topics: Topics) -> None:
        self._board = board
        self._connection = connection
        self._decoders: dict[str, Callable[[bytes | None], Result]] = {
            topics.attributions: WindowAttribution.from_bytes,
            topics.drift: WindowDrift.from_bytes,
        }
        self._ends: Mapping[TopicPartition, int] = {}
        self._oldest: dict[TopicPartition, int] = {}
        self._firsts: Mapping[TopicPartition, int] = {}

    async def read_newest(self) -> None:
        """Read the newest results; they take the place of the board's earlier ones once they are read."""
        board = self._board
        models: dict[str, ModelBoard] = {}
        if not board.models:
            board.models = models
        board.named, board.skipped = set(), 0
        board.caught_up = board.complete = False
        async with self._reading(follow=False, newest=BACKLOG) as reader:
            self._firsts = reader.firsts
            self._oldest = {
                at: max(self._firsts[at], end - BACKLOG) for at, end in reader.ends.items()
            }
            while (records := await reader.read()) is not None:
                await self._take(records, models)
            self._ends = reader.ends
        board.models, board.caught_up = models, True
        board.complete = self._oldest == self._firsts

    async def read_older(self) -> None:
        """Read on backwards: of the one model that is wanted everything; of all models those that no result
        was seen of, as far back as some seconds reach."""
        board = self._board
        total = sum(self._oldest[at] - first for at, first in self._firsts.items())
        deadline = time.monotonic() + _LOOK_SECONDS
        size = BACKLOG
        try:
            while self._oldest != self._firsts:
                if board.model is None and (not board.quiet or time.monotonic() > deadline):
                    return
                seen = () if board.model is not None else tuple(board.models)
                size *= _LONGER
                ends = self._oldest
                starts = {at: max(self._firsts[at], end - size) for at, end in ends.items()}
                left = sum(starts[at] - first for at, first in self._firsts.items())
                async with self._reading(follow=False, start_at=starts, upto=ends) as reader:
                    read = total - left - sum(ends[at] - start for at, start in starts.items())
                    while (records := await reader.read()) is not None:
                        read += len(records)
                        board.older = min(1.0, read / total)
                        await self._take(records, board.models, seen)
                        if board.model is None and time.monotonic() > deadline:
                            return
                self._oldest = starts
            board.complete = True
        finally:
            board.older = None

    async def follow(self) -> None:
        """Read what comes after the newest ones; BrokerError where that ends."""
        async with self._reading(follow=True, start_at=self._ends) as reader:
            while (records := await reader.read()) is not None:
                await self._take(records, self._board.models)
        raise BrokerError("the results cannot be followed any more")

    @asynccontextmanager
    async def _reading(
        self,
        *,
        follow: bool,
        start_at: Mapping[TopicPartition, int] | None = None,
        upto: Mapping[TopicPartition, int] | None = None,
        newest: int = 0,
    ) -> AsyncIterator[Reader]:
        reader = Reader(
            self._connection,
            tuple(self._decoders),
            follow=follow,
            start_at=start_at,
            upto=upto,
            newest=newest,
        )
        await reader.start()
        try:
            yield reader
        finally:
            await reader.stop()

    async def _take(
        self,
        records: list[ConsumerRecord],
        models: dict[str, ModelBoard],
        seen: Collection[str] = (),
    ) -> None:
        """Add what is wanted and of no model that is ``seen``. The key tells, so that others' messages need
        not be decoded."""
        board = self._board
        for record in records:
            if is_run(record.headers):
                continue
            name = None if record.key is None else record.key.decode("utf-8", "replace")
            if name is not None:
                board.named.add(name)
                if name in seen or not board.wants(name):
                    continue
            try:
                message = self._decoders[record.topic](record.value)
            except RejectedError:
                board.skipped += 1
                continue
            board.named.add(message.model)
            if board.wants(message.model) and message.model not in seen:
                models.setdefault(message.model, ModelBoard(message.model)).add(message)
            await asyncio.sleep(0)  # a burst must not hold up the keys
