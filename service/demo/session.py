"""One run against a broker and workers that are up: publish, follow the results, wait for the books."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console

from attributary.schemas.attribution import WindowAttribution
from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics
from attributary.service.accounting import Accounting, AccountingReader
from attributary.service.client import Publisher, subscribe
from attributary.service.demo.dataset import Dataset, Rows
from attributary.service.demo.display import Display
from attributary.service.demo.stream import RowStream
from attributary.service.demo.table import View
from attributary.service.latest import Latest
from attributary.service.subscription import Result, Subscription

_REFRESH_SECONDS = 0.25
_ACCOUNTING_SECONDS = 1.0
_FLUSH_SECONDS = 10.0
# How long the books may take to close: after a stream that ended, and after Ctrl-C or SIGTERM.
_SETTLE_SECONDS, _HURRIED_SECONDS = 30.0, 3.0


@dataclass(frozen=True)
class Outcome:
    """What a run left behind. ``rows`` are those handed to the publisher, in order."""

    rows: Rows
    published: int
    unpublished: int
    accounting: Accounting
    latest: Latest
    interrupted: bool
    complete: bool


class Session:
    """Publishes ``dataset`` for ``seconds`` (None: to its end) at ``rate`` rows a second.

    ``stopping`` says whether to end the stream early, in order. ``check`` is called now and then and raises
    what has become of the workers.
    """

    def __init__(
        self,
        dataset: Dataset,
        connection: Connection,
        topics: Topics,
        *,
        rate: float,
        seconds: float | None,
        stopping: Callable[[], bool],
        check: Callable[[], None],
    ) -> None:
        self._dataset = dataset
        self._connection = connection
        self._topics = topics
        self._rate = rate
        self._seconds = seconds
        self._check = check
        self._stopping = stopping
        self._latest = Latest(dataset.card.outputs)
        self._view = View(
            title=f"{dataset.card.model}, live",
            unit=dataset.unit,
            latest=self._latest,
            total=len(dataset.rows),
        )

    async def run(self, console: Console) -> Outcome:
        """Run to the end, or until ``stopping``; what ``check`` raises ends it at once."""
        async with (
            subscribe(
                self._connection,
                model=self._dataset.card.model,
                kinds=("attributions", "drift"),
                topics=self._topics,
            ) as results,
            AccountingReader(self._connection, self._topics, partition=None) as accounts,
            Publisher(
                self._connection,
                model=self._dataset.card.model,
                topic=self._topics.rows,
                output_names=self._dataset.card.outputs,
            ) as publisher,
        ):
            return await self._work(console, results, accounts, publisher)

    async def _work(
        self,
        console: Console,
        results: Subscription[Result],
        accounts: AccountingReader,
        publisher: Publisher,
    ) -> Outcome:
        stream = RowStream(self._dataset, publisher, rate=self._rate)
        background = [
            asyncio.create_task(self._follow(results)),
            asyncio.create_task(self._account(accounts)),
        ]
        try:
            with Display(console, self._view) as display:
                publishing = asyncio.create_task(stream.run(self._stopping, self._seconds))
                await self._show(display, stream, publisher, [publishing], background)
                streamed = self._view.elapsed
                self._view.state = "counting the last rows"
                await publisher.aflush(_HURRIED_SECONDS if self._stopping() else _FLUSH_SECONDS)
                rows = self._dataset.rows.slice(0, stream.rows)
                settling = asyncio.create_task(self._settle(publisher, rows))
                await self._show(display, stream, publisher, [settling], background)
                self._view.state = "done after"
                self._view.rate = publisher.published / max(streamed, _REFRESH_SECONDS)
            return Outcome(
                rows=rows,
                published=publisher.published,
                unpublished=stream.rows - publisher.published,
                accounting=self._view.accounting,
                latest=self._latest,
                interrupted=self._stopping(),
                complete=settling.result(),
            )
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)

    async def _show(
        self,
        display: Display,
        stream: RowStream,
        publisher: Publisher,
        until: list[asyncio.Task[None]] | list[asyncio.Task[bool]],
        background: list[asyncio.Task[None]],
    ) -> None:
        """Keep the table up to date until the tasks are done; raise what a background task raised."""
        started = time.monotonic() - self._view.elapsed
        while True:
            self._check()
            for task in background:
                if task.done():
                    task.result()
            done, _ = await asyncio.wait(until, timeout=_REFRESH_SECONDS)
            self._view.published = publisher.published
            self._view.rate = stream.rate()
            self._view.elapsed = time.monotonic() - started
            display.update()
            if len(done) == len(until):
                for finished in done:
                    finished.result()
                return

    async def _follow(self, results: Subscription[Result]) -> None:
        async for message in results:
            if isinstance(message, WindowAttribution):
                self._latest.add_attribution(message)
            else:
                self._latest.add_drift(message)
            await asyncio.sleep(0)  # decoding a burst must not hold up the stream

    async def _account(self, accounts: AccountingReader) -> None:
        while True:
            self._view.accounting = await accounts.refresh()
            await asyncio.sleep(_ACCOUNTING_SECONDS)

    async def _settle(self, publisher: Publisher, rows: Rows) -> bool:
        """Wait until every row is in the books and in the results; return whether that was in time."""
        started = time.monotonic()
        while not self._settled(publisher, rows):
            limit = _HURRIED_SECONDS if self._stopping() else _SETTLE_SECONDS
            if time.monotonic() - started > limit:
                return False
            await asyncio.sleep(0.1)
        return True

    def _settled(self, publisher: Publisher, rows: Rows) -> bool:
        books = self._view.accounting
        if not books.settled or books.accepted + books.rejected != publisher.published:
            return False
        if self._latest.rows() != books.accepted:
            return False
        for message in self._latest.final.values():
            window = message.window
            inside = (rows.times >= window.start) & (rows.times < window.end)
            if message.accounting.rows != int(inside.sum()):
                return False
        return True
