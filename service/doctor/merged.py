"""Do accepted rows come out as results, and does that go on?

The newest result of a model says how many of its rows had been accepted. Its lifetime, or a decayed view, is
published whenever there are more; a model that has neither is published when one of its windows closes, and
what it lacks until then says nothing.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from aiokafka import ConsumerRecord, TopicPartition

from attributary.schemas.attribution import WindowAttribution
from attributary.schemas.card import DEFAULT_WINDOWS
from attributary.schemas.errors import RejectedError
from attributary.schemas.unique_information import is_run
from attributary.service.doctor.counted import Books, patience
from attributary.service.doctor.finding import Finding, fail, warn
from attributary.service.doctor.groups import GroupState
from attributary.service.printable import printable
from attributary.service.reader import Reader
from attributary.service.settings import Settings
from attributary.service.words import how_many, listed
from attributary.workers.stream.catalogue import ControlCatalogue

NEWEST = 100
# A merge that has published so lately may only be slow, and gets twice the time.
_LATELY_MS = 60_000


@dataclass
class Results:
    """The newest results of each model: the most rows accepted, and when the newest was computed (ms).

    A worker that has lost its partitions and does not know it yet may publish one that knows of fewer.
    ``whole``: the topic holds no older ones, so that a model that is not here has none.
    """

    rows: dict[str, int] = field(default_factory=dict)
    computed_at: dict[str, int] = field(default_factory=dict)
    unreadable: int = 0
    whole: bool = True

    @property
    def computed(self) -> int | None:
        """When the newest was computed."""
        return max(self.computed_at.values(), default=None)

    def add(self, record: ConsumerRecord) -> None:
        """Take a record of the topic; messages that are no results of windows are left out."""
        if is_run(record.headers):
            return
        try:
            message = WindowAttribution.from_bytes(record.value)
        except RejectedError:
            self.unreadable += 1
            return
        name = message.model
        self.computed_at[name] = max(message.computed_at, self.computed_at.get(name, 0))
        self.rows[name] = max(message.accounting.rows_accepted, self.rows.get(name, 0))


@dataclass(frozen=True)
class Late:
    """Rows accepted that are in no result, by model, and of which models no result came in ``watched`` s."""

    rows: dict[str, int]
    still: tuple[str, ...]
    watched: float


def late_rows(
    books: Books, results: Results, catalogue: ControlCatalogue, *, closing: bool
) -> dict[str, int]:
    """Return how many accepted rows no result tells of, by model.

    ``closing``: those too that wait for their window to close.
    """
    now = books.accounting
    if now.overlaps or now.lost_ends:
        return {}  # merge counts fewer rows than the manifests do; that is told already
    late = {}
    for name, account in now.models.items():
        if not name or not (closing or _published_on_change(name, catalogue)):
            continue
        told = results.rows.get(name)
        if told is None and results.whole:
            # Results may have expired before manifests: rows that are new ones have none.
            told = 0 if name in now.recent.models else account.accepted
        elif told is None:
            # The newest one is too old to have been read: at least what came since is not in it.
            before = books.first.models.get(name)
            told = before.accepted if before is not None else 0
        if account.accepted > told:
            late[name] = account.accepted - told
    return late


def _published_on_change(model: str, catalogue: ControlCatalogue) -> bool:
    card = catalogue.card(model)
    windows = DEFAULT_WINDOWS if card is None else card.windows
    return any(window.kind in ("lifetime", "decayed") for window in windows)


async def read_results(
    settings: Settings,
    books: Books | None,
    catalogue: ControlCatalogue,
    merge: GroupState | None,
) -> tuple[Results, Late]:
    """Read the newest results; where rows lack in them, watch for some seconds whether more come."""
    results, ends = await _newest(settings)
    if books is None:
        return results, Late({}, (), 0.0)
    nobody = merge is not None and not merge.members
    late = late_rows(books, results, catalogue, closing=nobody)
    if nobody or not late:
        return results, Late(late, tuple(late), 0.0)
    before, began = dict(results.computed_at), time.monotonic()
    interval = settings.merge.publish_seconds
    deadline = began + watch_seconds(results.computed, round(time.time() * 1000), interval)
    reader = Reader(settings.connection, [settings.topics.attributions], start_at=ends)
    await reader.start()
    try:
        while (still := _still(late, before, results)) and (
            left := deadline - time.monotonic()
        ) > 0:
            try:
                records = await asyncio.wait_for(reader.read(), left)
            except asyncio.TimeoutError:
                continue
            for record in records or ():
                results.add(record)
            late = late_rows(books, results, catalogue, closing=False)
    finally:
        await reader.stop()
    return results, Late(late, still, time.monotonic() - began)


def watch_seconds(computed: int | None, now: int, interval: float) -> float:
    """Return for how long to watch for results, of which the newest was ``computed`` then (milliseconds)."""
    lately = computed is not None and now - computed < _LATELY_MS
    return patience(interval) * (2 if lately else 1)


def _still(late: dict[str, int], before: dict[str, int], results: Results) -> tuple[str, ...]:
    """Return the models of which no newer result has come."""
    return tuple(name for name in sorted(late) if results.computed_at.get(name) == before.get(name))


async def _newest(settings: Settings) -> tuple[Results, dict[TopicPartition, int]]:
    """Return the newest results, and where they end."""
    results = Results()
    reader = Reader(
        settings.connection, [settings.topics.attributions], newest=NEWEST, follow=False
    )
    await reader.start()
    try:
        while (records := await reader.read()) is not None:
            for record in records:
                results.add(record)
                end = reader.ends[TopicPartition(record.topic, record.partition)]
                if 0 < record.offset <= end - NEWEST:
                    results.whole = False
        return results, reader.ends
    finally:
        await reader.stop()


def check_merge(late: Late, merge: GroupState | None, ages: str) -> Finding | None:
    """Judge accepted rows that are in no result; None where there are none, or results of them come."""
    if not late.still:
        return None
    rows = sum(late.rows[name] for name in late.still)
    of = listed([printable(name, 40) for name in late.still])
    words = f"{how_many(rows, 'accepted row', f'of {of} is', f'of {of} are')} in no result"
    if merge is not None and not merge.members:
        return fail(
            "results",
            f"no merge worker runs: {words}; {ages}",
            "start one with `attributary stream --role merge`, or `attributary stream` for ingest and merge",
        )
    words = f"{words}, and for {late.watched:.1f} s none came; {ages}"
    if merge is not None and not merge.settled:
        return warn("results", words, "ask again in a minute: merge workers join or leave")
    which = "a merge worker" if merge is not None and (merge.members or 0) > 1 else "merge"
    return fail(
        "results",
        f"{which} stands still: {words}",
        "ask again in a minute. If none has come by then, read the merge workers' logs and restart the one "
        "that does nothing: nothing is lost or counted twice. If some have, merge is slow or has just "
        "started: start more workers (at most one a partition of sketches), or wait",
    )
