"""Scores and drift as Prometheus gauges, within a budget of series per model."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import Gauge

from attributary.schemas.attribution import (
    ColumnDrift,
    FeatureScore,
    LightAgreement,
    Window,
    WindowAttribution,
    WindowDrift,
)
from attributary.workers.stream.metrics import StreamMetrics
from attributary.workers.stream.series import (
    Family,
    Labels,
    Row,
    Shares,
    admitted,
    remove,
    shares,
    show,
)

#: A window that nothing was published of for this long, and for twice its own length, has no series any more.
_KEPT_SECONDS = 86_400.0
_SWEEP_SECONDS = 60.0


@dataclass
class _Shown:
    """The window whose figures are shown, and until when (monotonic) if no other comes."""

    end: int
    until: float


@dataclass
class _Model:
    """What is shown of one model."""

    scored: dict[Labels, _Shown] = field(default_factory=dict)
    drifted: dict[Labels, _Shown] = field(default_factory=dict)
    references: dict[Labels, _Shown] = field(default_factory=dict)
    refused: set[Labels] = field(default_factory=set)
    shares: Shares | None = None
    watermark: _Shown | None = None


class ModelGauges:
    """Exports the newest windows of the models that this worker owns.

    A model has at most ``budget`` series: of its first (output, window) and (output, window, reference), and
    in each of the features at the top, at most ``most``. What is left out is counted.
    """

    def __init__(
        self,
        metrics: StreamMetrics,
        most: int,
        budget: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = m = metrics
        self._most = most
        self._budget = budget
        self._clock = clock
        self._sweep_at = clock() + _SWEEP_SECONDS
        self._models: dict[str, _Model] = {}
        self._scores = Family(
            m.series_dropped,
            m.score, m.score_stderr, m.score_low, m.score_high, m.strength_low, m.rank, m.direction,
            m.effect, m.missing,
        )  # fmt: skip
        self._groups = Family(m.groups_dropped, m.group_score)
        self._drifts = Family(
            m.drift_dropped, m.psi, m.psi_critical, m.ks, m.ks_critical, m.missing_change
        )
        self._light = (
            (m.light_jaccard, "jaccard_at_8"),
            (m.light_kendall, "kendall"),
            (m.light_spearman, "spearman"),
            (m.light_procrustes, "procrustes"),
            (m.light_symmetric_kl, "symmetric_kl"),
        )
        self._of_scored: tuple[Gauge, ...] = (
            m.window_rows, m.window_end, m.window_thinned, *(gauge for gauge, _ in self._light),
        )  # fmt: skip
        self._of_drifted: tuple[Gauge, ...] = (
            m.output_ks, m.output_ks_critical, m.output_psi, m.attribution_kendall,
            m.attribution_change_low, m.drift_rows, m.drift_reference_rows, m.drift_time,
        )  # fmt: skip

    def attributions(self, message: WindowAttribution) -> None:
        """Export one message's scores, unless a newer window's are shown."""
        m, model = self._metrics, self._of(message.model)
        group = (message.model, message.output, message.window.label)
        if not self._admit(model, model.scored, group, message.window, admitted(self._budget)[0]):
            return
        share = self._share(model, max(len(message.groups), self._most_groups(model)))
        self._scores.set(group, message.features, _score, share.scores)
        self._groups.set(group, message.groups, lambda one: (one.name, (one.score,)), share.groups)
        rows = message.accounting.rows
        m.window_rows.labels(*group).set(rows)
        m.window_end.labels(*group).set(message.window.end / 1000)
        m.window_thinned.labels(*group).set(message.accounting.rows_thinned / rows if rows else 0.0)
        self._agreement(group, message.light_agreement)

    def drift(self, message: WindowDrift) -> None:
        """Export one message's drift, of the features with the largest index, unless a newer's is shown."""
        m, model = self._metrics, self._of(message.model)
        compared = (message.model, message.output, message.window.label, message.reference)
        if not self._admit(
            model, model.drifted, compared, message.window, admitted(self._budget)[1]
        ):
            return
        group = (message.model, message.window.label, message.reference)
        model.references[group] = model.drifted[compared]
        share = self._share(model, self._most_groups(model))
        known = [column for column in message.features if column.psi is not None]
        known.sort(key=lambda column: -(column.psi or 0.0))
        self._drifts.set(group, known, _drift, share.drifts)
        show(m.output_ks, compared, message.output_drift.ks)
        show(m.output_ks_critical, compared, message.output_drift.ks_critical)
        show(m.output_psi, compared, message.output_drift.psi)
        show(m.attribution_kendall, compared, message.attributions.kendall)
        show(m.attribution_change_low, compared, message.attributions.change_low)
        m.drift_rows.labels(*compared).set(message.rows)
        m.drift_reference_rows.labels(*compared).set(message.reference_rows)
        m.drift_time.labels(*compared).set(message.computed_at / 1000)

    def watermark(self, name: str, watermark: int) -> None:
        """Export how far a model's event time has come, in milliseconds, as long as it moves."""
        model = self._of(name)
        if model.watermark is None or model.watermark.end != watermark:
            model.watermark = _Shown(watermark, self._clock() + _KEPT_SECONDS)
        if self._clock() < model.watermark.until:
            self._metrics.watermark.labels(name).set(watermark / 1000)

    def sweep(self) -> None:
        """Remove, now and then, what nothing was published of for a long time."""
        now = self._clock()
        if now < self._sweep_at:
            return
        self._sweep_at = now + _SWEEP_SECONDS
        for name, model in list(self._models.items()):
            for shown in (model.scored, model.drifted, model.references):
                for group in [group for group, one in shown.items() if one.until <= now]:
                    self._forget(model, shown, group)
            if model.watermark is not None and model.watermark.until <= now:
                remove(self._metrics.watermark, (name,))

    def forget(self, moved: Callable[[str], bool]) -> None:
        """Remove the series of models that another worker may own now, or that begin anew."""
        for name in [name for name in self._models if moved(name)]:
            model = self._models.pop(name)
            for shown in (model.scored, model.drifted, model.references):
                for group in list(shown):
                    self._forget(model, shown, group)
            for gauge in (self._metrics.watermark, self._metrics.outputs_dropped):
                remove(gauge, (name,))

    def _of(self, name: str) -> _Model:
        return self._models.setdefault(name, _Model())

    def _admit(
        self,
        model: _Model,
        shown: dict[Labels, _Shown],
        group: Labels,
        window: Window,
        most: int,
    ) -> bool:
        """Say whether a message's figures are to be shown: none of a newer window are, and there is room."""
        before = shown.get(group)
        if before is not None and window.end < before.end:
            return False
        if before is None and len(shown) >= most:
            model.refused.add(group)
            self._metrics.outputs_dropped.labels(group[0]).set(len(model.refused))
            return False
        if group in model.refused:
            model.refused.discard(group)
            self._metrics.outputs_dropped.labels(group[0]).set(len(model.refused))
        kept = max(_KEPT_SECONDS, 2 * (window.seconds or 0.0))
        shown[group] = _Shown(window.end, self._clock() + kept)
        return True

    def _most_groups(self, model: _Model) -> int:
        return max(map(self._groups.offered, model.scored), default=0)

    def _share(self, model: _Model, groups: int) -> Shares:
        """Return what each of a model's groups may show now; those that show more are cut."""
        found = shares(
            self._budget,
            self._most,
            scored=len(model.scored),
            drifted=len(model.drifted),
            references=len(model.references),
            groups=groups,
        )
        if found != model.shares:
            model.shares = found
            for group in model.scored:
                self._scores.limit(group, found.scores)
                self._groups.limit(group, found.groups)
            for group in model.references:
                self._drifts.limit(group, found.drifts)
        return found

    def _forget(self, model: _Model, shown: dict[Labels, _Shown], group: Labels) -> None:
        del shown[group]
        if shown is model.references:
            self._drifts.forget(group)
        elif shown is model.drifted:
            for gauge in self._of_drifted:
                remove(gauge, group)
        else:
            self._scores.forget(group)
            self._groups.forget(group)
            for gauge in self._of_scored:
                remove(gauge, group)

    def _agreement(self, group: Labels, found: LightAgreement | None) -> None:
        """Export how far light scores agree with full ones."""
        for gauge, name in self._light:
            show(gauge, group, getattr(found, name, None))


def _score(feature: FeatureScore) -> Row:
    return feature.name, (
        feature.score,
        feature.stderr,
        *feature.interval,
        feature.strength_low,
        feature.rank,
        feature.direction,
        feature.effect,
        feature.missing,
    )


def _drift(column: ColumnDrift) -> Row:
    values = column.psi, column.psi_critical, column.ks, column.ks_critical, column.missing_change
    return column.name, values
