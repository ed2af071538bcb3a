"""The page of explanations on request: how many, how long, and what went wrong."""

from __future__ import annotations

from builder import Dashboard, Panel, Query
from queries import REQUESTED, alerts, quantile, rate, stat

_OF_MODELS = 'model=~"$model"'
_NO_REQUEST = "no request yet"
_NO_WORKER = "no request worker answers"
_WATCH = "ondemand.md#watch"
_SLOW = 60

_NOW = (
    stat(
        "Requests that wait",
        "Requests read and not begun.",
        "sum(attributary_ondemand_queued_requests)",
        "none",
        _WATCH,
        empty=_NO_REQUEST,
    ),
    stat(
        "Requests in work",
        "Requests that are computed now.",
        "sum(attributary_ondemand_in_flight_requests)",
        "none",
        _WATCH,
        empty=_NO_WORKER,
    ),
    alerts(""),
    stat(
        "Waiting, p95",
        "95th percentile of the time from the request to the start of the work. Alerts begin at a minute.",
        quantile(0.95, "ondemand_waiting_seconds"),
        "s",
        "runbooks.md#attributaryrequestswait",
        limits=((0, "green"), (_SLOW, "red")),
        empty=_NO_REQUEST,
    ),
    stat(
        "Partitions paused",
        "Partitions that are not read because a worker's queue is full.",
        "sum(attributary_ondemand_paused_partitions)",
        "none",
        "runbooks.md#attributaryrequestbacklog",
        limits=((0, "green"), (1, "orange")),
        empty=_NO_WORKER,
    ),
    stat(
        "Dead letters",
        "Requests that nobody can be told of, since the processes began.",
        "sum(attributary_ondemand_dead_letters_total)",
        "none",
        "messages.md#dead-letters",
        limits=((0, "green"), (1, "orange")),
        empty=_NO_WORKER,
    ),
)

_REQUESTS = (
    Panel(
        "Requests answered",
        "Final answers a second, by method and outcome.",
        (
            Query(
                rate("ondemand_requests_total", "method", "outcome", labels=_OF_MODELS),
                "{{method}}: {{outcome}}",
            ),
        ),
        "cps",
        _WATCH,
        empty=_NO_REQUEST,
    ),
    Panel(
        "Errors",
        "Requests answered with an error a second, by its code.",
        (
            Query(
                rate("ondemand_errors_total", "model", "code", labels='model=~"$model|"'),
                "{{model}}: {{code}}",
            ),
        ),
        "cps",
        "ondemand.md#errors",
        empty="no request failed",
    ),
    Panel(
        "Queue",
        "Requests that wait, and that are computed now.",
        (
            Query(
                "sum by (priority) (attributary_ondemand_queued_requests)", "waiting, {{priority}}"
            ),
            Query("sum(attributary_ondemand_in_flight_requests)", "in work"),
        ),
        "none",
        "runbooks.md#attributaryrequestbacklog",
        empty=_NO_WORKER,
    ),
    Panel(
        "Waiting",
        "Median and 95th percentile of the time from the request to the start of the work. Alerts begin at "
        "the dashed line.",
        (
            Query(quantile(0.5, "ondemand_waiting_seconds", "priority"), "{{priority}} p50"),
            Query(quantile(0.95, "ondemand_waiting_seconds", "priority"), "{{priority}} p95"),
        ),
        "s",
        "runbooks.md#attributaryrequestswait",
        empty=_NO_REQUEST,
        limits=((_SLOW, "red"),),
    ),
    Panel(
        "Durations",
        "Median and 95th percentile of the time that a request is computed, by method.",
        (
            Query(quantile(0.5, "ondemand_request_seconds", "method"), "{{method}} p50"),
            Query(quantile(0.95, "ondemand_request_seconds", "method"), "{{method}} p95"),
        ),
        "s",
        _WATCH,
        empty=_NO_REQUEST,
    ),
    Panel(
        "Dead letters and repetitions",
        "A second: requests that nobody can be told of, requests read again that had been answered, and "
        "answers that came after another worker's.",
        (
            Query(rate("ondemand_dead_letters_total"), "dead letters"),
            Query(rate("ondemand_repeated_requests_total"), "read again"),
            Query(rate("ondemand_duplicate_answers_total"), "late answers"),
        ),
        "cps",
        "ondemand.md#what-is-promised",
        empty=_NO_WORKER,
    ),
    Panel(
        "Device use",
        "Share of the time in which models compute on each device.",
        (
            Query(
                rate("ondemand_device_busy_seconds_total", "instance", "device"),
                "{{instance}}: {{device}}",
            ),
        ),
        "percentunit",
        _WATCH,
        empty=_NO_WORKER,
    ),
    Panel(
        "Device memory",
        "Memory that models use on each device.",
        (
            Query(
                "max by (instance, device) (attributary_ondemand_device_memory_bytes)",
                "{{instance}}: {{device}}",
            ),
        ),
        "bytes",
        _WATCH,
        empty=_NO_WORKER,
    ),
    Panel(
        "Model evaluations",
        "Rows a second that models are asked for, by model.",
        (Query(rate("ondemand_model_rows_total", "model", labels=_OF_MODELS), "{{model}}"),),
        "cps",
        _WATCH,
        empty=_NO_REQUEST,
    ),
    Panel(
        "Rows of a batch at most",
        "As the model's memory allows: halved where it has run out.",
        (
            Query(
                f"max by (model, instance) (attributary_ondemand_batch_rows{{{_OF_MODELS}}})",
                "{{model}}, {{instance}}",
            ),
        ),
        "short",
        "ondemand.md#settings",
        empty=_NO_REQUEST,
    ),
    Panel(
        "Models opened and closed",
        "A second: models opened, by outcome, and closed to make room for another.",
        (
            Query(
                rate("ondemand_model_loads_total", "model", "outcome", labels=_OF_MODELS),
                "{{model}}: {{outcome}}",
            ),
            Query(rate("ondemand_model_evictions_total"), "closed for another"),
        ),
        "cps",
        "models.md#what-happens-to-a-model-that-misbehaves",
        empty=_NO_WORKER,
    ),
    Panel(
        "Models open",
        "Models that a process holds open.",
        (Query("max by (instance) (attributary_ondemand_models_open)", "{{instance}}"),),
        "none",
        "models.md#what-happens-to-a-model-that-misbehaves",
        empty=_NO_WORKER,
    ),
)

ON_DEMAND = Dashboard(
    uid="attributary-on-demand",
    title="Attributary / On demand",
    description="Explanations on request: how many, how long, and what went wrong.",
    variables=(REQUESTED,),
    panels=(*_NOW, *_REQUESTS),
)
