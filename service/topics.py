"""The topics: which there are, how each is kept, and that they exist before anything uses them.

Nothing creates topics by the way: a broker that does so on first use would give a mistyped name a
topic of its own, with one partition and without compaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from attributary.schemas.connection import Connection
from attributary.schemas.errors import BrokerError
from attributary.schemas.topics import Topics
from attributary.service.reach import require_broker
from attributary.service.settings import TopicLayout

MAX_MESSAGE_BYTES = 8 * 2**20
_HOUR_MS = 3_600_000
# The log cleaner never touches the newest segment, so compacted topics need short ones.
_SEGMENT_MS = 600_000
_REQUEST_MS = 10_000
_ASKED_AGAIN = 100
_NO_ERROR, _EXISTS = 0, 36


@dataclass(frozen=True)
class TopicSpec:
    """One topic as ``create_topics`` makes it; ``configs`` are Kafka's topic settings."""

    role: str
    name: str
    partitions: int
    configs: Mapping[str, str]


@dataclass(frozen=True)
class TopicsReport:
    """What ``create_topics`` did, by name; ``differences`` are sentences about existing topics."""

    created: tuple[str, ...]
    existing: tuple[str, ...]
    differences: tuple[str, ...]


def topic_specs(topics: Topics, layout: TopicLayout) -> tuple[TopicSpec, ...]:
    """Return the specification of every topic, in the order of their roles."""
    compacted = {"cleanup.policy": "compact", "segment.ms": str(_SEGMENT_MS)}
    results = _kept(layout.results_retention_hours)
    # Ingest judges far-future rows, and cuts blocks, by the broker's clock.
    rows = {**_kept(layout.rows_retention_hours), "message.timestamp.type": "LogAppendTime"}
    # Compaction would keep the last grid of a key, but the first one in the log is what holds.
    forever = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    sketches = {
        **compacted,
        **_kept(layout.sketches_retention_hours),
        "cleanup.policy": "compact,delete",
    }
    # Answers are looked for from the time of their request on: both by the broker's clock.
    requests = {
        **_kept(layout.requests_retention_hours),
        "message.timestamp.type": "LogAppendTime",
    }
    answers = {
        **compacted,
        **_kept(layout.results_retention_hours),
        "cleanup.policy": "compact,delete",
        "message.timestamp.type": "LogAppendTime",
    }
    layouts: dict[str, tuple[int, dict[str, str]]] = {
        "rows": (layout.rows_partitions, rows),
        "models": (1, compacted),
        "grids": (1, forever),
        "sketches": (layout.sketches_partitions, sketches),
        # A partition's snapshots are read by the owner of its sketches, and by nobody else.
        "snapshots": (layout.sketches_partitions, compacted),
        "attributions": (1, results),
        "drift": (1, results),
        "requests": (layout.requests_partitions, requests),
        "requests_high": (layout.requests_partitions, requests),
        "explanations": (layout.requests_partitions, answers),
        "cancellations": (1, requests),
        "dead_letters": (1, results),
    }
    size = {"max.message.bytes": str(MAX_MESSAGE_BYTES)}
    return tuple(
        TopicSpec(role, name, layouts[role][0], {**size, **layouts[role][1]})
        for role, name in topics.model_dump().items()
    )


async def create_topics(
    connection: Connection, topics: Topics, layout: TopicLayout | None = None
) -> TopicsReport:
    """Create the topics that are missing; topics that exist are compared, never changed.

    BrokerError, one line with the fix: no broker answers, or it refuses a topic.
    """
    layout = layout or TopicLayout()
    specs = topic_specs(topics, layout)
    async with admin_client(connection) as admin:
        existing = await _partitions(admin)
        missing = [spec for spec in specs if spec.name not in existing]
        raced = await _create(admin, missing, layout.replication_factor) if missing else set()
        if missing:
            existing = await _visible(admin, {spec.name for spec in missing})
        created = {spec.name for spec in missing} - raced
        old = [spec for spec in specs if spec.name in existing and spec.name not in created]
        differences = await _differences(admin, old, existing) if old else ()
    return TopicsReport(
        created=tuple(spec.name for spec in missing if spec.name not in raced),
        existing=tuple(spec.name for spec in old),
        differences=tuple(differences),
    )


