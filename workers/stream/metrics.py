"""The Prometheus metrics of the stream workers, built from a registry that is passed in."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_FLUSH_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class StreamMetrics:
    """One bundle per process."""

    rows_accepted: Counter
    rows_rejected: Counter
    messages: Counter
    message_bytes: Counter
    sketches_sent: Counter
    sketch_bytes: Counter
    flush_seconds: Histogram
    lag: Gauge
    sketches_received: Counter
    sketches_superseded: Counter
    gaps: Gauge
    watermark: Gauge
    windows_published: Counter
    publish_seconds: Histogram
    score: Gauge
    score_stderr: Gauge
    psi: Gauge

    @classmethod
    def build(cls, registry: CollectorRegistry) -> StreamMetrics:
        """Register the metrics. Names end in their base unit; counters in ``_total``."""

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"attributary_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"attributary_{name}", text, labels, registry=registry)

        def seconds(name: str, text: str) -> Histogram:
            return Histogram(f"attributary_{name}", text, buckets=_FLUSH_BUCKETS, registry=registry)

        return cls(
            rows_accepted=counter(
                "rows_accepted_total", "Rows counted (a replay repeats).", "model"
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
            sketches_received=counter("sketches_received_total", "Pane sketches received."),
            sketches_superseded=counter(
                "sketches_superseded_total", "Sketches received again with nothing new."
            ),
            gaps=gauge("gap_offsets", "Offsets that no manifest covers.", "topic", "partition"),
            watermark=gauge("watermark_seconds", "Event-time watermark.", "model"),
            windows_published=counter("windows_published_total", "Windows published.", "model"),
            publish_seconds=seconds("publish_seconds", "Time to evaluate and publish once."),
            score=gauge(
                "score_ratio",
                "Co-movement ratio of the newest window.",
                "model",
                "output",
                "feature",
            ),
            score_stderr=gauge(
                "score_stderr_ratio", "Its standard error.", "model", "output", "feature"
            ),
            psi=gauge("psi_ratio", "Population-stability index.", "model", "feature", "reference"),
        )
