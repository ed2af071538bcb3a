"""The compose file: what it builds and starts, how these find each other, and what is mounted where."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import check_jsonschema
import jsonschema
import yaml

from deployed.images import BY_TAG, environment
from deployed.process import command_faults, settings_of
from deployed.tree import COMPOSE, PROMETHEUS, Tree, documents

_GRAFANA = "deploy/grafana/provisioning"
#: Release tags as each project writes them.
_TAGS = {
    "prom/prometheus": r"v\d+\.\d+\.\d+",
    "grafana/grafana": r"\d+\.\d+\.\d+",
    "apache/kafka": r"\d+\.\d+\.\d+",
}
_KAFKA = {
    "KAFKA_NODE_ID", "KAFKA_PROCESS_ROLES", "KAFKA_CONTROLLER_QUORUM_VOTERS",
    "KAFKA_CONTROLLER_LISTENER_NAMES", "KAFKA_LISTENERS", "KAFKA_ADVERTISED_LISTENERS",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "KAFKA_INTER_BROKER_LISTENER_NAME",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR", "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR", "KAFKA_AUTO_CREATE_TOPICS_ENABLE", "KAFKA_LOG_DIRS",
    "KAFKA_HEAP_OPTS",
}  # fmt: skip
_GRAFANA_ENV = {
    "GF_AUTH_ANONYMOUS_ENABLED", "GF_AUTH_ANONYMOUS_ORG_ROLE", "GF_ANALYTICS_REPORTING_ENABLED",
    "GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION", "GF_AUTH_DISABLE_LOGIN_FORM",
    "GF_AUTH_BASIC_ENABLED", "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH",
}  # fmt: skip
#: What a fresh Grafana must be told so that there is no account with a password that everybody knows.
_NO_ACCOUNT = {
    "GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION": "true",
    "GF_AUTH_DISABLE_LOGIN_FORM": "true",
    "GF_AUTH_ANONYMOUS_ENABLED": "true",
    "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
}

Services = dict[str, dict[str, Any]]


def compose_faults(tree: Tree) -> list[str]:
    """Return what is wrong with the compose file and with what it mounts."""
    (compose,) = documents(tree[COMPOSE])
    if errors := schema_errors(tree[COMPOSE]):
        return [f"{COMPOSE}: {fault}" for fault in errors]
    services: Services = compose["services"]
    found = [*_build_faults(tree, services), *_prometheus_faults(tree, services)]
    found += [*_kafka_faults(services), *_grafana_faults(tree, services)]
    for name, service in services.items():
        found += [f"{name}: {fault}" for fault in _service_faults(tree, compose, service)]
    return [f"{COMPOSE}: {fault}" for fault in found]


@lru_cache(maxsize=512)
def schema_errors(text: str) -> tuple[str, ...]:
    """Return what the compose specification does not allow."""
    errors = _specification().iter_errors(yaml.safe_load(text))
    return tuple(f"{error.json_path}: {error.message}" for error in errors)


@lru_cache(maxsize=1)
def _specification() -> jsonschema.Draft7Validator:
    folder = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor"
    return jsonschema.Draft7Validator(yaml.safe_load((folder / "compose-spec.json").read_text()))


def _build_faults(tree: Tree, services: Services) -> Iterator[str]:
    building = {name: service for name, service in services.items() if "build" in service}
    for image, count in Counter(service["image"] for service in building.values()).items():
        if count > 1:
            yield f"{count} services build {image}: builds run at once, and the second export fails"
    made = {service["image"]: name for name, service in building.items()}
    for name, service in services.items():
        image = service["image"]
        known = BY_TAG.get(image)
        if image.startswith("attributary/"):
            builder = made.get(image)
            if known is None or builder is None:
                yield f"{name}: nobody builds {image}"
            elif name == builder:
                if service.get("pull_policy") != "build":
                    yield f"{name}: would take {image} from a registry, if one had it"
            else:
                if service.get("pull_policy") != "never":
                    yield f"{name}: would ask a registry for {image}"
                if builder not in service.get("depends_on", {}):
                    yield f"{name}: does not wait for {builder}, which builds its image"
        elif not re.fullmatch(_TAGS.get(image.partition(":")[0], "-"), image.partition(":")[2]):
            yield f"{name}: {image} is not pinned to a release"
        if name in building and known is not None:
            build = service["build"]
            if (build["dockerfile"], build.get("target")) != (known.file, known.target):
                yield f"{name}: {image} is {known.target} of {known.file}, got {build}"
            for argument in build.get("args", {}):
                if f"\nARG {argument}=" not in tree[known.file]:
                    yield f"{name}: {known.file} takes no {argument}"


def _service_faults(tree: Tree, compose: dict[str, Any], service: dict[str, Any]) -> Iterator[str]:
    services: Services = compose["services"]
    for other, how in service.get("depends_on", {}).items():
        if other not in services:
            yield f"depends on {other}, which is not there"
        elif how["condition"] == "service_healthy" and "test" not in services[other]["healthcheck"]:
            yield f"waits for the health of {other}, which has no check"
    for port in service.get("ports", []):
        if not port.startswith("127.0.0.1:"):
            yield f"opens {port} to the network"
    for source, _, _ in mounts(service):
        if source.startswith("./"):
            if not any(f"{path}/".startswith(f"{source[2:]}/") for path in tree):
                yield f"mounts {source}, which is not there"
        elif source not in compose["volumes"]:
            yield f"the volume {source} is not declared"
    if "mem_limit" not in service:
        yield "has no limit of memory"
    image = BY_TAG.get(service["image"])
    if image is None:
        if "healthcheck" not in service:
            yield "has no healthcheck"
        return
    if not (service.get("read_only") and service.get("cap_drop") == ["ALL"]):
        yield "may write to its image, or has capabilities"
    if "/tmp" not in service.get("tmpfs", []):  # noqa: S108 - in the container
        yield "has no /tmp to write to"
    if "command" in service:
        yield from command_faults(service["command"])
    variables = environment(tree[image.file], image.target) | service.get("environment", {})
    settings = settings_of({name: str(value) for name, value in variables.items()})
    if isinstance(settings, str):
        yield settings
    elif settings.connection.bootstrap != inside(services["kafka"]):
        yield f"the broker is at {inside(services['kafka'])}, not {settings.connection.bootstrap}"


def mounts(service: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return (source, place, mode) of what a service mounts."""
    found = [(*volume.split(":"), "rw")[:3] for volume in service.get("volumes", [])]
    return [(source, place, mode) for source, place, mode in found]


