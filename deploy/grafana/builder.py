"""Dashboards as data: a few plain builders of Grafana's JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

DOCS = "https://github.com/attributary/attributary/blob/main/docs/"
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS = 24
_NEUTRAL = "text"

Kind = Literal["timeseries", "stat", "bargauge", "table", "state-timeline"]
#: A value from which on a colour says more than the number.
Limit = tuple[float, str]
#: A value, the word that is shown for it, its colour.
Name = tuple[float, str, str]


@dataclass(frozen=True)
class Query:
    """One PromQL expression and the legend of its series; in a table, the title of its column."""

    expression: str
    legend: str = ""


@dataclass(frozen=True)
class Band:
    """Which queries draw an interval: the lower end, the upper end, what lies within, by their places."""

    lower: int
    upper: int
    middle: int
    colour: str


@dataclass(frozen=True)
class Column:
    """How a table shows a column, or a graph the series of one legend."""

    title: str
    unit: str
    bar: bool = False
    right: bool = False
    names: Sequence[Name] = ()


@dataclass(frozen=True)
class Panel:
    """One panel: what it shows, in which unit, and how to read it.

    ``doc``: the page and heading of docs/ that say more. ``empty``: what is shown without data. ``limits``:
    from where on a value is coloured, and drawn as lines in a graph. ``names``: words for values.
    ``columns``: what has a unit of its own. ``first``: the column that a table is sorted by,
    with a minus the largest first.
    """

    title: str
    description: str
    queries: Sequence[Query]
    unit: str
    doc: str
    empty: str = "nothing yet"
    kind: Kind = "timeseries"
    width: int = 12
    height: int = 8
    limits: Sequence[Limit] = ()
    bands: Sequence[Band] = ()
    columns: Sequence[Column] = ()
    names: Sequence[Name] = ()
    first: str = ""
    maximum: float | None = None


@dataclass(frozen=True)
class Row:
    """Panels below a heading, folded until it is opened: folded panels ask nothing."""

    title: str
    panels: Sequence[Panel]


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
    panels: Sequence[Panel | Row]
    variables: Sequence[Variable] = field(default=())

    def build(self) -> dict[str, Any]:
        """Return Grafana's JSON."""
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
            "panels": _Layout().place(self.panels),
        }


