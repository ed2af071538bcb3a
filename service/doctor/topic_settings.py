"""Are the topics there, with the settings that they need?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient

from attributary.service.doctor.finding import Finding, fail, ok, warn
from attributary.service.settings import Settings
from attributary.service.topics import TopicSpec, topic_configs, topic_specs

# Where less than the settings ask for does harm, and not only what is said here.
_SIZES = {"rows", "sketches", "snapshots", "dead_letters"}
_BY_THE_BROKERS_CLOCK = {"rows", "requests", "requests_high", "explanations"}
_NO_LEADER = -1
_UNLIMITED = "-1"
# Topics of which old records are needed however many there are.
_NEEDED_WHOLE = {
    "rows": "what workers have not read yet is lost",
    "sketches": "windows and a new worker's lifetime lack them",
}


@dataclass(frozen=True)
class TopicState:
    """A topic as the broker describes it; it may leave settings out."""

    partitions: int
    copies: int
    leaderless: int
    configs: Mapping[str, str]


async def describe(admin: AIOKafkaAdminClient, names: list[str]) -> dict[str, TopicState]:
    """Return those of the topics that are there."""
    listed = {
        topic["topic"]: topic["partitions"]
        for topic in await admin.describe_topics()
        if topic["topic"] in names
    }
    configs = await topic_configs(admin, list(listed)) if listed else {}
    return {name: _state(parts, configs.get(name, {})) for name, parts in listed.items()}


def _state(partitions: list[dict[str, Any]], configs: Mapping[str, str]) -> TopicState:
    return TopicState(
        partitions=len(partitions),
        copies=min((len(part["replicas"]) for part in partitions), default=0),
        leaderless=sum(part["leader"] == _NO_LEADER for part in partitions),
        configs=configs,
    )


def check_topics(
    settings: Settings, found: Mapping[str, TopicState], brokers: int
) -> list[Finding]:
    """Compare the topics that were found with what the settings make of them."""
    specs = topic_specs(settings.topics, settings.layout)
    missing = [spec.name for spec in specs if spec.name not in found]
    findings: list[Finding] = []
    if missing:
        findings.append(
            fail(
                "topics",
                f"missing, or not for this client to see: {', '.join(missing)}",
                "run `attributary topics create`, or check the topics' prefix and DESCRIBE permission",
            )
        )
    for spec in specs:
        if (state := found.get(spec.name)) is not None:
            findings += _settings_of(spec, state, settings)
            findings += _size_of(spec, state, settings)
            findings += _partitions_of(spec, state, brokers)
    if sketches := found.get(settings.topics.sketches):
        findings += _snapshots(settings, sketches, found.get(settings.topics.snapshots))
    if not findings:
        findings.append(ok("topics", f"all {len(specs)} are there{_told(specs, found)}"))
    return findings


def _told(specs: Sequence[TopicSpec], found: Mapping[str, TopicState]) -> str:
    """Say how far their settings are known to be right."""
    wanted = sum(len(spec.configs) for spec in specs)
    told = sum(key in found[spec.name].configs for spec in specs for key in spec.configs)
    if told == wanted:
        return ", with the settings they need"
    much = f"{told} of {wanted}" if told else "none"
    return (
        f"; the broker tells {much} of the settings they need, the others are not judged "
        "(Kafka tells all, given DESCRIBE_CONFIGS)"
    )


def _settings_of(spec: TopicSpec, state: TopicState, settings: Settings) -> list[Finding]:
    found = []
    for key, wanted in spec.configs.items():
        has = state.configs.get(key)
        if has is None or sorted(has.split(",")) == sorted(wanted.split(",")):
            continue
        if _is_more(key, has, wanted):
            continue
        say = fail if _harms(spec.role, key) else warn
        words = f"{spec.name} has {key}={has}, needs {wanted}"
        found.append(say("topics", words, _alter(spec, key, wanted, settings)))
    return found


def _size_of(spec: TopicSpec, state: TopicState, settings: Settings) -> list[Finding]:
    key, lacks = "retention.bytes", _NEEDED_WHOLE.get(spec.role)
    has = state.configs.get(key, _UNLIMITED)
    if lacks is None or has == _UNLIMITED:
        return []
    words = (
        f"{spec.name} has {key}={has}: above it the oldest records go, whatever their age; {lacks}"
    )
    return [warn("topics", words, _alter(spec, key, _UNLIMITED, settings))]


def _alter(spec: TopicSpec, key: str, wanted: str, settings: Settings) -> str:
    connection = settings.connection
    secured = connection.security_protocol != "PLAINTEXT"
    login = " --command-config client.properties" if secured else ""
    return (
        f"kafka-configs.sh --bootstrap-server {connection.bootstrap}{login} --alter "
        f"--entity-type topics --entity-name {spec.name} --add-config '{key}=[{wanted}]'"
    )


def _is_more(key: str, has: str, wanted: str) -> bool:
    """Whether a setting is more generous than it must be."""
    if key not in ("retention.ms", "retention.bytes", "max.message.bytes"):
        return False
    if _UNLIMITED in (has, wanted):
        return has == _UNLIMITED
    return int(has) >= int(wanted)


def _harms(role: str, key: str) -> bool:
    return (
        key == "cleanup.policy"
        or (key == "max.message.bytes" and role in _SIZES)
        or (key == "message.timestamp.type" and role in _BY_THE_BROKERS_CLOCK)
        or (key in ("retention.ms", "retention.bytes") and role == "grids")
    )


def _partitions_of(spec: TopicSpec, state: TopicState, brokers: int) -> list[Finding]:
    found = []
    if state.leaderless:
        found.append(
            fail(
                "topics",
                f"{spec.name}: {state.leaderless} of {state.partitions} partitions have no leader",
                "bring the brokers back that hold them",
            )
        )
    if spec.role == "grids" and state.partitions != 1:
        found.append(
            fail(
                "topics",
                f"{spec.name} has {state.partitions} partitions: the first grid in the log must hold",
                "make it anew with one partition",
            )
        )
    elif state.partitions < spec.partitions and spec.role != "snapshots":
        found.append(
            warn(
                "topics",
                f"{_partitions(spec.name, state)}, the settings say {spec.partitions}",
                "at most so many workers share it: add partitions, or correct the settings",
            )
        )
    if state.copies == 1 and brokers > 1:
        found.append(
            warn(
                "topics",
                f"{spec.name} has one copy, on {brokers} brokers",
                "raise its replication factor: a broker that is lost takes the topic with it",
            )
        )
    return found


def _snapshots(
    settings: Settings, sketches: TopicState, snapshots: TopicState | None
) -> list[Finding]:
    if snapshots is None or snapshots.partitions >= sketches.partitions:
        return []
    return [
        fail(
            "topics",
            f"{_partitions(settings.topics.snapshots, snapshots)}, fewer than the "
            f"{sketches.partitions} of {settings.topics.sketches}",
            "give it as many: a worker keeps the snapshots of a partition of sketches in its namesake",
        )
    ]


def _partitions(name: str, state: TopicState) -> str:
    return f"{name} has {state.partitions} partition{'' if state.partitions == 1 else 's'}"
