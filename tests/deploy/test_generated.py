"""Generated files are what the code generates, and dashboards and rules speak of metrics that exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from attributary.workers.adapt.metrics import AdaptMetrics
from attributary.workers.ondemand.metrics import OnDemandMetrics
from attributary.workers.stream.metrics import StreamMetrics

ROOT = Path(__file__).parents[2]
DASHBOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
_NAME = re.compile(r"\b((?:attributary|process|model\w*:attributary)_[a-z0-9_:]+)")


def known_metrics() -> dict[str, set[str]]:
    """Return the labels of every exported series name."""
    registry = CollectorRegistry()
    known: dict[str, set[str]] = {}
    for bundle in (
        StreamMetrics.build(registry),
        OnDemandMetrics.build(registry),
        AdaptMetrics.build(registry),
    ):
        for field in fields(bundle):
            metric = getattr(bundle, field.name)
            family = metric.describe()[0]
            suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
            for suffix in suffixes.get(family.type, [""]):
                known[family.name + suffix] = {*metric._labelnames}
    return known


def expressions() -> list[tuple[str, str]]:
    found = []
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                found.append((f"{path.stem}: {panel['title']}", target["expr"]))
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            found.append((rule.get("alert") or rule["record"], rule["expr"]))
    return found


def test_generated_files_are_not_stale() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "deploy" / "build.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"run: python deploy/build.py\n{done.stdout}{done.stderr}"


def test_all_four_dashboards_are_there() -> None:
    names = [path.stem.removeprefix("attributary-") for path in DASHBOARDS]
    assert names == ["attributions", "drift", "on-demand", "pipeline"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_panel_has_a_unit_a_description_and_a_link(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    assert dashboard["uid"] == path.stem
    assert "__inputs" not in dashboard
    places: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["links"], panel["title"]
        assert panel["targets"], panel["title"]
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & places, f"{panel['title']} overlaps another"
        assert at["x"] + at["w"] <= 24
        places |= cells


def test_every_expression_speaks_of_metrics_and_labels_that_exist() -> None:
    known = known_metrics()
    records = {
        rule["record"]
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for rule in group["rules"]
        if "record" in rule
    }
    found: list[tuple[str, str]] = expressions()
    assert len(found) > 50
    for where, text in found:
        names = _NAME.findall(text)
        assert names or text.startswith("up{"), where
        for name in names:
            assert name in known or name in records or name.startswith("process_"), (where, name)
        for name, selector in re.findall(r"([a-z_:]+)\{([^}]*)\}", text):
            labels = set(re.findall(r"(\w+)\s*[!=]", selector)) - {"job", "instance"}
            assert labels <= known.get(name, labels), (where, name, labels)


def test_every_alert_has_a_severity_and_a_runbook_that_exists() -> None:
    runbooks = (ROOT / "docs" / "runbooks.md").read_text()
    rules: list[dict[str, Any]] = [
        rule
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    assert len(rules) >= 8
    for rule in rules:
        assert rule["labels"]["severity"] in ("warning", "critical"), rule["alert"]
        assert "for" in rule, rule["alert"]
        assert {"summary", "description", "runbook_url"} <= set(rule["annotations"])
        assert f"\n## {rule['alert']}\n" in runbooks, f"docs/runbooks.md lacks {rule['alert']}"
