"""Dashboards as data: a few plain builders of Grafana's JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

DOCS = "https://github.com/attributary/attributary/blob/main/docs/metrics.md"
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS = 24

Kind = Literal["timeseries", "stat", "bargauge", "table"]


@dataclass(frozen=True)
class Query:
    """One PromQL expression and the legend of its series."""

    expression: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel: what it shows, in which unit, and how to read it.

    ``band``: the names of a lower and an upper series to fill between. ``repeat``: a variable, one panel
    per value.
    """

    title: str
    description: str
    queries: Sequence[Query]
    unit: str
    kind: Kind = "timeseries"
    width: int = 12
    height: int = 8
    band: tuple[str, str] | None = None
    repeat: str | None = None
    maximum: float | None = None


@dataclass(frozen=True)
class Variable:
    """A template variable, filled by a query of label values."""

    name: str
    label: str
    metric: str
    of: str
    several: bool = False


@dataclass(frozen=True)
class Dashboard:
    """A page: ``uid`` is fixed, so that links stay true."""

    uid: str
    title: str
    description: str
    panels: Sequence[Panel]
    variables: Sequence[Variable] = field(default=())

    def build(self) -> dict[str, Any]:
        """Return Grafana's JSON."""
        panels, x, y, row = [], 0, 0, 0
        for number, panel in enumerate(self.panels, start=1):
            if x + panel.width > _COLUMNS:
                x, y, row = 0, y + row, 0
            at = {"x": x, "y": y, "w": panel.width, "h": panel.height}
            panels.append(_panel(number, panel, at))
            x, row = x + panel.width, max(row, panel.height)
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["attributary"],
            "schemaVersion": 39,
            "version": 1,
            "editable": True,
            "graphTooltip": 1,
            "refresh": "10s",
            "time": {"from": "now-1h", "to": "now"},
            "timezone": "browser",
            "templating": {"list": [_datasource(), *(_variable(v) for v in self.variables)]},
            "annotations": {"list": []},
            "links": [
                {
                    "title": "Attributary",
                    "type": "dashboards",
                    "tags": ["attributary"],
                    "asDropdown": True,
                    "includeVars": True,
                    "keepTime": True,
                }
            ],
            "panels": panels,
        }


def _datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
        "current": {},
    }


def _variable(variable: Variable) -> dict[str, Any]:
    query = f"label_values({variable.metric}, {variable.of})"
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": variable.name},
        "refresh": 2,
        "sort": 1,
        "multi": variable.several,
        "includeAll": variable.several,
        "allValue": ".*" if variable.several else None,
        "current": {"text": "All", "value": "$__all"} if variable.several else {},
        "hide": 0,
    }


def _panel(number: int, panel: Panel, at: dict[str, int]) -> dict[str, Any]:
    instant = panel.kind in ("table", "bargauge")
    defaults: dict[str, Any] = {"unit": panel.unit, "custom": {}}
    if panel.maximum is not None:
        defaults |= {"min": 0, "max": panel.maximum}
    if panel.kind == "timeseries":
        defaults["custom"] = {"lineWidth": 1, "fillOpacity": 0, "showPoints": "auto"}
    built: dict[str, Any] = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": at,
        "fieldConfig": {"defaults": defaults, "overrides": _overrides(panel)},
        "options": _options(panel.kind),
        "links": [{"title": "What it means", "url": DOCS, "targetBlank": True}],
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend or "__auto",
                "instant": instant,
                "range": not instant,
                "format": "table" if panel.kind == "table" else "time_series",
            }
            for place, query in enumerate(panel.queries)
        ],
    }
    if panel.kind == "table":
        built["transformations"] = [{"id": "merge", "options": {}}]
    if panel.repeat:
        built |= {"repeat": panel.repeat, "repeatDirection": "h", "maxPerRow": 3}
    return built


def _overrides(panel: Panel) -> list[dict[str, Any]]:
    if panel.band is None:
        return []
    lower, upper = panel.band
    hidden = {"id": "custom.lineWidth", "value": 0}
    return [
        {"matcher": {"id": "byName", "options": lower}, "properties": [hidden]},
        {
            "matcher": {"id": "byName", "options": upper},
            "properties": [
                hidden,
                {"id": "custom.fillBelowTo", "value": lower},
                {"id": "custom.fillOpacity", "value": 20},
            ],
        },
    ]


def _options(kind: Kind) -> dict[str, Any]:
    if kind == "timeseries":
        return {
            "legend": {"displayMode": "table", "placement": "right", "calcs": ["lastNotNull"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    if kind == "table":
        return {"showHeader": True}
    reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    if kind == "stat":
        return {"reduceOptions": reduce, "colorMode": "value", "graphMode": "area"}
    return {"reduceOptions": reduce, "orientation": "horizontal", "displayMode": "gradient"}