class _Layout:
    """Places panels from left to right, and counts them."""

    def __init__(self) -> None:
        self._number = self._x = self._y = self._height = 0

    def place(self, panels: Sequence[Panel | Row]) -> list[dict[str, Any]]:
        """Return the panels with their places; those of a row begin below it."""
        return [self._row(each) if isinstance(each, Row) else self._panel(each) for each in panels]

    def _panel(self, panel: Panel) -> dict[str, Any]:
        if self._x + panel.width > _COLUMNS:
            self._break()
        at = {"x": self._x, "y": self._y, "w": panel.width, "h": panel.height}
        self._x += panel.width
        self._height = max(self._height, panel.height)
        self._number += 1
        return _panel(self._number, panel, at)

    def _row(self, row: Row) -> dict[str, Any]:
        self._break()
        at = {"x": 0, "y": self._y, "w": _COLUMNS, "h": 1}
        self._number, self._y = self._number + 1, self._y + 1
        built = {"id": self._number, "type": "row", "title": row.title, "collapsed": True}
        built |= {"gridPos": at, "panels": self.place(row.panels)}
        self._break()
        return built

    def _break(self) -> None:
        self._x, self._y, self._height = 0, self._y + self._height, 0


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
    built: dict[str, Any] = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": at,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel)},
        "options": _options(panel.kind),
        "links": [{"title": "What it means", "url": DOCS + panel.doc, "targetBlank": True}],
        "targets": [
            {
                "refId": _letter(place),
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
        built["transformations"] = _table(panel)
    return built


def _letter(place: int) -> str:
    return chr(ord("A") + place)


def _defaults(panel: Panel) -> dict[str, Any]:
    """Return how values look. Without limits of a panel's own Grafana would turn them red from 80 on."""
    graph = panel.kind == "timeseries"
    base = "transparent" if graph else _NEUTRAL
    steps: list[dict[str, Any]] = [{"color": base, "value": None}]
    steps += [{"color": colour, "value": value} for value, colour in panel.limits]
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "noValue": panel.empty,
        "thresholds": {"mode": "absolute", "steps": steps},
        "color": {"mode": "palette-classic" if graph or not panel.limits else "thresholds"},
        "custom": {},
    }
    if panel.kind == "stat" and not panel.limits:
        defaults["color"] = {"mode": "fixed", "fixedColor": _NEUTRAL}
    if panel.maximum is not None:
        defaults |= {"min": 0, "max": panel.maximum}
    if panel.names:
        defaults["mappings"] = _mappings(panel.names)
    if graph:
        style = {"mode": "dashed" if panel.limits else "off"}
        defaults["custom"] = {"lineWidth": 1, "fillOpacity": 0, "showPoints": "auto"}
        defaults["custom"]["thresholdsStyle"] = style
    if panel.kind == "state-timeline":
        defaults["custom"] = {"lineWidth": 0, "fillOpacity": 70}
    return defaults


def _mappings(names: Sequence[Name]) -> list[dict[str, Any]]:
    words = {f"{value:g}": {"text": text, "color": colour} for value, text, colour in names}
    return [{"type": "value", "options": words}]


def _overrides(panel: Panel) -> list[dict[str, Any]]:
    found = []
    for band in panel.bands:
        lower = panel.queries[band.lower].legend
        only_tooltip = {"legend": True, "tooltip": False, "viz": False}
        bare: list[dict[str, Any]] = [
            {"id": "custom.lineWidth", "value": 0},
            {"id": "custom.showPoints", "value": "never"},
            {"id": "custom.hideFrom", "value": only_tooltip},
        ]
        fill: list[dict[str, Any]] = [
            {"id": "custom.fillBelowTo", "value": lower},
            {"id": "custom.fillOpacity", "value": 15},
        ]
        for place, more in ((band.lower, bare), (band.upper, bare + fill), (band.middle, [])):
            fixed = {"id": "color", "value": {"mode": "fixed", "fixedColor": band.colour}}
            found.append(_override("byFrameRefID", _letter(place), [fixed, *more]))
    for column in panel.columns:
        properties: list[dict[str, Any]] = [{"id": "unit", "value": column.unit}]
        if column.bar:
            cell = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
            properties += [
                {"id": "custom.cellOptions", "value": cell},
                {"id": "min", "value": 0},
                {"id": "max", "value": 1},
            ]
        if column.names:
            properties.append({"id": "mappings", "value": _mappings(column.names)})
        if column.right:
            properties.append({"id": "custom.axisPlacement", "value": "right"})
        found.append(_override("byName", column.title, properties))
    return found


def _override(matcher: str, options: str, properties: list[dict[str, Any]]) -> dict[str, Any]:
    return {"matcher": {"id": matcher, "options": options}, "properties": properties}


def _table(panel: Panel) -> list[dict[str, Any]]:
    """Return what makes one table of the queries: a row for each set of labels, a column for each query."""
    only = len(panel.queries) == 1
    titles = {
        "Value" if only else f"Value #{_letter(place)}": query.legend
        for place, query in enumerate(panel.queries)
    }
    organized = {"excludeByName": {"Time": True}, "renameByName": titles, "indexByName": {}}
    found: list[dict[str, Any]] = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": organized},
    ]
    if panel.first:
        order = {"field": panel.first.removeprefix("-"), "desc": panel.first.startswith("-")}
        found.append({"id": "sortBy", "options": {"sort": [order]}})
    return found


def _options(kind: Kind) -> dict[str, Any]:
    if kind == "timeseries":
        return {
            "legend": {"displayMode": "table", "placement": "right", "calcs": ["lastNotNull"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    if kind == "table":
        return {"showHeader": True}
    if kind == "state-timeline":
        return {
            "showValue": "auto",
            "mergeValues": True,
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        }
    reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    if kind == "stat":
        return {"reduceOptions": reduce, "colorMode": "value", "graphMode": "area"}
    return {"reduceOptions": reduce, "orientation": "horizontal", "displayMode": "basic"}
