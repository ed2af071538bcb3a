"""Who is scaled and disrupted: targets, consumer groups, topics, partitions and secrets as in the code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from attributary.schemas.topics import Topics
from attributary.service.doctor.groups import group_names
from attributary.service.settings import Settings
from deployed.cluster import Cluster
from deployed.process import command_faults, parsed

_SASL = {
    "PLAIN": "plaintext",
    "SCRAM-SHA-256": "scram_sha256",
    "SCRAM-SHA-512": "scram_sha512",
    "OAUTHBEARER": "oauthbearer",
}


def scaling_faults(cluster: Cluster) -> Iterator[str]:
    """Return what is wrong with budgets and scalers."""
    deployments = {doc["metadata"]["name"] for doc in cluster.of("Deployment")}
    for doc in cluster.of("Deployment"):
        if "replicas" in doc["spec"]:
            yield f"{doc['metadata']['name']} has replicas: applying it undoes its scaler's work"
    budgets = Counter[str]()
    for doc in cluster.of("PodDisruptionBudget"):
        chosen = cluster.selected(doc["spec"]["selector"]["matchLabels"])
        budgets.update(chosen)
        if len(chosen) != 1:
            yield f"the budget {doc['metadata']['name']} is of {sorted(chosen) or 'no pods'}"
    scaled = Counter[str]()
    for kind in ("HorizontalPodAutoscaler", "ScaledObject"):
        for doc in cluster.of(kind):
            target = doc["spec"]["scaleTargetRef"]
            scaled[target["name"]] += 1
            if (
                target["name"] not in deployments
                or target.get("kind", "Deployment") != "Deployment"
            ):
                yield f"{kind} {doc['metadata']['name']} scales {target}, which is not there"
    for name in deployments:
        if (budgets[name], scaled[name]) != (1, 1):
            yield f"{name} has {budgets[name]} budgets and {scaled[name]} scalers"
    settings = cluster.settings()
    if settings is None:
        return
    for doc in cluster.of("ScaledObject"):
        for fault in _kafka_faults(cluster, doc, settings):
            yield f"ScaledObject {doc['metadata']['name']}: {fault}"
    for doc in cluster.of("HorizontalPodAutoscaler"):
        if doc["spec"]["maxReplicas"] > settings.layout.sketches_partitions:
            yield f"{doc['metadata']['name']} scales beyond the partitions of sketches"
    for doc in cluster.of("TriggerAuthentication"):
        for part in doc["spec"]["secretTargetRef"]:
            if part["key"] not in cluster.secret_keys(part["name"]):
                yield f"TriggerAuthentication: there is no {part['key']} in {part['name']}"


def _kafka_faults(cluster: Cluster, doc: dict[str, Any], settings: Settings) -> Iterator[str]:
    topics = settings.topics
    role = _role(cluster, doc["spec"]["scaleTargetRef"]["name"])
    read, partitions = _reads(topics, settings).get(role, (set[str](), 0))
    group = group_names(topics).get(role)
    watched = [trigger["metadata"] for trigger in doc["spec"]["triggers"]]
    if {one["topic"] for one in watched} != read or len(watched) != len(read):
        yield f"watches {[one['topic'] for one in watched]}, {role} reads {sorted(read)}"
    if doc["spec"]["maxReplicaCount"] > partitions:
        yield f"scales beyond {partitions} partitions"
    sasl = settings.connection.sasl
    for one in watched:
        if one["consumerGroup"] != group:
            yield f"watches the group {one['consumerGroup']}, {role} is {group}"
        if one["bootstrapServers"] != settings.connection.bootstrap:
            yield f"asks the broker {one['bootstrapServers']}, workers {settings.connection.bootstrap}"
        if (one["tls"] == "enable") != settings.connection.tls.enabled:
            yield f"tls {one['tls']} is not what the workers do"
        if one["sasl"] != ("none" if sasl is None else _SASL[str(sasl.mechanism)]):
            yield f"sasl {one['sasl']} is not what the workers do"
    for trigger in doc["spec"]["triggers"]:
        name = trigger["authenticationRef"]["name"]
        if cluster.named("TriggerAuthentication", name) is None:
            yield f"there is no TriggerAuthentication {name}"


def _reads(topics: Topics, settings: Settings) -> dict[str, tuple[set[str], int]]:
    """Return the topics and partitions of the groups that KEDA watches, by what they do."""
    layout = settings.layout
    return {
        "ingest": ({topics.rows}, layout.rows_partitions),
        "ondemand": ({topics.requests, topics.requests_high}, layout.requests_partitions),
    }


def _role(cluster: Cluster, deployment: str) -> str:
    """Return what a Deployment's worker does, by its arguments."""
    doc = cluster.named("Deployment", deployment)
    if doc is None:
        return "nothing"
    arguments = doc["spec"]["template"]["spec"]["containers"][0]["args"]
    if command_faults(arguments):
        return "nothing"
    context = parsed(arguments)
    roles = context.params.get("roles", ())
    return str(context.command.name) if len(roles) != 1 else str(roles[0])
