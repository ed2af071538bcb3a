"""Are the topics there, with the settings that they need?"""

from __future__ import annotations

from collections.abc import Mapping
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
            findings += _partitions_of(spec, state, brokers)
    if sketches := found.get(settings.topics.sketches):
        findings += _snapshots(settings, sketches, found.get(settings.topics.snapshots))
    if not findings:
        findings.append(ok("topics", f"all {len(specs)} are there, with the settings they need"))
    return findings


def _settings_of(spec: TopicSpec, state: TopicState, settings: Settings) -> list[Finding]:
    found = []
    for key, wanted in spec.configs.items():
        has = state.configs.get(key)
        if has is None or sorted(has.split(",")) == sorted(wanted.split(",")):
            continue
        if _is_more(key, has, wanted):
            continue
        alter = (
            f"kafka-configs.sh --bootstrap-server {settings.connection.bootstrap} --alter "
            f"--entity-type topics --entity-name {spec.name} --add-config '{key}=[{wanted}]'"
        )
        say = fail if _harms(spec.role, key) else warn
        found.append(say("topics", f"{spec.name} has {key}={has}, needs {wanted}", alter))
    return found


def _is_more(key: str, has: str, wanted: str) -> bool:
    """Whether a setting is more generous than it must be."""
    if key not in ("retention.ms", "max.message.bytes"):
        return False
    if key == "retention.ms" and (has == "-1" or wanted == "-1"):
        return has == "-1"
    return int(has) >= int(wanted)


def _harms(role: str, key: str) -> bool:
    return (
        key == "cleanup.policy"
        or (key == "max.message.bytes" and role in _SIZES)
        or (key == "message.timestamp.type" and role in _BY_THE_BROKERS_CLOCK)
        or (key == "retention.ms" and role == "grids")
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
    elif state.partitions < spec.partitions:
        found.append(
            warn(
                "topics",
                f"{spec.name} has {state.partitions} partitions, the settings say {spec.partitions}",
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
            f"{settings.topics.snapshots} has {snapshots.partitions} partitions, fewer than the "
            f"{sketches.partitions} of {settings.topics.sketches}",
            "give it as many: a worker keeps the snapshots of a partition of sketches in its namesake",
        )
    ]
