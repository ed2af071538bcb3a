"""A folder's resources as ``kubectl kustomize`` builds them, as far as these files ask for.

Names of generated ConfigMaps stay without their hash. BuildError: a file or patch target that is not there.
"""

from __future__ import annotations

import posixpath
from typing import Any

from deployed.schemas import KUSTOMIZATIONS, schema_faults
from deployed.tree import Tree, documents

Document = dict[str, Any]


class BuildError(Exception):
    """What kustomize would refuse."""


def build(tree: Tree, folder: str) -> list[Document]:
    """Return the documents of ``folder``'s kustomization."""
    return _build(tree, folder, [])


def _build(tree: Tree, folder: str, before: list[Document]) -> list[Document]:
    """Return the documents ``before`` it and the folder's own, as its kustomization changes them."""
    path = f"{folder}/kustomization.yaml"
    (spec,) = documents(_text(tree, path))
    kind = spec.get("kind")
    if found := schema_faults(spec, KUSTOMIZATIONS.get(kind, {"not": {}})):
        raise BuildError(f"{path}: {found[0]}")
    built = list(before)
    for name in spec.get("resources", []):
        place = posixpath.normpath(f"{folder}/{name}")
        if name.endswith(".yaml"):
            built += documents(_text(tree, place))
        else:
            built += build(tree, place)
    for generated in spec.get("configMapGenerator", []):
        built.append(_config_map(tree, folder, generated))
    for name in spec.get("components", []):
        built = _build(tree, posixpath.normpath(f"{folder}/{name}"), built)
    for patch in spec.get("patches", []):
        for change in documents(_text(tree, f"{folder}/{patch['path']}")):
            _patch(built, change)
    for label in spec.get("labels", []):
        for doc in built:
            _label(doc, label["pairs"], templates=label.get("includeTemplates", False))
    for doc in built:
        if "namespace" in spec and doc["kind"] != "Namespace":
            doc["metadata"]["namespace"] = spec["namespace"]
        for image in spec.get("images", []):
            for container in containers(doc):
                if container.get("image", "").partition(":")[0] == image["name"]:
                    container["image"] = f"{image['name']}:{image['newTag']}"
    return built


def containers(doc: Document) -> list[dict[str, Any]]:
    """Return the containers of a Deployment, those that begin included."""
    if doc["kind"] != "Deployment":
        return []
    pod = doc["spec"]["template"]["spec"]
    return [*pod.get("initContainers", []), *pod["containers"]]


def _text(tree: Tree, path: str) -> str:
    if path not in tree:
        raise BuildError(f"{path} does not exist")
    return tree[path]


def _config_map(tree: Tree, folder: str, spec: dict[str, Any]) -> Document:
    data: dict[str, str] = {}
    for name in spec.get("envs", []):
        for line in _text(tree, f"{folder}/{name}").splitlines():
            if line and not line.startswith("#"):
                variable, _, value = line.partition("=")
                data[variable] = value
    for name in spec.get("files", []):
        data[posixpath.basename(name)] = _text(tree, f"{folder}/{name}")
    metadata: dict[str, Any] = {"name": spec["name"]}
    if labels := spec.get("options", {}).get("labels"):
        metadata["labels"] = labels
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _label(doc: Document, pairs: dict[str, str], *, templates: bool) -> None:
    doc["metadata"].setdefault("labels", {}).update(pairs)
    if templates and "template" in doc.get("spec", {}):
        doc["spec"]["template"]["metadata"].setdefault("labels", {}).update(pairs)


def _patch(built: list[Document], change: Document) -> None:
    for doc in built:
        if (doc["kind"], doc["metadata"]["name"]) == (change["kind"], change["metadata"]["name"]):
            _merge(doc, change)
            return
    raise BuildError(
        f"a patch changes {change['kind']} {change['metadata']['name']}: no such thing"
    )


def _merge(into: dict[str, Any], change: dict[str, Any]) -> None:
    """Merge strategically: lists of named things by their names, other lists whole."""
    for name, value in change.items():
        old = into.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            _merge(old, value)
        elif isinstance(value, list) and isinstance(old, list) and _named(value) and _named(old):
            for item in value:
                same = next((each for each in old if each["name"] == item["name"]), None)
                if same is None:
                    old.append(item)
                else:
                    _merge(same, item)
        else:
            into[name] = value


def _named(items: list[Any]) -> bool:
    return all(isinstance(item, dict) and "name" in item for item in items)
