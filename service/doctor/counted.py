"""Is every row counted, once, and does the counting go on?"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from attributary.service.accounting import (
    RECENT_MS,
    Accounting,
    AccountingReader,
    ModelAccount,
    Recent,
    Source,
)
from attributary.service.doctor.finding import Finding, fail, ok, warn
from attributary.service.doctor.groups import GroupState
from attributary.service.printable import printable
from attributary.service.settings import Settings
from attributary.service.words import how_many, left_out, listed, moment

_WATCHED_SECONDS, _LOOK_SECONDS = 2.5, 0.5
_REJECTED_WARN, _REJECTED_FAIL = 0.01, 0.25
_LAG_WARN = 100_000


@dataclass(frozen=True)
class Books:
    """The accounting when the watch began and now, so many seconds later."""

    first: Accounting
    accounting: Accounting
    watched: float

    @property
    def stuck(self) -> list[Source]:
        """Source partitions of which nothing was counted though messages waited all the time."""
        before = self.first.sources
        return [
            at
            for at, source in self.accounting.sources.items()
            if source.lag and at in before and before[at].lag and source.upto == before[at].upto
        ]


def patience(interval: float) -> float:
    """Return for how many seconds to watch what ought to move every ``interval`` seconds."""
    return max(_WATCHED_SECONDS, 2 * interval + _LOOK_SECONDS)


async def read_books(settings: Settings) -> Books:
    """Read the manifests; where rows wait, watch for some seconds whether they are counted everywhere."""
    async with AccountingReader(settings.connection, settings.topics, partition=None) as reader:
        first = await reader.refresh()
        began = time.monotonic()
        books = Books(first, first, 0.0)
        while books.stuck and books.watched < patience(settings.ingest.flush_seconds):
            await asyncio.sleep(_LOOK_SECONDS)
            books = Books(first, await reader.refresh(), time.monotonic() - began)
        return books


def check_accounting(accounting: Accounting) -> list[Finding]:
    """Judge gaps, double counts, logs that lost their end, and what was rejected of late."""
    found = _lost_ends(accounting)
    for (topic, partition), source in accounting.sources.items():
        at = f"{topic}/{partition}"
        if source.gaps:
            found.append(
                fail(
                    "accounting",
                    f"{at}: {how_many(source.gaps, 'offset', 'is', 'are')} in no manifest: their rows are "
                    "not in the scores",
                    "keep rows longer than the workers are ever down; count what is still there again with "
                    "`attributary replay`",
                )
            )
        if source.overlaps:
            found.append(
                fail(
                    "accounting",
                    f"{at}: {how_many(source.overlaps, 'offset', 'lies', 'lie')} in two blocks",
                    "give ingest.block_offsets, block_seconds and block_bytes the same values on all workers",
                )
            )
    found += _all_rejected(accounting.recent)
    if not found:
        found.append(
            ok(
                "accounting",
                f"{accounting.accepted:,} rows accepted{left_out(accounting.thinned)}, "
                f"{accounting.rejected:,} rejected, no gap",
            )
        )
    return found


def _lost_ends(accounting: Accounting) -> list[Finding]:
    lost = {at: accounting.sources[at] for at in accounting.lost_ends}
    if not lost:
        return []
    named = {f"{topic}/{partition}": source for (topic, partition), source in lost.items()}
    at, source = next(iter(named.items()))
    words = f"the log of {at} ends at {source.end:,}, but {source.upto:,} were counted"
    if others := [other for other in named if other != at]:
        words += f" (as with {listed(others)})"
    return [
        fail(
            "accounting",
            f"{words}: the topic was made anew, or the broker lost its end; rows sent since are not counted",
            "give the rows topic a new name (topics.rows in the settings of workers and publishers), make it "
            "with `attributary topics create` and restart them: scores go on from what is counted; or take a "
            "new prefix, and all begins anew",
        )
    ]


def _all_rejected(recent: Recent) -> list[Finding]:
    everything = sum(model.accepted + model.rows_rejected for model in recent.models.values())
    period = f"of the {RECENT_MS // 60_000} min to {moment(recent.until)} UTC"
    found = []
    for name, model in sorted(recent.models.items()):
        # Rows whose model cannot be read have no accepted ones to be compared with, but everybody's.
        rows = model.accepted + model.rows_rejected if name else everything
        whose = f"all rows {period} are of no known model"
        if name:
            whose = f"{printable(name, 60)}'s rows {period} are rejected"
        found += _rejected(whose, model, rows)
    return found


def _rejected(whose: str, model: ModelAccount, rows: int) -> list[Finding]:
    share = model.rows_rejected / max(rows, 1)
    if share < _REJECTED_WARN:
        return []
    reasons = ", ".join(f"{printable(r)} {n:,}" for r, n in sorted(model.rejected.items()))
    say = fail if share >= _REJECTED_FAIL else warn
    return [
        say(
            "accounting",
            f"{share:.1%} of {whose}: {reasons}",
            "see them with `attributary dead-letters list`; after a fix, `attributary dead-letters retry`",
        )
    ]


def check_lag(books: Books, ingest: GroupState | None) -> list[Finding]:
    """Judge whether rows wait, for whom, and whether they are being counted on every partition."""
    lag, stuck = books.accounting.lag, books.stuck
    if not lag:
        # Of a log that has lost its end this cannot be said; that is told already.
        lost = books.accounting.lost_ends
        return [] if lost else [ok("lag", "every message in the rows topic is counted")]
    words = how_many(lag, "message", "waits", "wait")
    if ingest is not None and not ingest.members:
        fix = "start workers with `attributary stream`"
        return [fail("lag", f"no ingest worker runs, and {words}", fix)]
    if stuck:
        return [_standing(books, stuck, ingest)]
    words = f"{how_many(lag, 'message', 'waits, and is', 'wait, and are')} being counted"
    if lag >= _LAG_WARN:
        more = "start more workers (at most one a partition of rows), or wait"
        return [warn("lag", words, more)]
    return [ok("lag", words)]


def _standing(books: Books, stuck: list[Source], ingest: GroupState | None) -> Finding:
    sources = books.accounting.sources
    waiting = sum(sources[at].lag for at in stuck)
    at = [
        f"{topic}/{n} at {sources[topic, n].upto:,} of {sources[topic, n].end:,}"
        for topic, n in stuck
    ]
    words = (
        f"{how_many(waiting, 'message', 'waits', 'wait')} and for {books.watched:.1f} s none was counted on "
        f"{listed(at)}"
    )
    if ingest is not None and not ingest.settled:
        return warn("lag", words, "ask again in a minute: ingest workers join or leave")
    workers = 0 if ingest is None or len(stuck) == len(sources) else ingest.members or 0
    which = f"one of {workers} ingest workers" if workers > 1 else "ingest"
    return fail(
        "lag",
        f"{which} stands still: {words}",
        "ask again in a minute. If these offsets are the same, read the logs of the worker that has the "
        "partitions and restart it: nothing is lost or counted twice. If they have grown, ingest is slow: "
        "start more workers (at most one a partition of rows)",
    )
