"""Scheduled runs as Prometheus gauges, within a budget of series per model."""

from __future__ import annotations

from collections.abc import Collection

from attributary.schemas.explanation import UniqueInformation
from attributary.workers.ondemand.metrics import OnDemandMetrics
from attributary.workers.ondemand.scheduled_runs import ScheduledRun
from attributary.workers.stream.series import Family, Row, remove, show

#: Gauges of a feature.
_GAUGES = 9


class InformationGauges:
    """Exports the newest run of the models whose partition this worker owns.

    The ranked features come first, then the others by their marginal; at most ``most`` and as many as the
    ``budget`` of series allows. What is left out is counted.
    """

    def __init__(self, metrics: OnDemandMetrics, most: int, budget: int) -> None:
        m = metrics
        self._most = most
        self._budget = budget
        # A feature that is not ranked has a marginal and no score, and one with doubts says so.
        self._features = Family(
            m.information_dropped,
            m.unique_score, m.unique_score_low, m.unique_score_high, m.unique_score_stderr,
            m.unique_rank, m.unique_information, m.joint_information, m.marginal_information,
            m.unique_doubts,
        )  # fmt: skip
        self._single = {
            m.information_rows: lambda run: float(run.result.rows),
            m.information_time: lambda run: run.answer.computed_at / 1000,
            m.information_window_end: _window_end,
            m.information_seconds: lambda run: run.answer.seconds,
            m.information_kendall: _kendall,
            m.neighbourhoods_reused: _reused,
            m.dependence_change: _change,
        }
        self._shown: dict[str, ScheduledRun] = {}

    def show(self, run: ScheduledRun) -> None:
        """Export a run, unless it is there already."""
        if self._shown.get(run.model) is run:
            return
        self._shown[run.model] = run
        group = (run.model,)
        most = (self._budget - len(self._single) - 1) // _GAUGES
        self._features.set(group, run.result.features, _feature, min(self._most, most))
        for gauge, value in self._single.items():
            show(gauge, group, value(run))

    def keep(self, models: Collection[str]) -> None:
        """Remove the series of all other models: another worker owns them, or nobody asks any more."""
        for model in [model for model in self._shown if model not in models]:
            del self._shown[model]
            self._features.forget((model,))
            for gauge in self._single:
                remove(gauge, (model,))


def _feature(one: UniqueInformation) -> Row:
    interval = one.interval if one.ranked and one.interval is not None else (None, None)
    return one.feature, (
        one.score if one.ranked else None,
        *interval,
        one.stderr if one.ranked else None,
        one.rank,
        one.unique if one.ranked else None,
        one.joint if one.ranked else None,
        one.marginal,
        float(len(one.flags)),
    )


def _window_end(run: ScheduledRun) -> float | None:
    window = run.result.window
    return None if window is None or window.end is None else window.end / 1000


def _kendall(run: ScheduledRun) -> float | None:
    return None if run.result.stability is None else run.result.stability.kendall


def _reused(run: ScheduledRun) -> float:
    source = run.result.neighbourhoods
    return float(source is not None and source.origin == "reused")


def _change(run: ScheduledRun) -> float | None:
    source = run.result.neighbourhoods
    return None if source is None or source.change is None else source.change.largest
