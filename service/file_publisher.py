"""Publishes a file: reads it in batches, shows how far it is, and says what became of every row."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType

import click

from attributary.schemas.adapters.formats import Adapter
from attributary.schemas.card import ModelCard
from attributary.schemas.errors import BrokerError, ConfigurationError
from attributary.service.columns import Choice, choose_typed, derive_card, text_columns
from attributary.service.event_times import EventTimes
from attributary.service.file_messages import Message, TableMessages
from attributary.service.foreign_files import ForeignFile, describe
from attributary.service.json_lines import JsonLines
from attributary.service.printable import printable
from attributary.service.progress import Meter, meter
from attributary.service.publisher import Publisher
from attributary.service.query_rows import QueryRows
from attributary.service.registry import find_card, send_card
from attributary.service.settings import Settings
from attributary.service.table_files import CsvFile, ParquetFile, check_file, kind_of
from attributary.service.topics import check_topics

_SHOWN_REJECTIONS = 5
_GIVE_UP_SECONDS = 60.0
_LEAVE_SECONDS = 2.0
_BUFFER_ROWS = 400_000


@dataclass(frozen=True)
class Job:
    """What to publish, and how: a file, or what a ``query`` over ``database`` returns.

    ``model`` is empty where another system's log names it.
    """

    path: Path | None
    model: str
    choice: Choice
    kind: str = "auto"
    content: str | None = None
    times: EventTimes = field(default_factory=EventTimes)
    batch_rows: int = 2000
    rate: float | None = None
    register: bool = False
    strict: bool = False
    adapter: Adapter | None = None
    query: str | None = None
    database: Path | None = None
    skip: int = 0

    @property
    def source(self) -> str:
        """What the rows come from."""
        return "the query" if self.path is None else str(self.path)


class FilePublisher:
    """One run of ``attributary publish``."""

    def __init__(self, settings: Settings, job: Job) -> None:
        self._settings = settings
        self._job = job
        self._rejected = 0
        self._sent_rows = self._sent_messages = 0
        self._foreign: ForeignFile | None = None
        #: (rows handed over, rows of the source done with them) of the messages not known to be settled.
        self._unsettled: deque[tuple[int, int]] = deque()
        self._done = job.skip

    def run(self) -> int:
        """Publish the file; return the exit code."""
        messages, progress = self._open()
        publisher = Publisher(
            self._settings.connection,
            model=self._job.model or None,
            topic=self._settings.topics.rows,
            max_rows=_BUFFER_ROWS,
            linger_seconds=0.0,
        )
        started = time.monotonic()
        stopped = False
        with _terminates_like_ctrl_c(), meter(progress, lambda: publisher.published) as shown:
            try:
                self._send(publisher, messages, shown)
                self._wait(publisher, shown, lambda: publisher.pending > 0)
            except KeyboardInterrupt:
                stopped = True
                publisher.flush(_LEAVE_SECONDS)
            except BrokerError as error:
                raise BrokerError(f"{error}{self._go_on(publisher)}") from None
            finally:
                go_on = self._go_on(publisher)
                publisher.close(_LEAVE_SECONDS)
        seconds = time.monotonic() - started
        rows = publisher.published
        click.echo(
            f"published {rows:,} rows in {self._sent_messages:,} messages, {seconds:.1f} s, "
            f"{rows / max(seconds, 1e-9):,.0f} rows/s"
            + (f"; {self._rejected:,} rows left out" if self._rejected else "")
        )
        if self._foreign is not None and (skipped := self._foreign.skipped()):
            click.echo(f"messages skipped: {describe(skipped)}")
        if stopped:
            click.echo(
                f"stopped: {rows:,} of {self._sent_rows:,} rows handed over were acknowledged"
                + go_on,
                err=True,
            )
            return 130
        if publisher.failed:
            raise BrokerError(f"the broker refused {publisher.failed:,} rows: messages too large")
        skipped_all = self._foreign is not None and bool(self._foreign.skipped())
        if not rows and not self._rejected and not skipped_all:
            raise ConfigurationError(f"{self._job.source} holds no rows")
        return 1 if self._rejected else 0

    def _go_on(self, publisher: Publisher) -> str:
        """Return how to go on from the last row before which every row is settled."""
        while self._unsettled and self._unsettled[0][0] <= publisher.settled:
            self._done = self._unsettled.popleft()[1]
        return f"; --skip-rows {self._done} goes on from there" if self._done else ""

    def _open(self) -> tuple[Iterator[Message], Callable[[], tuple[int, int]]]:
        """Check file, columns, broker and topics, in this order; return messages and progress."""
        job = self._job
        if job.path is None:
            return self._open_rows(QueryRows(job.query or "", job.database))
        check_file(job.path)
        try:
            if job.adapter is not None:
                self._foreign = ForeignFile(job.path, job.adapter, reject=self._reject)
                self._prepare(None)
                return self._foreign.messages(job.batch_rows), self._foreign.progress
            kind = kind_of(job.path, job.kind)
            if kind == "jsonl":
                return self._open_lines(job.path)
            if kind == "csv":
                return self._open_rows(
                    CsvFile(job.path, texts=job.choice.texts, reject=self._reject)
                )
            return self._open_rows(ParquetFile(job.path))
        except OSError as error:
            raise ConfigurationError(f"{job.path}: {error.strerror or error}") from None

    def _open_lines(self, path: Path) -> tuple[Iterator[Message], Callable[[], tuple[int, int]]]:
        job = self._job
        if job.content == "arrow":
            raise ConfigurationError("--as arrow: the rows of a JSONL file travel as json")
        if job.register and not job.choice.outputs:
            raise ConfigurationError(
                "--register needs --outputs; for rows as they travel: attributary register CARD.json"
            )
        lines = JsonLines(
            path, job.model, job.choice, times=job.times, reject=self._reject, skip=job.skip
        )
        if job.choice.outputs:
            columns, texts = lines.columns()
            self._prepare(lambda: derive_card(job.model, columns, texts, job.choice.categorical))
        else:
            self._prepare(None)
        return lines.messages(job.batch_rows), lines.progress

    def _open_rows(
        self, file: CsvFile | ParquetFile | QueryRows
    ) -> tuple[Iterator[Message], Callable[[], tuple[int, int]]]:
        job = self._job
        columns = choose_typed(job.choice, file.schema)
        texts = text_columns(columns, file.schema)
        self._prepare(lambda: derive_card(job.model, columns, texts, job.choice.categorical))
        if columns.left_out:
            self._say(f"not features: {', '.join(columns.left_out)}")
        encoder = TableMessages(
            job.model,
            columns,
            as_arrow=job.content != "json",
            batch_rows=job.batch_rows,
            times=job.times,
            reject=self._reject,
            skip=job.skip,
        )
        messages = (
            message for batch in file.batches(columns.all) for message in encoder.encode(batch)
        )
        return messages, file.progress

    def _prepare(self, card: Callable[[], ModelCard] | None) -> None:
        """Check the broker and its topics; register the card where asked to and there is none."""
        connection, topics = self._settings.connection, self._settings.topics

        async def prepare() -> None:
            roles = ["rows", "models"] if self._job.register else ["rows"]
            await check_topics(connection, topics, roles=roles)
            if card is None or not self._job.register:
                return
            if await find_card(connection, topics, self._job.model) is not None:
                self._say(f"{self._job.model} has a card already: it is kept")
                return
            made = card()
            await send_card(connection, topics, made)
            categories = sum(feature.kind == "categorical" for feature in made.features)
            self._say(
                f"registered {self._job.model}: {len(made.features)} features, "
                f"{categories} of them categories"
            )

        asyncio.run(prepare())

    def _send(self, publisher: Publisher, messages: Iterator[Message], shown: Meter) -> None:
        started = time.monotonic()
        for message in messages:
            if self._job.rate is not None:
                due = started + self._sent_rows / self._job.rate
                while (left := due - time.monotonic()) > 0:
                    time.sleep(min(left, 0.2))
                    shown.update()
            self._wait(publisher, shown, partial(_no_room, publisher, message))
            publisher.publish_message(message.value, message.rows, message.content_type)
            self._sent_rows += message.rows
            self._unsettled.append((self._sent_rows, message.upto))
            self._go_on(publisher)
            self._sent_messages += 1
            shown.update()

    def _wait(self, publisher: Publisher, shown: Meter, blocked: Callable[[], bool]) -> None:
        """Wait while ``blocked``; BrokerError where no row is acknowledged for a minute."""
        known, since = publisher.published, time.monotonic()
        while blocked():
            publisher.flush(0.2)
            shown.update()
            if publisher.published != known:
                known, since = publisher.published, time.monotonic()
            elif time.monotonic() - since > _GIVE_UP_SECONDS:
                raise BrokerError(
                    f"the broker at {self._settings.connection.bootstrap} has acknowledged nothing "
                    f"for {_GIVE_UP_SECONDS:g} s; {known:,} rows were acknowledged before, "
                    f"{publisher.pending:,} are lost"
                )

    def _reject(self, problem: str) -> None:
        if self._job.strict:
            raise ConfigurationError(f"{self._job.source}: {problem}")
        self._rejected += 1
        if self._rejected <= _SHOWN_REJECTIONS:
            self._say(f"left out: {problem}")
        elif self._rejected == _SHOWN_REJECTIONS + 1:
            self._say("further rows that are left out are only counted")

    def _say(self, text: str) -> None:
        name = "query" if self._job.path is None else self._job.path.name
        click.echo(f"{name}: {printable(text)}", err=True)


def _no_room(publisher: Publisher, message: Message) -> bool:
    return not publisher.wait_for_room(message.rows, len(message.value), 0.2)


@contextmanager
def _terminates_like_ctrl_c() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, with its counts."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
