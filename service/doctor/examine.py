"""All checks, in the order in which one rests on the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from aiokafka.errors import KafkaError

from attributary.schemas.errors import AttributaryError
from attributary.service.doctor.access import check_reading, check_writing
from attributary.service.doctor.broker import check_broker, versions
from attributary.service.doctor.counted import Books, check_accounting, check_lag, read_books
from attributary.service.doctor.finding import Finding, fail, ok
from attributary.service.doctor.groups import (
    GroupState,
    check_groups,
    check_requests,
    describe_groups,
)
from attributary.service.doctor.models import check_models, read_catalogue
from attributary.service.doctor.results import check_results
from attributary.service.doctor.topic_settings import TopicState, check_topics, describe
from attributary.service.settings import Settings
from attributary.service.topics import admin_client
from attributary.workers.stream.catalogue import ControlCatalogue

Tell = Callable[[Finding], None]


async def examine(settings: Settings, tell: Tell, *, write: bool, seconds: float) -> None:
    """Run the checks and tell every finding as it comes; each may take ``seconds``.

    What rests on a broker or a topic that is not there is left out: that is told already.
    """
    examination = _Examination(settings, tell, write, seconds)
    await examination.run()


class _Examination:
    def __init__(self, settings: Settings, tell: Tell, write: bool, seconds: float) -> None:
        self._settings = settings
        self._tell = tell
        self._write = write
        self._seconds = seconds
        self._topics: Mapping[str, TopicState] = {}
        self._groups: dict[str, GroupState] = {}
        self._books: Books | None = None
        self._catalogue = ControlCatalogue()

    async def run(self) -> None:
        settings, topics = self._settings, self._settings.topics
        self._say(versions())
        found = await asyncio.to_thread(check_broker, settings.connection)
        self._say(found)
        if any(finding.level == "fail" for finding in found):
            return
        await self._check("topics", self._describe)
        present = [name for name in topics.model_dump().values() if name in self._topics]
        if present:
            await self._check("permissions", lambda: check_reading(settings, present))
        if not self._write:
            self._say([ok("clock", "not compared with the broker's, which only a write tells")])
        elif topics.cancellations in present:
            await self._check("permissions", lambda: check_writing(settings))
        if topics.requests in present and topics.requests_high in present:
            group = self._groups.get("ondemand")
            await self._check(
                "requests", lambda: check_requests(settings.connection, topics, group)
            )
        if {topics.rows, topics.sketches, topics.models, topics.grids} <= {*present}:
            await self._check("accounting", self._count)
        if {topics.attributions, topics.snapshots} <= {*present}:
            await self._check(
                "results",
                lambda: check_results(
                    settings, self._books, self._catalogue, self._groups.get("merge")
                ),
            )

    async def _describe(self) -> list[Finding]:
        """Look at the topics and the groups."""
        settings, topics = self._settings, self._settings.topics
        async with admin_client(settings.connection) as admin:
            brokers = len((await admin.describe_cluster())["brokers"])
            self._topics = await describe(admin, list(topics.model_dump().values()))
            self._groups, unknown = await describe_groups(admin, topics)
        shared = {"ingest": topics.rows, "merge": topics.sketches, "ondemand": topics.requests}
        partitions = {
            role: self._topics[name].partitions
            for role, name in shared.items()
            if name in self._topics
        }
        return [
            *check_topics(settings, self._topics, brokers),
            *check_groups(self._groups, partitions),
            *unknown,
        ]

    async def _count(self) -> list[Finding]:
        """Look at rows, lag and grids."""
        settings, topics = self._settings, self._settings.topics
        books = self._books = await read_books(settings)
        self._catalogue = await read_catalogue(settings.connection, topics)
        sketches = self._topics[topics.sketches].configs
        return [
            *check_lag(books, self._groups.get("ingest")),
            *check_accounting(books.accounting),
            *check_models(self._catalogue, books.accounting, sketches),
        ]

    async def _check(self, name: str, check: Callable[[], Awaitable[list[Finding]]]) -> None:
        try:
            self._say(await asyncio.wait_for(check(), self._seconds))
        except asyncio.TimeoutError:
            words = f"not finished within {self._seconds:g} s"
            self._say([fail(name, words, "is the broker overloaded? give it more with --seconds")])
        except (AttributaryError, KafkaError) as error:
            self._say(
                [fail(name, str(error), "see the broker's log, and this client's permissions")]
            )

    def _say(self, findings: list[Finding]) -> None:
        for finding in findings:
            self._tell(finding)
