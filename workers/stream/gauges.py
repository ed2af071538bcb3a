"""Scores and drift as Prometheus gauges, within a budget of series per model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from prometheus_client import Gauge

from attributary.schemas.attribution import (
    ColumnDrift,
    FeatureScore,
    LightAgreement,
    WindowAttribution,
    WindowDrift,
)
from attributary.workers.stream.metrics import StreamMetrics

Labels = tuple[str, ...]
Values = Sequence[float | None]


class Family:
    """Gauges with the same labels: a group's, and one name more. Names that drop out are removed."""

    def __init__(self, *gauges: Gauge) -> None:
        self._gauges = gauges
        self._names: dict[Labels, set[str]] = {}
        self._groups: Counter[str] = Counter()

    def set(self, group: Labels, rows: Mapping[str, Values]) -> None:
        """Show these names of a group, each with a value per gauge; None has no series."""
        for name in self._names.get(group, set()) - set(rows):
            for gauge in self._gauges:
                remove(gauge, (*group, name))
        self._add(group)
        self._names[group] = set(rows)
        for name, values in rows.items():
            for gauge, value in zip(self._gauges, values, strict=True):
                show(gauge, (*group, name), value)

    def share(self, group: Labels, budget: int, most: int) -> int:
        """Return how many names this group may show: its model's budget is split among its groups."""
        self._add(group)
        return min(most, max(budget // (self._groups[group[0]] * len(self._gauges)), 1))

    def _add(self, group: Labels) -> None:
        if group not in self._names:
            self._names[group] = set()
            self._groups[group[0]] += 1

    def clear(self) -> None:
        """Remove every series."""
        for gauge in self._gauges:
            gauge.clear()
        self._names.clear()
        self._groups.clear()


class ModelGauges:
    """Exports the newest windows of the models that this worker owns.

    Per (model, output, window) the features at the top are exported, at most ``most`` and as many as the
    model's ``budget`` of series allows, half of it for scores and half for drift; what is left out is
    counted.
    """

    def __init__(self, metrics: StreamMetrics, most: int, budget: int) -> None:
        self._metrics = metrics
        self._most = most
        self._half = budget // 2
        m = metrics
        self._scores = Family(
            m.score, m.score_stderr, m.strength_low, m.rank, m.direction, m.effect, m.missing
        )
        self._groups = Family(m.group_score)
        self._drifts = Family(m.psi, m.psi_critical, m.ks, m.ks_critical, m.missing_change)
        self._light = (
            (m.light_jaccard, "jaccard_at_8"),
            (m.light_kendall, "kendall"),
            (m.light_spearman, "spearman"),
            (m.light_procrustes, "procrustes"),
            (m.light_symmetric_kl, "symmetric_kl"),
        )
        self._single: tuple[Gauge, ...] = (
            m.series_dropped, m.window_rows, m.window_end, m.window_thinned,
            m.output_ks, m.output_ks_critical, m.output_psi, m.attribution_kendall,
            m.attribution_change_low,
            m.drift_rows, m.drift_reference_rows, m.drift_time,
            *(gauge for gauge, _ in self._light),
            m.watermark, m.gaps,
        )  # fmt: skip

    def attributions(self, message: WindowAttribution) -> None:
        """Export one message's scores."""
        m = self._metrics
        group = (message.model, message.output, message.window.label)
        kept = message.features[: self._scores.share(group, self._half, self._most)]
        self._scores.set(group, {feature.name: _score(feature) for feature in kept})
        self._groups.set(group, {g.name: (g.score,) for g in message.groups[: self._most]})
        rows = message.accounting.rows
        m.series_dropped.labels(*group).set(len(message.features) - len(kept))
        m.window_rows.labels(*group).set(rows)
        m.window_end.labels(*group).set(message.window.end / 1000)
        m.window_thinned.labels(*group).set(message.accounting.rows_thinned / rows if rows else 0.0)
        self._agreement(group, message.light_agreement)

    def drift(self, message: WindowDrift) -> None:
        """Export one message's drift, of the features with the largest index."""
        m = self._metrics
        group = (message.model, message.window.label, message.reference)
        known = [column for column in message.features if column.psi is not None]
        share = self._drifts.share(group, self._half, self._most)
        kept = sorted(known, key=lambda column: -(column.psi or 0.0))[:share]
        self._drifts.set(group, {column.name: _drift(column) for column in kept})
        output = (message.model, message.output, message.window.label, message.reference)
        show(m.output_ks, output, message.output_drift.ks)
        show(m.output_ks_critical, output, message.output_drift.ks_critical)
        show(m.output_psi, output, message.output_drift.psi)
        show(m.attribution_kendall, output, message.attributions.kendall)
        show(m.attribution_change_low, output, message.attributions.change_low)
        m.drift_rows.labels(*output).set(message.rows)
        m.drift_reference_rows.labels(*output).set(message.reference_rows)
        m.drift_time.labels(*output).set(message.computed_at / 1000)

    def forget(self) -> None:
        """Remove every series: another worker may own these models now."""
        for family in (self._scores, self._groups, self._drifts):
            family.clear()
        for gauge in self._single:
            gauge.clear()

    def _agreement(self, group: Labels, found: LightAgreement | None) -> None:
        """Export how far light scores agree with full ones."""
        for gauge, name in self._light:
            show(gauge, group, getattr(found, name, None))


def show(gauge: Gauge, labels: Labels, value: float | None) -> None:
    """Set a series, or remove it where the value is undefined."""
    if value is None:
        remove(gauge, labels)
    else:
        gauge.labels(*labels).set(value)


def remove(gauge: Gauge, labels: Labels) -> None:
    """Remove a series, if it is there."""
    try:
        gauge.remove(*labels)
    except KeyError:
        return


def _score(feature: FeatureScore) -> Values:
    return (
        feature.score,
        feature.stderr,
        feature.strength_low,
        feature.rank,
        feature.direction,
        feature.effect,
        feature.missing,
    )


def _drift(column: ColumnDrift) -> Values:
    return column.psi, column.psi_critical, column.ks, column.ks_critical, column.missing_change