def listeners(text: str) -> dict[str, str]:
    """Return host:port by the listener's name."""
    return dict(one.split("://", 1) for one in text.split(","))


def inside(kafka: dict[str, Any]) -> str:
    """Return the address that the broker gives to the other services."""
    variables = kafka["environment"]
    named = str(variables.get("KAFKA_INTER_BROKER_LISTENER_NAME"))
    return listeners(variables["KAFKA_ADVERTISED_LISTENERS"]).get(named, "nowhere")


def _kafka_faults(services: Services) -> Iterator[str]:
    kafka = services["kafka"]
    variables = {name: str(value) for name, value in kafka["environment"].items()}
    if wrong := set(variables) ^ _KAFKA:
        yield f"kafka: {sorted(wrong)} are unknown to it, or missing"
        return
    if variables["KAFKA_PROCESS_ROLES"] != "broker,controller":
        yield f"kafka: roles {variables['KAFKA_PROCESS_ROLES']}"
    bound = listeners(variables["KAFKA_LISTENERS"])
    told = listeners(variables["KAFKA_ADVERTISED_LISTENERS"])
    mapped = dict(
        pair.split(":") for pair in variables["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(",")
    )
    controller = variables["KAFKA_CONTROLLER_LISTENER_NAMES"]
    if set(mapped) != set(bound) or set(told) != set(bound) - {controller}:
        yield f"kafka: listeners {sorted(bound)}, advertised {sorted(told)}, mapped {sorted(mapped)}"
        return
    for name, address in told.items():
        if address.rpartition(":")[2] != bound[name].rpartition(":")[2]:
            yield f"kafka: {name} listens on {bound[name]} and is advertised as {address}"
    voters = variables["KAFKA_CONTROLLER_QUORUM_VOTERS"]
    if voters != f"{variables['KAFKA_NODE_ID']}@localhost{bound[controller]}":
        yield f"kafka: voters {voters}, but its controller is {bound[controller]}"
    inner = variables["KAFKA_INTER_BROKER_LISTENER_NAME"]
    outer = next((told[name] for name in told if name != inner), "")
    if told.get(inner) != f"kafka{bound.get(inner)}" or outer.partition(":")[0] != "localhost":
        yield f"kafka: advertised as {told}"
    port = outer.rpartition(":")[2]
    if kafka["ports"] != [f"127.0.0.1:{port}:{port}"]:
        yield f"kafka: {kafka['ports']} is not where {outer} listens"
    check = kafka["healthcheck"]["test"]
    asked = f"/dev/tcp/localhost/{bound[inner].removeprefix(':')}"
    if ".sh" in " ".join(check) or not check[-1].endswith(asked):
        yield f"kafka: its check {check} starts a JVM, or asks another port than {bound[inner]}"
    data = variables["KAFKA_LOG_DIRS"]
    if [place for _, place, _ in mounts(kafka)] != [data]:
        yield f"kafka: keeps its data in {data}, which is no volume"


def _prometheus_faults(tree: Tree, services: Services) -> Iterator[str]:
    (config,) = documents(tree[PROMETHEUS])
    (job,) = config["scrape_configs"]
    workers = [
        f"{name}:{environment(tree[image.file], image.target).get('ATTRIBUTARY_METRICS_PORT')}"
        for name, service in services.items()
        if (image := BY_TAG.get(service["image"])) is not None
        and not service.get("healthcheck", {}).get("disable")
    ]
    if sorted(job["static_configs"][0]["targets"]) != sorted(workers):
        yield f"prometheus scrapes {job['static_configs'][0]['targets']}, the workers are {workers}"
    here = {place: source[2:] for source, place, _ in mounts(services["prometheus"])}
    home = "/etc/prometheus"
    if here.get(f"{home}/prometheus.yml") != PROMETHEUS:
        yield f"prometheus: its configuration is not mounted at {home}/prometheus.yml"
    for name in config["rule_files"]:
        if here.get(f"{home}/{name}") not in tree:
            yield f"prometheus: {name} is not mounted beside its configuration"


def _grafana_faults(tree: Tree, services: Services) -> Iterator[str]:
    grafana = services["grafana"]
    variables = {name: str(value) for name, value in grafana["environment"].items()}
    if wrong := set(variables) - _GRAFANA_ENV:
        yield f"grafana: {sorted(wrong)} are unknown to it"
    for name, value in _NO_ACCOUNT.items():
        if variables.get(name) != value:
            yield f"grafana: {name} is not {value}"
    here = {place: source[2:] for source, place, _ in mounts(grafana)}
    if here.get("/etc/grafana/provisioning") != _GRAFANA:
        yield "grafana: its provisioning is not mounted at /etc/grafana/provisioning"
    (boards,) = documents(tree[f"{_GRAFANA}/dashboards/attributary.yml"])
    for provider in boards["providers"]:
        folder = here.get(provider["options"]["path"])
        if not any(posixpath.dirname(path) == folder and path.endswith(".json") for path in tree):
            yield f"grafana: {provider['options']['path']} holds no dashboards"
    board = variables.get("GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH", "")
    if f"{here.get(posixpath.dirname(board))}/{posixpath.basename(board)}" not in tree:
        yield f"grafana: there is no {board}"
    (sources,) = documents(tree[f"{_GRAFANA}/datasources/prometheus.yml"])
    ports = {port.split(":")[-1] for port in services["prometheus"]["ports"]}
    for source in sources["datasources"]:
        if source["url"] not in {f"http://prometheus:{port}" for port in ports}:
            yield f"grafana: {source['url']} is not the Prometheus of this file"
    for name, path in (("prometheus", "/-/ready"), ("grafana", "/api/health")):
        (port,) = {port.split(":")[-1] for port in services[name]["ports"]}
        if services[name]["healthcheck"]["test"][-1] != f"http://localhost:{port}{path}":
            yield f"{name}: its check asks {services[name]['healthcheck']['test'][-1]}"
