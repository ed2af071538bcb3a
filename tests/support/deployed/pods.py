"""A Deployment's pods: privileges, commands, settings, probes, ports, volumes, memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deployed.cluster import GPU, Cluster
from deployed.images import BY_TAG, entry, environment
from deployed.kustomize import containers
from deployed.process import command_faults, parsed, served, settings_of

_PROBES = {"startupProbe": "/healthz", "readinessProbe": "/readyz", "livenessProbe": "/healthz"}
_RESOURCES = {"cpu", "memory", GPU}
_COMMANDS = {"stream", "ondemand"}
_PARTS = {"image", "args", "envFrom", "resources", "securityContext", "volumeMounts"}


def pod_faults(cluster: Cluster, doc: dict[str, Any]) -> Iterator[str]:
    """Return what is wrong with a Deployment."""
    name = doc["metadata"]["name"]
    template = doc["spec"]["template"]
    pod = template["spec"]
    if cluster.selected(doc["spec"]["selector"]["matchLabels"]) != {name}:
        yield "its selector does not select its own pods alone"
    for spread in pod.get("topologySpreadConstraints", []):
        if cluster.selected(spread["labelSelector"]["matchLabels"]) != {name}:
            yield "spreads other pods than its own"
    if not pod["securityContext"].get("runAsNonRoot") or pod["automountServiceAccountToken"]:
        yield "may run as root, or holds a token of the cluster"
    if pod["enableServiceLinks"]:
        yield "gets variables of Services"
    yield from _volume_faults(cluster, pod)
    for container in containers(doc):
        if lacking := _PARTS - container.keys():
            yield f"{container['name']}: lacks {sorted(lacking)}"
            return
    for container in containers(doc):
        for fault in _container_faults(cluster, pod, container):
            yield f"{container['name']}: {fault}"
    for container in pod["containers"]:
        for fault in _serving_faults(cluster, pod, container):
            yield f"{container['name']}: {fault}"


def _volume_faults(cluster: Cluster, pod: dict[str, Any]) -> Iterator[str]:
    for volume in pod["volumes"]:
        secret = volume.get("secret", {}).get("secretName")
        if secret is not None and not cluster.secret_keys(secret):
            yield f"there is no secret {secret}"
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim is not None and cluster.named("PersistentVolumeClaim", claim) is None:
            yield f"there is no claim {claim}"


def _container_faults(
    cluster: Cluster, pod: dict[str, Any], container: dict[str, Any]
) -> Iterator[str]:
    security = container["securityContext"]
    if (
        not security.get("readOnlyRootFilesystem")
        or security.get("allowPrivilegeEscalation", True)
        or security.get("capabilities", {}).get("drop") != ["ALL"]
    ):
        yield "has privileges"
    if missing := {m["name"] for m in container["volumeMounts"]} - {
        v["name"] for v in pod["volumes"]
    }:
        yield f"mounts {sorted(missing)}, which no volume is"
    requests, limits = container["resources"]["requests"], container["resources"]["limits"]
    if unknown := {*requests, *limits} - _RESOURCES:
        yield f"asks for {sorted(unknown)}"
    if requests.get("memory") is None or requests["memory"] != limits.get("memory"):
        yield "its memory is not limited to what it asks for"
    if "cpu" not in requests or requests.get(GPU) != limits.get(GPU):
        yield "asks for no processors, or for other GPUs than it may take"
    for source in container["envFrom"]:
        if cluster.named("ConfigMap", source["configMapRef"]["name"]) is None:
            yield f"there is no ConfigMap {source['configMapRef']['name']}"
    if container["image"] not in BY_TAG:
        yield f"nothing builds {container['image']}"
        return
    image = BY_TAG[container["image"]]
    if container.get("command") or entry(cluster.tree[image.file], image.target)[0] != [
        "attributary"
    ]:
        yield "is not started by the image's entrypoint"
    if wrong := command_faults(container["args"]):
        yield from wrong
        return
    device = parsed(container["args"]).params.get("device", "cpu")
    if (GPU in limits) != str(device).startswith("cuda:"):
        yield f"computes on {device}, with {limits.get(GPU, 'no')} GPU"
    if (GPU in limits) != (image.target == "cuda"):
        yield f"has {limits.get(GPU, 'no')} GPU and the image {container['image']}"
    if GPU in limits and not any(each["key"] == GPU for each in pod.get("tolerations", [])):
        yield "is not tolerated on nodes that are kept for GPUs"
    roots = parsed(container["args"]).params.get("roots", ())
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    if not set(roots) <= mounted:
        yield f"loads models from {roots}, which is not mounted"
    variables = environment(cluster.tree[image.file], image.target) | cluster.variables(container)
    settings = settings_of(variables, cluster.files(pod, container))
    if isinstance(settings, str):
        yield settings
    elif settings.connection.sasl is not None:
        for user in cluster.of("Secret"):
            told = user["stringData"].get("username", settings.connection.sasl.username)
            if told != settings.connection.sasl.username:
                yield f"logs in as {settings.connection.sasl.username}, the secret says {told}"


def _serving_faults(
    cluster: Cluster, pod: dict[str, Any], container: dict[str, Any]
) -> Iterator[str]:
    image = BY_TAG.get(container["image"])
    if image is None or command_faults(container["args"]):
        return
    if parsed(container["args"]).command.name not in _COMMANDS:
        yield f"runs {container['args']}, which is no worker"
    serves = environment(cluster.tree[image.file], image.target).get("ATTRIBUTARY_METRICS_PORT")
    ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
    if list(ports.values()) != [serves]:
        yield f"opens {ports}, but serves {serves}"
    for name, path in _PROBES.items():
        asked = container[name]["httpGet"]
        if asked["path"] != path or path not in served():
            yield f"its {name} asks {asked['path']}, not {path}"
        if asked["port"] not in ports:
            yield f"its {name} asks the port {asked['port']}, which has no such name"
    if not any(mount["mountPath"] == "/tmp" for mount in container["volumeMounts"]):  # noqa: S108
        yield "has no /tmp to write to"
