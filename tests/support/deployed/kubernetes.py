"""What ``kubectl apply -k`` would send: kustomizations built, documents valid, references resolved."""

from __future__ import annotations

from collections import Counter

from deployed.cluster import Cluster
from deployed.kustomize import BuildError, build
from deployed.monitoring import monitoring_faults
from deployed.network import network_faults
from deployed.pods import pod_faults
from deployed.scaling import scaling_faults
from deployed.schemas import document_faults
from deployed.tree import Tree

BASE = "deploy/kubernetes/base"
GPU = "deploy/kubernetes/overlays/gpu"
MONITORING = "deploy/kubernetes/overlays/monitoring"
FOLDERS = (BASE, GPU, MONITORING)


def kubernetes_faults(tree: Tree) -> list[str]:
    """Return what is wrong with the base and its overlays; of a folder that does not build only that."""
    found = []
    for folder in FOLDERS:
        try:
            cluster = Cluster(tree, build(tree, folder))
        except BuildError as error:
            return [str(error)]
        invalid = [fault for doc in cluster.documents for fault in document_faults(doc)]
        if invalid:
            return [f"{folder}: {fault}" for fault in invalid]
        found += [f"{folder}: {fault}" for fault in cluster_faults(cluster)]
        gpus = cluster.gpus()
        if gpus != ({"attributary-ondemand"} if folder == GPU else set()):
            found.append(f"{folder}: GPUs go to {sorted(gpus)}")
        if folder == MONITORING and not cluster.of("PrometheusRule"):
            found.append(f"{folder}: no alerts")
    return found


def cluster_faults(cluster: Cluster) -> list[str]:
    """Return what does not fit together."""
    names = Counter((doc["kind"], doc["metadata"]["name"]) for doc in cluster.documents)
    found = [f"{kind} {name} is there twice" for (kind, name), count in names.items() if count > 1]
    namespaces = {doc["metadata"].get("namespace") for doc in cluster.documents} - {None}
    if namespaces != {doc["metadata"]["name"] for doc in cluster.of("Namespace")}:
        found.append(f"resources lie in {sorted(map(str, namespaces))}")
    for doc in cluster.of("Deployment"):
        name = doc["metadata"]["name"]
        found += [f"{name}: {fault}" for fault in pod_faults(cluster, doc)]
    if found:  # what refers to pods that are wrong is not looked at
        return found
    found += scaling_faults(cluster)
    found += network_faults(cluster)
    found += monitoring_faults(cluster)
    return found
