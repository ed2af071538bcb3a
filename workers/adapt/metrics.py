"""The Prometheus metrics of the bridge, built from a registry that is passed in."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge


@dataclass(frozen=True)
class AdaptMetrics:
    """One bundle per process."""

    messages: Counter
    message_bytes: Counter
    rows: Counter
    rejected: Counter
    skipped: Counter
    lost: Counter
    repeated: Counter
    waiting: Gauge
    waiting_bytes: Gauge
    lag: Gauge

    @classmethod
    def build(cls, registry: CollectorRegistry) -> AdaptMetrics:
        """Register the metrics. Names end in their base unit; counters in ``_total``."""

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"attributary_adapt_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"attributary_adapt_{name}", text, labels, registry=registry)

        return cls(
            messages=counter("messages_total", "Foreign messages read.", "topic"),
            message_bytes=counter("message_bytes_total", "Bytes of foreign messages.", "topic"),
            rows=counter("rows_total", "Rows published.", "model"),
            rejected=counter("rejected_total", "Rows sent to the dead letters.", "reason"),
            skipped=counter(
                "skipped_total", "Foreign messages that are not of what is read.", "reason"
            ),
            lost=counter("lost_halves_total", "Requests and responses that make no row.", "reason"),
            repeated=counter(
                "repeated_total", "Foreign messages read again whose rows were published already."
            ),
            waiting=gauge("waiting_halves", "Requests and responses that wait for the other."),
            waiting_bytes=gauge("waiting_bytes", "Bytes of the messages that wait."),
            lag=gauge(
                "lag_records", "Records of the partition not read yet.", "topic", "partition"
            ),
        )
