"""The Prometheus metrics of the stream workers, built from a registry that is passed in."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_FLUSH_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class StreamMetrics:
    """One bundle per process."""

    rows_accepted: Counter
    rows_thinned: Counter
    rows_rejected: Counter
    messages: Counter
    message_bytes: Counter
    sketches_sent: Counter
    sketch_bytes: Counter
    flush_seconds: Histogram
    lag: Gauge
    lost: Counter
    sketched: Gauge
    renewals_held_back: Gauge
    sketches_received: Counter
    sketches_superseded: Gauge
    sketches_unusable: Counter
    models_refused: Gauge
    settled_early: Gauge
    gaps: Gauge
    beyond_end: Gauge
    watermark: Gauge
    windows_published: Counter
    publish_seconds: Histogram
    snapshot_time: Gauge
    snapshot_seconds: Histogram
    snapshot_bytes: Counter
    snapshot_failures: Counter
    score: Gauge
    score_stderr: Gauge
    score_low: Gauge
    score_high: Gauge
    strength_low: Gauge
    rank: Gauge
    direction: Gauge
    effect: Gauge
    missing: Gauge
    group_score: Gauge
    window_rows: Gauge
    window_end: Gauge
    series_dropped: Gauge
    groups_dropped: Gauge
    drift_dropped: Gauge
    outputs_dropped: Gauge
    psi: Gauge
    psi_critical: Gauge
    ks: Gauge
    ks_critical: Gauge
    missing_change: Gauge
    output_ks: Gauge
    output_ks_critical: Gauge
    output_psi: Gauge
    attribution_kendall: Gauge
    attribution_change_low: Gauge
    drift_rows: Gauge
    drift_reference_rows: Gauge
    drift_time: Gauge
    window_thinned: Gauge
    light_jaccard: Gauge
    light_kendall: Gauge
    light_spearman: Gauge
    light_procrustes: Gauge
    light_symmetric_kl: Gauge

    @classmethod
    def build(cls, registry: CollectorRegistry) -> StreamMetrics:
        """Register the metrics. Names end in their base unit; counters in ``_total``."""

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"attributary_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"attributary_{name}", text, labels, registry=registry)

        def seconds(name: str, text: str) -> Histogram:
            return Histogram(f"attributary_{name}", text, buckets=_FLUSH_BUCKETS, registry=registry)

        scored = ("model", "output", "window", "feature")
        drifted = ("model", "window", "reference", "feature")
        compared = ("model", "output", "window", "reference")
        light = ("model", "output", "window")
        return cls(
            rows_accepted=counter(
                "rows_accepted_total", "Rows counted (a replay repeats).", "model"
            ),
            rows_thinned=counter(
                "rows_thinned_total",
                "Rows counted that the sketches leave out, in the lightweight mode.",
                "model",
            ),
            rows_rejected=counter("rows_rejected_total", "Rows rejected.", "model", "reason"),
            messages=counter("messages_total", "Messages read from the rows topic."),
            message_bytes=counter("message_bytes_total", "Bytes read from the rows topic."),
            sketches_sent=counter("sketches_sent_total", "Pane sketches sent."),
            sketch_bytes=counter("sketch_bytes_total", "Bytes of pane sketches sent."),
            flush_seconds=seconds("flush_seconds", "Time to build and acknowledge one flush."),
            lag=gauge(
                "lag_records", "Records of the partition not read yet.", "topic", "partition"
            ),
            lost=counter(
                "lost_offsets_total",
                "Offsets that the rows topic dropped before they were read and committed.",
                "topic",
                "partition",
            ),
            sketched=gauge(
                "sketched_ratio",
                "Share of the rows that the newest block sketches.",
                "topic",
                "partition",
            ),
            renewals_held_back=gauge(
                "grid_renewals_held_back",
                "Blocks whose rows had left a grid that was not renewed again, since assigned.",
            ),
            sketches_received=counter("sketches_received_total", "Pane sketches received."),
            sketches_superseded=gauge(
                "sketches_superseded", "Sketches received again with nothing new, since assigned."
            ),
            sketches_unusable=counter(
                "sketches_unusable_total", "Pane sketches and manifests that could not be used."
            ),
            models_refused=gauge(
                "models_refused", "Models beyond merge.max_models, whose sketches are left out."
            ),
            settled_early=gauge(
                "windows_settled_early",
                "Windows published before their time because too many were open, since assigned.",
            ),
            gaps=gauge("gap_offsets", "Offsets that no manifest covers.", "topic", "partition"),
            beyond_end=gauge(
                "counted_beyond_end_offsets",
                "Offsets counted behind the end of the log: it lost its end, or is a new one.",
                "topic",
                "partition",
            ),
            watermark=gauge(
                "watermark_timestamp_seconds",
                "Event-time watermark, seconds since 1970.",
                "model",
            ),
            windows_published=counter("windows_published_total", "Windows published.", "model"),
            publish_seconds=seconds("publish_seconds", "Time to evaluate and publish once."),
            snapshot_time=gauge(
                "snapshot_timestamp_seconds",
                "When the partition's newest snapshot was acknowledged, seconds since 1970.",
                "partition",
            ),
            snapshot_seconds=seconds(
                "snapshot_seconds", "Time to build and acknowledge one partition's snapshot."
            ),
            snapshot_bytes=counter("snapshot_bytes_total", "Bytes of snapshots sent."),
            snapshot_failures=counter(
                "snapshot_failures_total",
                "Snapshots not written, not readable, or older than what the log still holds.",
                "kind",
            ),
            score=gauge("score_ratio", "Co-movement ratio of the newest window.", *scored),
            score_stderr=gauge("score_stderr_ratio", "Its standard error.", *scored),
            score_low=gauge("score_low_ratio", "Lower end of its 95 % interval.", *scored),
            score_high=gauge("score_high_ratio", "Upper end of its 95 % interval.", *scored),
            strength_low=gauge(
                "strength_low_ratio",
                "Lower end of the interval of the strength |2 CIR - 1|: what features are ranked by.",
                *scored,
            ),
            rank=gauge("rank", "Rank by strength_low; 1 leads.", *scored),
            direction=gauge(
                "direction",
                "1: the output rises with the feature, -1: it falls, 0: neither.",
                *scored,
            ),
            effect=gauge(
                "effect",
                "Mean output in the feature's upper quartile minus that in its lower, output units.",
                *scored,
            ),
            missing=gauge(
                "missing_ratio", "Share of the rows without a finite value of the feature.", *scored
            ),
            group_score=gauge(
                "group_score_ratio",
                "Co-movement ratio of a group of features.",
                *scored[:3],
                "group",
            ),
            window_rows=gauge("window_rows", "Rows of the newest window.", *scored[:3]),
            window_end=gauge(
                "window_end_timestamp_seconds",
                "End of the newest window in event time, seconds since 1970.",
                *scored[:3],
            ),
            series_dropped=gauge(
                "features_not_exported", "Features beyond the series budget.", *scored[:3]
            ),
            groups_dropped=gauge(
                "groups_not_exported", "Groups of features beyond it.", *scored[:3]
            ),
            drift_dropped=gauge(
                "drift_features_not_exported", "Features beyond it, of drift.", *drifted[:3]
            ),
            outputs_dropped=gauge(
                "outputs_not_exported",
                "Pairs of output and window beyond it, and such triples with a reference.",
                "model",
            ),
            psi=gauge("psi_ratio", "Population-stability index of a feature.", *drifted),
            psi_critical=gauge(
                "psi_critical_ratio",
                "What 5 % of windows exceed although nothing changed.",
                *drifted,
            ),
            ks=gauge("ks_ratio", "Kolmogorov-Smirnov distance of a feature.", *drifted),
            ks_critical=gauge(
                "ks_critical_ratio",
                "What 5 % of windows exceed although nothing changed.",
                *drifted,
            ),
            missing_change=gauge(
                "missing_change_ratio", "Missing rate minus the reference's.", *drifted
            ),
            output_ks=gauge(
                "output_ks_ratio", "Kolmogorov-Smirnov distance of an output.", *compared
            ),
            output_ks_critical=gauge(
                "output_ks_critical_ratio",
                "What 5 % of windows exceed although nothing changed.",
                *compared,
            ),
            output_psi=gauge(
                "output_psi_ratio", "Population-stability index of an output.", *compared
            ),
            drift_rows=gauge("drift_rows", "Rows of the window compared.", *compared),
            drift_reference_rows=gauge("drift_reference_rows", "Rows of its reference.", *compared),
            drift_time=gauge(
                "drift_timestamp_seconds", "When drift was computed, seconds since 1970.", *compared
            ),
            attribution_kendall=gauge(
                "attribution_kendall_ratio",
                "Kendall's tau of the scores, reference to window.",
                *compared,
            ),
            attribution_change_low=gauge(
                "attribution_change_low_ratio",
                "Least that the surest change of a signed strength 2·CIR - 1 is; 0 within chance.",
                *compared,
            ),
            window_thinned=gauge(
                "window_thinned_ratio",
                "Share of the window's rows that its scores leave out.",
                *light,
            ),
            light_jaccard=gauge(
                "light_jaccard_at_8_ratio",
                "Overlap of the 8 strongest features, light and full scores.",
                *light,
            ),
            light_kendall=gauge(
                "light_kendall_ratio", "Kendall's tau of light and full scores.", *light
            ),
            light_spearman=gauge(
                "light_spearman_ratio", "Spearman's rho of light and full scores.", *light
            ),
            light_procrustes=gauge(
                "light_procrustes_ratio", "Procrustes residual of light and full scores.", *light
            ),
            light_symmetric_kl=gauge(
                "light_symmetric_kl_nats", "Divergence of light and full scores.", *light
            ),
        )
