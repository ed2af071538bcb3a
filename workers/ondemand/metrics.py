"""The Prometheus metrics of the request workers, built from a registry that is passed in."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from attributary.workers.ondemand.busy_seconds import BusySeconds

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
_ROWS = (1, 4, 16, 64, 256, 1024, 4096, 16_384)


@dataclass(frozen=True)
class OnDemandMetrics:
    """One bundle per process."""

    answers: Counter
    errors: Counter
    dead_letters: Counter
    repeated: Counter
    duplicates: Counter
    request_seconds: Histogram
    waiting_seconds: Histogram
    queued: Gauge
    in_flight: Gauge
    paused: Gauge
    model_calls: Counter
    model_rows: Counter
    joined: Histogram
    batch_rows: Gauge
    halvings: Counter
    device_busy: BusySeconds
    device_memory: Gauge
    models_open: Gauge
    model_loads: Counter
    model_evictions: Counter
    scheduled: Counter
    unique_score: Gauge
    unique_score_low: Gauge
    unique_score_high: Gauge
    unique_score_stderr: Gauge
    unique_rank: Gauge
    unique_information: Gauge
    joint_information: Gauge
    marginal_information: Gauge
    unique_doubts: Gauge
    information_dropped: Gauge
    information_rows: Gauge
    information_time: Gauge
    information_window_end: Gauge
    information_seconds: Gauge
    information_kendall: Gauge
    neighbourhoods_reused: Gauge
    dependence_change: Gauge

    @classmethod
    def build(cls, registry: CollectorRegistry) -> OnDemandMetrics:
        """Register the metrics. Names end in their base unit; counters in ``_total``."""

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"attributary_ondemand_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"attributary_ondemand_{name}", text, labels, registry=registry)

        def histogram(
            name: str, text: str, *labels: str, buckets: tuple[float, ...] = _SECONDS
        ) -> Histogram:
            return Histogram(
                f"attributary_ondemand_{name}", text, labels, buckets=buckets, registry=registry
            )

        def information(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"attributary_unique_{name}", text, ("model", *labels), registry=registry)

        return cls(
            answers=counter(
                "requests_total", "Requests answered, finally.", "model", "method", "outcome"
            ),
            errors=counter("errors_total", "Requests answered with an error.", "model", "code"),
            dead_letters=counter("dead_letters_total", "Requests that nobody can be told of."),
            repeated=counter(
                "repeated_requests_total", "Requests read again that had been answered already."
            ),
            duplicates=counter(
                "duplicate_answers_total",
                "Answers that came after another worker's; they are void.",
            ),
            request_seconds=histogram(
                "request_seconds", "Time to compute a request.", "method", "outcome"
            ),
            waiting_seconds=histogram(
                "waiting_seconds", "Time from the request to the start of the work.", "priority"
            ),
            queued=gauge("queued_requests", "Requests read and not begun.", "priority"),
            in_flight=gauge("in_flight_requests", "Requests being computed."),
            paused=gauge("paused_partitions", "Partitions not read because the queue is full."),
            model_calls=counter("model_calls_total", "Batches given to a model.", "model"),
            model_rows=counter("model_rows_total", "Rows in them.", "model"),
            joined=histogram(
                "joined_requests", "Waiting calls that one batch served.", buckets=_ROWS
            ),
            batch_rows=gauge(
                "batch_rows", "Rows of a model's batches at most, as its memory allows.", "model"
            ),
            halvings=counter(
                "batch_halvings_total", "Batches halved because memory had run out.", "model"
            ),
            device_busy=BusySeconds(
                "attributary_ondemand_device_busy_seconds_total",
                "Time in which models computed there; several at one time count once.",
                ("device",),
                registry=registry,
            ),
            device_memory=gauge(
                "device_memory_bytes",
                "Memory in use where models compute: on `cpu` by their processes, on a GPU by all.",
                "device",
            ),
            models_open=gauge("models_open", "Models held open."),
            model_loads=counter("model_loads_total", "Models opened.", "model", "outcome"),
            model_evictions=counter("model_evictions_total", "Models closed for another."),
            scheduled=counter("scheduled_requests_total", "Scheduled runs asked for.", "model"),
            unique_score=information(
                "score_ratio",
                "MCIR-M of the newest scheduled run: share of information that is the feature's own.",
                "feature",
            ),
            unique_score_low=information(
                "score_low_ratio", "Lower end of its 95 % interval.", "feature"
            ),
            unique_score_high=information(
                "score_high_ratio", "Upper end of its 95 % interval.", "feature"
            ),
            unique_score_stderr=information("score_stderr_ratio", "Its standard error.", "feature"),
            unique_rank=information(
                "rank", "Its rank; none where the feature has no neighbourhood.", "feature"
            ),
            unique_information=information(
                "information_nats", "Information that its neighbours do not give.", "feature"
            ),
            joint_information=information(
                "joint_nats", "Information of the feature and its neighbours together.", "feature"
            ),
            marginal_information=information(
                "marginal_nats", "Information of the feature alone.", "feature"
            ),
            unique_doubts=information(
                "flags", "What makes the score doubtful, how many such flags.", "feature"
            ),
            information_dropped=information(
                "features_not_exported", "Features beyond the series budget."
            ),
            information_rows=information("rows", "Rows that the scores rest on."),
            information_time=information(
                "timestamp_seconds", "When the newest scheduled run was computed."
            ),
            information_window_end=information(
                "window_end_timestamp_seconds", "End of its window, in event time."
            ),
            information_seconds=information("seconds", "Time that it took."),
            information_kendall=information(
                "kendall_ratio", "Agreement of resamples on the ranking, Kendall's tau."
            ),
            neighbourhoods_reused=information(
                "neighbourhoods_reused", "1: neighbourhoods of an earlier run were kept. 0: found."
            ),
            dependence_change=information(
                "dependence_change_ratio",
                "Largest change of a correlation, beyond chance, since they were found.",
            ),
        )
