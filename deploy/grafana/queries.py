"""What the pages have in common: their variables, and parts of PromQL.

A model's series go to another process with its partition: what is drawn is aggregated by the model's labels,
so that it stays one line. What leads is what leads at the end of the shown time, so that lines do not break.
"""

from __future__ import annotations

from typing import Any

from builder import Panel, Query, Variable

MODEL = Variable("model", "Model", "attributary_windows_published_total", "model")
MODELS = Variable("model", "Model", "attributary_rows_accepted_total", "model", several=True)
REQUESTED = Variable("model", "Model", "attributary_ondemand_requests_total", "model", several=True)
OUTPUT = Variable("output", "Output", 'attributary_window_rows{model="$model"}', "output")
WINDOW = Variable("window", "Window", 'attributary_window_rows{model="$model"}', "window")
REFERENCE = Variable(
    "reference", "Reference", 'attributary_drift_rows{model="$model"}', "reference"
)

ONE = 'model="$model",output="$output",window="$window"'


def most(metric: str, labels: str, *by: str) -> str:
    """Return a metric as one series for each of these labels, whoever exports it."""
    return f"max by ({', '.join(by)}) (attributary_{metric}{{{labels}}})"


def newest(metric: str, labels: str, *by: str) -> str:
    """Return the same as it was at the end of the shown time, also while an owner is looked for."""
    series = f"last_over_time(attributary_{metric}{{{labels}}}[5m] @ end())"
    return f"max by ({', '.join(by)}) ({series})"


def rate(metric: str, *by: str, labels: str = "") -> str:
    """Return how much a counter grows a second."""
    return f"sum by ({', '.join(by)}) (rate(attributary_{metric}{{{labels}}}[$__rate_interval]))"


def quantile(q: float, metric: str, *by: str) -> str:
    """Return a quantile of a histogram."""
    return f"histogram_quantile({q:g}, {rate(f'{metric}_bucket', *by, 'le')})"


def age(metric: str, labels: str, *by: str) -> str:
    """Return how long ago a timestamp is."""
    return f"time() - {most(metric, labels, *by)}"


def stat(title: str, description: str, expression: str, unit: str, doc: str, **more: Any) -> Panel:
    """Return a small panel of one number; ``more`` are fields of the panel."""
    given = {"kind": "stat", "width": 4, "height": 4, **more}
    return Panel(title, description, (Query(expression, title),), unit, doc, **given)


def alerts(labels: str, width: int = 4) -> Panel:
    """Return how many alerts fire."""
    return stat(
        "Alerts",
        "Alerts of Attributary that fire now. The runbooks say what to do.",
        f'count(ALERTS{{alertname=~"Attributary.*",alertstate="firing"{labels}}}) or vector(0)',
        "none",
        "runbooks.md#runbooks",
        limits=((1, "red"),),
        width=width,
    )
