"""Write what is generated: dashboards, docs/metrics.md, and the rules as the Prometheus operator takes them.
``--check`` says what is stale instead.

python deploy/build.py [--check]
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry

from attributary.service.exposition import ProcessMetrics
from attributary.workers.adapt.metrics import AdaptMetrics
from attributary.workers.ondemand.metrics import OnDemandMetrics
from attributary.workers.stream.metrics import StreamMetrics

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "deploy" / "grafana"))

from dashboards import DASHBOARDS  # noqa: E402 - a folder of its own, not a package

_HEAD = """# Metrics

Every process serves its metrics at `/metrics`, besides `/healthz` and `/readyz`. Written by
`python deploy/build.py` from the code; nothing is edited by hand.

- Times are seconds, sizes bytes, shares ratios from 0 to 1; counters end in `_total`.
- `window` is the kind of window and its lengths: `tumbling_60s`, `hopping_300s_60s`, `decayed_3600s`,
  `lifetime`.
- `reference` is what drift is measured against: `baseline` or `preceding`.
- A model has at most `merge.series_per_model` series of scores and drift. The leading features take them, and
  of many outputs and windows the first; `…_not_exported` counts what was left out. All is on the topics.
- A model's series are removed when its partition moves to another worker or its card changes its windows, a
  feature's when it drops out, and a window's when nothing was published of it for a day, or for twice its
  length.
- The process's own `process_…` and `python_…` metrics come with them.
"""


def metrics_page() -> str:
    """Return docs/metrics.md."""
    registry = CollectorRegistry()
    parts = [_HEAD]
    for title, bundle in (
        ("Stream workers", StreamMetrics.build(registry)),
        ("Request workers", OnDemandMetrics.build(registry)),
        ("The bridge", AdaptMetrics.build(registry)),
        ("Every process", ProcessMetrics.build(registry)),
    ):
        rows = [_row(getattr(bundle, field.name)) for field in fields(bundle)]
        head = "| metric | type | labels | what it is |\n| :-- | :-- | :-- | :-- |\n"
        parts.append(f"## {title}\n\n{head}" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _row(metric: Any) -> str:
    family = metric.describe()[0]
    name = family.name + ("_total" if family.type == "counter" else "")
    labels = ", ".join(f"`{label}`" for label in metric._labelnames)
    text = family.documentation.replace("|", r"\|")
    return f"| `{name}` | {family.type} | {labels} | {text} |"


def prometheus_rule() -> str:
    """Return the PrometheusRule with the groups of deploy/prometheus/rules.yml."""
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yml").read_text("utf-8"))
    rule = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "attributary"},
        "spec": {"groups": rules["groups"]},
    }
    head = "# Written by `python deploy/build.py` from deploy/prometheus/rules.yml.\n"
    return head + yaml.safe_dump(rule, sort_keys=False, width=1000, allow_unicode=True)


def generated() -> dict[Path, str]:
    """Return every generated file and what it must hold."""
    files = {ROOT / "docs" / "metrics.md": metrics_page()}
    monitoring = ROOT / "deploy" / "kubernetes" / "components" / "monitoring"
    files[monitoring / "prometheusrule.yaml"] = prometheus_rule()
    for dashboard in DASHBOARDS:
        path = ROOT / "deploy" / "grafana" / "dashboards" / f"{dashboard.uid}.json"
        files[path] = json.dumps(dashboard.build(), indent=1) + "\n"
    return files


def main() -> int:
    """Write the files; with ``--check`` return 1 where one is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="say what is stale, write nothing")
    asked = parser.parse_args()
    stale = {
        path: text
        for path, text in generated().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }
    for path, text in stale.items():
        print(f"{'stale' if asked.check else 'written'}: {path.relative_to(ROOT)}")
        if not asked.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return int(asked.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
