"""What a fault run must have left behind: exact books, exact scores, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass

import numpy as np
from aiokafka import ConsumerRecord
from chaos_rows import MODEL, NAMES, InLog, Workload

from attributary.schemas.attribution import WindowAttribution
from attributary.schemas.connection import Connection
from attributary.schemas.dead_letter import DeadLetter
from attributary.schemas.errors import BrokerError
from attributary.schemas.topics import Topics
from attributary.service.accounting import Accounting, AccountingReader
from attributary.service.reader import Reader
from attributary.workers.maths.cir import cir

TOLERANCE = 1e-3


@dataclass(frozen=True)
class Finding:
    """One thing that must hold, whether it does, and the figures."""

    what: str
    holds: bool
    figures: str

    def __str__(self) -> str:
        return f"{'ok    ' if self.holds else 'FAILED'} {self.what}: {self.figures}"


class Watch:
    """Follows the manifests in a thread of its own, over the broker's absences: ``latest`` is the newest."""

    def __init__(self, connection: Connection, topics: Topics) -> None:
        self.latest: Accounting | None = None
        self._connection = connection
        self._topics = topics
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join(10.0)

    def _run(self) -> None:
        while not self._over.wait(0.2):
            with contextlib.suppress(BrokerError):
                asyncio.run(self._follow())

    async def _follow(self) -> None:
        async with AccountingReader(self._connection, self._topics) as reader:
            while not self._over.is_set():
                self.latest = await reader.refresh()
                await asyncio.sleep(1.0)


def records(connection: Connection, topic: str) -> list[ConsumerRecord]:
    """Return all that is in a topic."""

    async def read() -> list[ConsumerRecord]:
        reader = Reader(connection, [topic], from_beginning=True, follow=False)
        await reader.start()
        found: list[ConsumerRecord] = []
        try:
            while (some := await reader.read()) is not None:
                found += some
        finally:
            await reader.stop()
        return found

    return asyncio.run(read())


def lifetimes(connection: Connection, topics: Topics) -> list[WindowAttribution]:
    """Return every lifetime message of the run, in the topic's order."""
    messages = (
        WindowAttribution.from_bytes(r.value) for r in records(connection, topics.attributions)
    )
    return [m for m in messages if m.model == MODEL and m.window.kind == "lifetime"]


def closed(account: Accounting | None, log: InLog) -> bool:
    """Say whether the manifests count as many rows as the log holds, or more."""
    counted = 0 if account is None else account.accepted + account.rejected
    return account is not None and not account.waiting and counted >= log.good + log.rejected


def published(messages: list[WindowAttribution], log: InLog) -> bool:
    """Say whether a lifetime counts as many rows as the log holds, or more."""
    return any(message.accounting.rows >= log.good for message in messages)


def findings(
    workload: Workload,
    log: InLog,
    account: Accounting,
    messages: list[WindowAttribution],
    letters: list[ConsumerRecord],
) -> list[Finding]:
    """Return what holds and what does not."""
    total = log.good + log.rejected
    return [
        Finding(
            "every published row is in the log",
            not (log.lost or log.strange) and log.rejected >= workload.rejected,
            f"{total:,} rows in the log, {log.repeated} of them sent twice by the publisher, "
            f"{log.lost} lost",
        ),
        Finding(
            "published = accepted + rejected",
            (account.accepted, account.rejected, account.waiting) == (log.good, log.rejected, 0),
            f"{total:,} = {account.accepted:,} + {account.rejected:,}, expected "
            f"{log.good:,} + {log.rejected:,}; {account.waiting} waiting",
        ),
        Finding(
            "no gap, no offset counted twice",
            account.gaps == account.overlaps == 0,
            f"{account.gaps} gaps, {account.overlaps} overlaps",
        ),
        *_of_messages(workload, log, messages),
        _of_letters(workload, log, letters),
    ]


def _of_messages(
    workload: Workload, log: InLog, messages: list[WindowAttribution]
) -> list[Finding]:
    most = max((m.accounting.rows for m in messages), default=0)
    accepted = max((m.accounting.rows_accepted for m in messages), default=0)
    newest = [m for m in messages if m.accounting.rows == most]
    gaps = newest[-1].accounting.gaps if newest else 0
    found = [
        Finding(
            "the lifetime counts every row, and no message ever counted more",
            most == accepted == log.good and gaps == 0,
            f"{most:,} rows of {accepted:,} accepted, expected {log.good:,}; {gaps} gaps",
        )
    ]
    rows = np.repeat(np.arange(len(workload.y)), log.copies)
    batch = cir(workload.X[rows], workload.y[rows, None]).score[0]
    worst, where = 0.0, "nowhere"
    for message in newest:
        scores = {feature.name: feature.score for feature in message.features}
        for name, expected in zip(NAMES, batch.tolist(), strict=True):
            difference = abs(scores.get(name, np.inf) - expected)
            if not difference <= worst:
                worst, where = difference, name
    holds = bool(newest) and worst <= TOLERANCE
    figures = f"largest difference {worst:.1e} ({where}), {len(newest)} messages"
    return [*found, Finding("streamed scores = batch scores", holds, figures)]


def _of_letters(workload: Workload, log: InLog, letters: list[ConsumerRecord]) -> Finding:
    origins = {DeadLetter.from_headers(record.headers).origin for record in letters}
    untouched = all(record.value in workload.bad for record in letters)
    return Finding(
        "dead letters are the malformed messages, untouched",
        origins == log.letters and untouched,
        f"{len(origins)} of {len(log.letters)}, {len(letters) - len(origins)} repeated",
    )
