"""Scores and drift as Prometheus gauges, within a budget of series per model."""

from __future__ import annotations

from prometheus_client import Gauge

from attributary.schemas.attribution import LightAgreement, WindowAttribution, WindowDrift
from attributary.workers.stream.metrics import StreamMetrics

Labels = tuple[str, ...]


class ModelGauges:
    """Exports the newest windows of the models that this worker owns.

    Per (model, output, kind of window) the ``most`` features at the top are exported; those that drop out
    are removed, and what is left out is counted. A feature's drift is exported where its score is.
    """

    def __init__(self, metrics: StreamMetrics, most: int) -> None:
        self._metrics = metrics
        self._most = most
        self._scores: dict[Labels, set[str]] = {}
        self._drifts: dict[Labels, set[str]] = {}

    def attributions(self, message: WindowAttribution) -> None:
        """Export one message's scores."""
        metrics = self._metrics
        group = (message.model, message.output, message.window.kind)
        kept = message.features[: self._most]
        names = {feature.name for feature in kept}
        for name in self._scores.get(group, set()) - names:
            self._remove((metrics.score, metrics.score_stderr), (*group, name))
        self._scores[group] = names
        for feature in kept:
            metrics.score.labels(*group, feature.name).set(feature.score)
            if feature.stderr is not None:
                metrics.score_stderr.labels(*group, feature.name).set(feature.stderr)
        metrics.series_dropped.labels(*group).set(len(message.features) - len(kept))
        rows = message.accounting.rows
        metrics.window_thinned.labels(*group).set(
            message.accounting.rows_thinned / rows if rows else 0.0
        )
        self._light(group, message.light_agreement)

    def _light(self, group: Labels, found: LightAgreement | None) -> None:
        """Export how far light scores agree with full ones; what is undefined has no series."""
        metrics = self._metrics
        for gauge, name in (
            (metrics.light_jaccard, "jaccard_at_8"),
            (metrics.light_kendall, "kendall"),
            (metrics.light_spearman, "spearman"),
            (metrics.light_procrustes, "procrustes"),
            (metrics.light_symmetric_kl, "symmetric_kl"),
        ):
            value: float | None = getattr(found, name, None)
            if value is None:
                self._remove((gauge,), group)
            else:
                gauge.labels(*group).set(value)

    def drift(self, message: WindowDrift) -> None:
        """Export one message's drift, of the features with the largest index."""
        metrics = self._metrics
        group = (message.model, message.window.kind, message.reference)
        known = [column for column in message.features if column.psi is not None]
        kept = sorted(known, key=lambda column: -(column.psi or 0.0))[: self._most]
        names = {column.name for column in kept}
        for name in self._drifts.get(group, set()) - names:
            self._remove((metrics.psi, metrics.ks), (*group, name))
        self._drifts[group] = names
        for column in kept:
            metrics.psi.labels(*group, column.name).set(column.psi or 0.0)
            if column.ks is not None:
                metrics.ks.labels(*group, column.name).set(column.ks)
        output = (message.model, message.output, message.window.kind, message.reference)
        if message.output_drift.ks is not None:
            metrics.output_ks.labels(*output).set(message.output_drift.ks)
        if message.attributions.kendall is not None:
            metrics.attribution_kendall.labels(*output).set(message.attributions.kendall)

    def forget(self) -> None:
        """Remove every series: another worker may own these models now."""
        metrics = self._metrics
        for gauge in (
            metrics.score,
            metrics.score_stderr,
            metrics.series_dropped,
            metrics.psi,
            metrics.ks,
            metrics.output_ks,
            metrics.attribution_kendall,
            metrics.window_thinned,
            metrics.light_jaccard,
            metrics.light_kendall,
            metrics.light_spearman,
            metrics.light_procrustes,
            metrics.light_symmetric_kl,
            metrics.watermark,
            metrics.gaps,
        ):
            gauge.clear()
        self._scores.clear()
        self._drifts.clear()

    @staticmethod
    def _remove(gauges: tuple[Gauge, ...], labels: Labels) -> None:
        for gauge in gauges:
            try:
                gauge.remove(*labels)
            except KeyError:
                continue
