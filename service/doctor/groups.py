"""Do workers run, and how do their groups do?"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    KafkaError,
)

from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics
from attributary.service.doctor.finding import Finding, fail, ok, warn
from attributary.service.log_extents import LogExtents
from attributary.service.words import how_many

_TRIES, _PAUSE_SECONDS = 10, 0.5
_UNSETTLED = {"PreparingRebalance", "CompletingRebalance"}


@dataclass(frozen=True)
class GroupState:
    """A consumer group as its coordinator tells; ``members`` None: it does not say."""

    name: str
    state: str
    members: int | None

    @property
    def settled(self) -> bool:
        """Whether the workers share the work: none joins or leaves at the moment."""
        return self.state == "Stable"


def group_names(topics: Topics) -> dict[str, str]:
    """Return the names of the workers' groups, by what they do."""
    return {
        "ingest": f"{topics.rows}-ingest",
        "merge": f"{topics.sketches}-merge",
        "ondemand": f"{topics.requests}-ondemand",
    }


async def describe_groups(
    admin: AIOKafkaAdminClient, topics: Topics
) -> tuple[dict[str, GroupState], list[Finding]]:
    """Return the groups by what they do, and what could not be found out."""
    found: dict[str, GroupState] = {}
    problems = []
    for role, name in group_names(topics).items():
        try:
            found[role] = await _describe(admin, name)
        except GroupAuthorizationFailedError:
            problems.append(
                warn("groups", f"may not describe {name}", "give this client DESCRIBE on the group")
            )
        except KafkaError as error:
            problems.append(
                warn("groups", f"{name}: {error}", "try again; see the broker's log if it stays")
            )
    return found, problems


async def _describe(admin: AIOKafkaAdminClient, name: str) -> GroupState:
    for attempt in range(_TRIES):
        try:
            (answer,) = await admin.describe_consumer_groups([name])
        except GroupCoordinatorNotAvailableError:
            # A new broker makes the topic of the groups when it is first asked for one.
            if attempt == _TRIES - 1:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)
            continue
        (group,) = answer.to_object()["groups"]
        if group["error_code"] == GroupAuthorizationFailedError.errno:
            raise GroupAuthorizationFailedError(name)
        return GroupState(name, group["state"] or "Empty", len(group["members"]))
    raise GroupCoordinatorNotAvailableError(name)


def check_groups(groups: dict[str, GroupState], partitions: dict[str, int]) -> list[Finding]:
    """Judge members and state; ``partitions``: how many there are to share, by role."""
    found = []
    for role, group in groups.items():
        members, state = group.members or 0, group.state
        words = f"{role}: {members} worker{'' if members == 1 else 's'}, {state.lower()}"
        if state in _UNSETTLED:
            found.append(
                warn(
                    "groups",
                    words,
                    "workers join or leave; where it stays so, one of them is too slow to rejoin: see logs",
                )
            )
        elif not members and role != "ondemand":
            found.append(
                warn(
                    "groups", words, "start workers with `attributary stream`, or `attributary up`"
                )
            )
        elif members > partitions.get(role, members):
            found.append(
                warn(
                    "groups",
                    f"{words}, for {partitions[role]} partitions: the others are spare",
                    "add partitions, or stop the spare workers where they are not meant as such",
                )
            )
        else:
            found.append(ok("groups", words))
    return found


async def check_requests(
    connection: Connection, topics: Topics, group: GroupState | None
) -> list[Finding]:
    """Say whether requests for explanations wait for nobody."""
    if group is None:
        return []
    async with LogExtents(
        connection, [topics.requests, topics.requests_high], group.name
    ) as extents:
        waiting = sum(extent.behind for extent in (await extents.refresh()).values())
    if waiting and not group.members:
        return [
            fail(
                "requests",
                f"{how_many(waiting, 'request', 'waits', 'wait')} and no request worker runs",
                "start one with `attributary ondemand`",
            )
        ]
    return [
        ok("requests", how_many(waiting, "request", "waits", "wait") if waiting else "none waits")
    ]
