"""Is every row counted, once, and does the counting go on?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics
from attributary.service.accounting import Accounting, AccountingReader, ModelAccount
from attributary.service.doctor.finding import Finding, fail, ok, warn
from attributary.service.printable import printable
from attributary.service.words import left_out

_WATCHED_SECONDS = 2.5
_REJECTED_WARN, _REJECTED_FAIL = 0.01, 0.25
_LAG_WARN = 100_000


@dataclass(frozen=True)
class Books:
    """The accounting now, and whether it moved while it was watched; None: there was nothing to wait for."""

    accounting: Accounting
    moved: bool | None


async def read_books(connection: Connection, topics: Topics) -> Books:
    """Read the manifests; where rows wait, watch for some seconds whether they are counted."""
    async with AccountingReader(connection, topics, partition=None) as reader:
        first = await reader.refresh()
        if not first.lag:
            return Books(first, None)
        before = _read_so_far(first)
        for _ in range(5):
            await asyncio.sleep(_WATCHED_SECONDS / 5)
            now = await reader.refresh()
            if _read_so_far(now) > before or not now.lag:
                return Books(now, True)
        return Books(now, False)


def _read_so_far(accounting: Accounting) -> int:
    return sum(source.upto for source in accounting.sources.values())


def check_accounting(accounting: Accounting) -> list[Finding]:
    """Judge gaps, double counts, waiting rows and what was rejected."""
    found: list[Finding] = []
    for (topic, partition), source in accounting.sources.items():
        at = f"{topic}/{partition}"
        if source.gaps:
            found.append(
                fail(
                    "accounting",
                    f"{at}: {source.gaps:,} offsets are in no manifest: their rows are not in the scores",
                    "keep rows longer than the workers are ever down; count what is still there again with "
                    "`attributary replay`",
                )
            )
        if source.overlaps:
            found.append(
                fail(
                    "accounting",
                    f"{at}: {source.overlaps:,} offsets lie in two blocks",
                    "give ingest.block_offsets, block_seconds and block_bytes the same values on all workers",
                )
            )
    for name, model in sorted(accounting.models.items()):
        found += _rejected(name, model)
    if not found:
        found.append(
            ok(
                "accounting",
                f"{accounting.accepted:,} rows accepted{left_out(accounting.thinned)}, "
                f"{accounting.rejected:,} rejected, no gap",
            )
        )
    return found


def _rejected(name: str, model: ModelAccount) -> list[Finding]:
    share = model.rows_rejected / max(model.rows_rejected + model.accepted, 1)
    # Rows whose model cannot be read have no accepted ones to be compared with.
    if share < _REJECTED_WARN or not model.rows_rejected:
        return []
    reasons = ", ".join(f"{printable(r)} {n:,}" for r, n in sorted(model.rejected.items()))
    whose = (
        f"of {printable(name, 60)} {share:.1%} of the rows" if name else "rows of no known model"
    )
    say = fail if name and share >= _REJECTED_FAIL else warn
    return [
        say(
            "accounting",
            f"{whose} are rejected: {reasons}",
            "see them with `attributary dead-letters list`; after a fix, `attributary dead-letters retry`",
        )
    ]


def check_lag(books: Books, members: Mapping[str, int], ingest: str) -> list[Finding]:
    """Judge whether rows wait, for whom, and whether they are being counted."""
    lag, workers = books.accounting.lag, members.get(ingest)
    if not lag:
        return [ok("lag", "every message in the rows topic is counted")]
    if workers == 0:
        return [
            fail(
                "lag",
                f"{lag:,} messages wait and no ingest worker runs",
                "start workers with `attributary stream`",
            )
        ]
    if books.moved is False:
        return [
            fail(
                "lag",
                f"{lag:,} messages wait and for {_WATCHED_SECONDS:g} s none was counted: ingest is stuck",
                "read the workers' logs; restarting them loses nothing and counts nothing twice",
            )
        ]
    words = f"{lag:,} messages wait, and are being counted"
    if lag >= _LAG_WARN:
        more = "start more workers (at most one a partition of rows), or wait"
        return [warn("lag", words, more)]
    return [ok("lag", words)]
