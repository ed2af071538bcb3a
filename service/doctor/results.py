"""Do results come, can they be read, and is what a new worker starts from fresh?"""

from __future__ import annotations

from attributary.schemas.attribution import WindowAttribution
from attributary.schemas.errors import RejectedError
from attributary.schemas.unique_information import is_run
from attributary.service.doctor.finding import Finding, fail, ok, warn
from attributary.service.reader import Reader
from attributary.service.settings import Settings
from attributary.service.words import about

_NEWEST = 100
_INDEX_KEY = b"i|"
_CLOCK_MS = 5_000
# Snapshots are written when something has changed, and then one by one.
_SNAPSHOTS_MISSED = 10


async def check_results(settings: Settings, now: int) -> list[Finding]:
    """Judge the newest results and snapshots; ``now`` in milliseconds."""
    computed, unreadable = await _newest_result(settings)
    snapshot = await _newest_snapshot(settings)
    found = []
    if unreadable:
        found.append(
            warn(
                "results",
                f"{unreadable} of the newest messages in {settings.topics.attributions} cannot be read",
                "their writer may be a newer version: use the same everywhere",
            )
        )
    if computed is None:
        return [*found, ok("results", "no attributions yet")]
    if computed - now > _CLOCK_MS:
        found.append(
            warn(
                "clock",
                f"the newest result was computed {about((computed - now) / 1000)} from now",
                "let workers and this machine take their time from NTP",
            )
        )
    found.append(ok("results", f"the newest was computed {about((now - computed) / 1000)} ago"))
    found.append(snapshot_finding(computed, snapshot, settings.merge.snapshot_seconds))
    return found


def snapshot_finding(computed: int, snapshot: int | None, seconds: float) -> Finding:
    """Judge the newest snapshot's time beside the newest result's (milliseconds)."""
    allowed = _SNAPSHOTS_MISSED * seconds
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


async def _newest_result(settings: Settings) -> tuple[int | None, int]:
    """Return when the newest readable result was computed, and how many cannot be read."""
    computed, unreadable = [], 0
    reader = Reader(
        settings.connection, [settings.topics.attributions], newest=_NEWEST, follow=False
    )
    await reader.start()
    try:
        while (records := await reader.read()) is not None:
            for record in records:
                if is_run(record.headers):
                    continue
                try:
                    computed.append(WindowAttribution.from_bytes(record.value).computed_at)
                except RejectedError:
                    unreadable += 1
    finally:
        await reader.stop()
    return max(computed, default=None), unreadable


async def _newest_snapshot(settings: Settings) -> int | None:
    """Return when the newest index of a snapshot was written: it is the last record of its snapshot."""
    times = []
    reader = Reader(settings.connection, [settings.topics.snapshots], newest=_NEWEST, follow=False)
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
