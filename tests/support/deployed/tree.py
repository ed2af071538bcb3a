"""The deployment's files as texts by their path, so that a test can plant an error in one of them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

Tree = Mapping[str, str]

ROOT = Path(__file__).parents[3]
COMPOSE = "docker-compose.yml"
PROMETHEUS = "deploy/prometheus/prometheus.yml"
RULES = "deploy/prometheus/rules.yml"
_FOLDERS = ("deploy/docker", "deploy/kubernetes", "deploy/grafana", "deploy/prometheus")
_FILES = (COMPOSE, ".dockerignore", "pyproject.toml", "constraints.txt")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_tree() -> dict[str, str]:
    """Return the files of the checkout."""
    found = [ROOT / name for name in _FILES]
    for folder in _FOLDERS:
        found += [path for path in (ROOT / folder).rglob("*") if path.suffix not in (".py", ".pyc")]
    return {
        path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
        for path in sorted(found)
        if path.is_file()
    }


def documents(text: str) -> list[Any]:
    """Return the YAML documents of a text, the caller's own."""
    return copy.deepcopy(_parsed(text))


@lru_cache(maxsize=1024)
def _parsed(text: str) -> list[Any]:
    return list(yaml.load_all(text, Loader=_LOADER))