async def check_topics(
    connection: Connection, topics: Topics, roles: Collection[str] | None = None
) -> None:
    """Raise BrokerError, one line with the fix, unless all topics (of ``roles``) exist.

    It lists what exists: asking for a topic by name would make some brokers create it.
    """
    async with admin_client(connection) as admin:
        existing = await _partitions(admin)
    missing = [
        name
        for role, name in topics.model_dump().items()
        if name not in existing and (roles is None or role in roles)
    ]
    if missing:
        raise BrokerError(
            f"the broker at {connection.bootstrap} lacks the topic{'s' * (len(missing) > 1)} "
            f"{', '.join(missing)}: run `attributary topics create`, or check the topics' names"
        )


def _kept(hours: float) -> dict[str, str]:
    return {"cleanup.policy": "delete", "retention.ms": str(round(hours * _HOUR_MS))}


@asynccontextmanager
async def admin_client(connection: Connection) -> AsyncIterator[AIOKafkaAdminClient]:
    """Connect an admin client for a while; BrokerError where no broker answers, or it refuses."""
    require_broker(connection)
    admin = AIOKafkaAdminClient(**connection.client_arguments(), request_timeout_ms=_REQUEST_MS)
    try:
        await admin.start()
        yield admin
    except (KafkaError, TimeoutError) as error:
        raise BrokerError(f"the broker at {connection.bootstrap}: {_words(error)}") from None
    finally:
        await admin.close()


def _words(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


async def _partitions(admin: AIOKafkaAdminClient) -> dict[str, int]:
    return {topic["topic"]: len(topic["partitions"]) for topic in await admin.describe_topics()}


async def _visible(admin: AIOKafkaAdminClient, names: set[str]) -> dict[str, int]:
    """Return the topics that exist once these are among them: a broker tells of new ones a moment later."""
    found = await _partitions(admin)
    for _ in range(_ASKED_AGAIN):
        if names <= found.keys():
            break
        await asyncio.sleep(0.05)
        found = await _partitions(admin)
    return found


async def _create(admin: AIOKafkaAdminClient, specs: Iterable[TopicSpec], copies: int) -> set[str]:
    """Create topics; return the names that somebody else created in the meantime."""
    new = [
        NewTopic(spec.name, spec.partitions, copies, topic_configs=dict(spec.configs))
        for spec in specs
    ]
    raced, refused = set(), []
    for name, code, *message in (await admin.create_topics(new)).topic_errors:
        if code == _EXISTS:
            raced.add(name)
        elif code != _NO_ERROR:
            said = (message[0] if message else None) or for_code(code).__name__
            refused.append(f"{name}: {' '.join(str(said).split())}")
    if refused:
        raise BrokerError(f"the broker refused to create topics: {'; '.join(refused)}")
    return raced


async def _differences(
    admin: AIOKafkaAdminClient, specs: list[TopicSpec], partitions: Mapping[str, int]
) -> list[str]:
    described = await topic_configs(admin, [spec.name for spec in specs])
    found = []
    for spec in specs:
        if partitions[spec.name] != spec.partitions:
            found.append(
                f"{spec.name} has {partitions[spec.name]} partitions, the settings say {spec.partitions}"
            )
        actual = described.get(spec.name, {})
        for key, wanted in spec.configs.items():
            has = actual.get(key, wanted)
            if sorted(has.split(",")) != sorted(wanted.split(",")):
                found.append(f"{spec.name} has {key}={has}, expected {wanted}")
    return found


async def topic_configs(admin: AIOKafkaAdminClient, names: list[str]) -> dict[str, dict[str, str]]:
    """Return the settings that the broker reports, by topic; a broker may leave some out."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    found: dict[str, dict[str, str]] = {}
    for response in await admin.describe_configs(resources):
        for resource in response.to_object()["resources"]:
            entries: list[dict[str, Any]] = resource["config_entries"]
            found[resource["resource_name"]] = {
                entry["config_names"]: entry["config_value"]
                for entry in entries
                if entry["config_value"] is not None
            }
    return found
