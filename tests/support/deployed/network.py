"""The network policy: the ports that workers serve, the broker's, and the name service's."""

from __future__ import annotations

from collections.abc import Iterator

from deployed.cluster import Cluster

_NAMESPACE = "kubernetes.io/metadata.name"


def network_faults(cluster: Cluster) -> Iterator[str]:
    """Return what the policy does not let through, or lets through without need."""
    policies = cluster.of("NetworkPolicy")
    settings = cluster.settings()
    if len(policies) != 1 or settings is None:
        yield f"{len(policies)} network policies, settings {settings and 'usable'}"
        return
    spec = policies[0]["spec"]
    if spec["podSelector"] or sorted(spec["policyTypes"]) != ["Egress", "Ingress"]:
        yield "the network policy is not of all pods, both ways"
    served = {
        ("TCP", port["containerPort"])
        for doc in cluster.of("Deployment")
        for container in doc["spec"]["template"]["spec"]["containers"]
        for port in container["ports"]
    }
    host, _, port = settings.connection.bootstrap.rpartition(":")
    wanted = {
        "monitoring": served,
        host.split(".")[1] if "." in host else host: {("TCP", int(port))},
        "kube-system": {("UDP", 53), ("TCP", 53)},
    }
    allowed: dict[str, set[tuple[str, int]]] = {}
    for rule in spec["ingress"] + spec["egress"]:
        for peer in rule.get("from", []) + rule.get("to", []):
            place = peer.get("namespaceSelector", {}).get("matchLabels", {}).get(_NAMESPACE, "?")
            allowed.setdefault(place, set()).update(
                (p["protocol"], p["port"]) for p in rule["ports"]
            )
    if allowed != wanted:
        yield f"the network policy allows {allowed}, expected {wanted}"
