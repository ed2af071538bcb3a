"""Do results come, can they be read, and is what a new worker starts from fresh?"""

from __future__ import annotations

import time

from attributary.service.doctor.counted import Books
from attributary.service.doctor.finding import Finding, fail, ok, warn
from attributary.service.doctor.groups import GroupState
from attributary.service.doctor.merged import NEWEST, check_merge, read_results
from attributary.service.reader import Reader
from attributary.service.settings import Settings
from attributary.service.words import about
from attributary.workers.stream.catalogue import ControlCatalogue

_INDEX_KEY = b"i|"
_CLOCK_MS = 5_000
# Snapshots are written when something has changed, and then one by one.
_SNAPSHOTS_MISSED = 10


async def check_results(
    settings: Settings,
    books: Books | None,
    catalogue: ControlCatalogue,
    merge: GroupState | None,
) -> list[Finding]:
    """Judge whether accepted rows come out as results, and the newest results and snapshots.

    ``books`` None: nothing is known of the rows.
    """
    results, late = await read_results(settings, books, catalogue, merge)
    snapshot = await _newest_snapshot(settings)
    now = round(time.time() * 1000)
    computed = results.computed
    counted = books.accounting.recent.until if books is not None else 0
    found = []
    if results.unreadable:
        found.append(
            warn(
                "results",
                f"{results.unreadable} of the newest messages in {settings.topics.attributions} "
                "cannot be read",
                "their writer may be a newer version: use the same everywhere",
            )
        )
    ages = _ages(computed, counted, now)
    found.append(check_merge(late, merge, ages) or ok("results", ages))
    if computed is None:
        return found
    if computed - now > _CLOCK_MS:
        found.append(
            warn(
                "clock",
                f"the newest result was computed {about((computed - now) / 1000)} from now",
                "let workers and this machine take their time from NTP",
            )
        )
    new = books is not None and books.accounting.begun_recently
    found.append(snapshot_finding(computed, snapshot, settings.merge.snapshot_seconds, new=new))
    return found


def snapshot_finding(computed: int, snapshot: int | None, seconds: float, *, new: bool) -> Finding:
    """Judge the newest snapshot's time beside the newest result's (milliseconds).

    ``new``: counting has begun so recently that there need not be one.
    """
    allowed = _SNAPSHOTS_MISSED * seconds
    if snapshot is None and new:
        return ok("snapshots", f"none yet: one comes {about(seconds)} after the first results")
    if snapshot is None:
        return warn(
            "snapshots",
            "none yet",
            f"one comes {about(seconds)} after the first results; where none does, see the merge workers' "
            "logs: without one, a new worker counts all sketches again",
        )
    behind = max(0.0, (computed - snapshot) / 1000)
    if behind > allowed:
        return fail(
            "snapshots",
            f"the newest is {about(behind)} older than the newest result",
            "see the merge workers' logs and attributary_snapshot_failures_total: once sketches expire, "
            "the lifetime cannot be counted again",
        )
    return ok("snapshots", f"the newest is at most {about(behind)} behind the results")


def _ages(computed: int | None, counted: int, now: int) -> str:
    """Say how old the newest result and the newest row are (milliseconds; 0: no row is counted)."""
    told = "no attributions yet"
    if computed is not None:
        told = f"the newest was computed {about((now - computed) / 1000)} ago"
    return (
        f"{told}, the newest row counted {about((now - counted) / 1000)} ago" if counted else told
    )


async def _newest_snapshot(settings: Settings) -> int | None:
    """Return when the newest index of a snapshot was written: it is the last record of its snapshot."""
    times = []
    reader = Reader(settings.connection, [settings.topics.snapshots], newest=NEWEST, follow=False)
    await reader.start()
    try:
        while (records := await reader.read()) is not None:
            times += [
                record.timestamp
                for record in records
                if (record.key or b"").startswith(_INDEX_KEY) and record.value is not None
            ]
    finally:
        await reader.stop()
    return max(times, default=None)
