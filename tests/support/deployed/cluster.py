"""The documents of one cluster, looked up by kind, name and label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attributary.service.settings import Settings
from deployed.kustomize import Document
from deployed.process import settings_of
from deployed.tree import Tree

GPU = "nvidia.com/gpu"


class Cluster:
    """What was built of one kustomization."""

    def __init__(self, tree: Tree, documents: list[Document]) -> None:
        self.tree = tree
        self.documents = documents

    def of(self, kind: str) -> list[Document]:
        """Return all documents of a kind."""
        return [doc for doc in self.documents if doc["kind"] == kind]

    def named(self, kind: str, name: str) -> Document | None:
        """Return one document; None where it is not there."""
        return next((doc for doc in self.of(kind) if doc["metadata"]["name"] == name), None)

    def selected(self, labels: Mapping[str, str]) -> set[str]:
        """Return the Deployments whose pods have these labels."""
        return {
            doc["metadata"]["name"]
            for doc in self.of("Deployment")
            if labels.items() <= doc["spec"]["template"]["metadata"]["labels"].items()
        }

    def secret_keys(self, name: str) -> set[str]:
        """Return the keys of a secret; none where it is not there."""
        doc = self.named("Secret", name)
        return set() if doc is None else set(doc.get("stringData", {}))

    def variables(self, container: Mapping[str, Any]) -> dict[str, str]:
        """Return what a container's ConfigMaps give it; of one that is not there nothing."""
        found: dict[str, str] = {}
        for source in container.get("envFrom", []):
            doc = self.named("ConfigMap", source["configMapRef"]["name"])
            found |= {} if doc is None else doc["data"]
        return found

    def files(self, pod: Mapping[str, Any], container: Mapping[str, Any]) -> dict[str, str]:
        """Return what of secrets is mounted into a container, by path."""
        secrets = {
            volume["name"]: volume["secret"]["secretName"]
            for volume in pod.get("volumes", [])
            if "secret" in volume
        }
        found: dict[str, str] = {}
        for mount in container.get("volumeMounts", []):
            doc = self.named("Secret", secrets.get(mount["name"], ""))
            for key, value in ({} if doc is None else doc["stringData"]).items():
                found[f"{mount['mountPath']}/{key}"] = value
        return found

    def settings(self) -> Settings | None:
        """Return what the first worker's settings are; None where it has none that it accepts."""
        pod = self.of("Deployment")[0]["spec"]["template"]["spec"]
        container = pod["containers"][0]
        found = settings_of(self.variables(container), self.files(pod, container))
        return None if isinstance(found, str) else found

    def gpus(self) -> set[str]:
        """Return the Deployments that take GPUs."""
        return {
            doc["metadata"]["name"]
            for doc in self.of("Deployment")
            for container in doc["spec"]["template"]["spec"]["containers"]
            if GPU in container["resources"]["limits"]
        }
