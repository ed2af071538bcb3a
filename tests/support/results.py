"""Messages of the results topics, as tests want them."""

from __future__ import annotations

from typing import Any

from attributary.schemas.attribution import (
    Accounting,
    AttributionDrift,
    ColumnDrift,
    FeatureScore,
    Window,
    WindowAttribution,
    WindowDrift,
)

DAY = 86_400_000
MAY = 1_367_366_400_000  # 2013-05-01 UTC


def score(name: str, value: float, rank: int, **other: Any) -> FeatureScore:
    return FeatureScore(
        name=name,
        score=value,
        stderr=0.004,
        interval=(value - 0.008, value + 0.008),
        effective_rows=1000.0,
        direction=1 if value > 0.5 else -1 if value < 0.5 else 0,
        strength_low=abs(2 * value - 1),
        rank=rank,
        **other,
    )


def hopping(start: int, days: int = 28) -> Window:
    return Window(
        kind="hopping",
        start=start,
        end=start + days * DAY,
        seconds=days * 86_400.0,
        hop_seconds=7 * 86_400.0,
    )


LIFETIME = Window(kind="lifetime", start=0, end=MAY)


def attribution(
    window: Window, *, output: str = "arrival_delay", revision: int = 5000, final: bool = True,
    features: list[FeatureScore] | None = None, watermark: int = MAY,
) -> WindowAttribution:  # fmt: skip
    return WindowAttribution(
        model="flight-delay",
        output=output,
        window=window,
        revision=revision,
        final=final,
        watermark=watermark,
        computed_at=0,
        epochs=[0],
        output_quartiles=(-10.0, -3.0, 12.0),
        features=features
        or [
            score("visib", 0.074, 2, effect=-31.4, effect_stderr=2.0),
            score("dep_delay", 0.998, 1, effect=46.25, effect_stderr=0.25),
            score("carrier=" + "A-very-long-airline", 0.5, 3),
        ],
        groups=[score("weather", 0.44, 2), score("carriers", 0.779, 1)],
        accounting=Accounting(
            rows=revision, rows_accepted=revision, rows_rejected={}, rows_late=0, offsets={},
            duplicates=0, gaps=0,
        ),
    )  # fmt: skip


def drift(window: Window, *, output: str = "arrival_delay", temp: float = 3.25) -> WindowDrift:
    def column(
        name: str, psi: float | None, moved: float | None = None, critical: float = 0.02
    ) -> ColumnDrift:
        return ColumnDrift(
            name=name, psi=psi, psi_critical=critical, ks=0.1, ks_critical=0.01,
            wasserstein=moved, wasserstein_error=0.1, missing_change=0.0,
            missing_change_interval=None,
        )  # fmt: skip

    return WindowDrift(
        model="flight-delay",
        output=output,
        window=window,
        revision=5000,
        reference="baseline",
        reference_window=hopping(MAY - 28 * DAY),
        computed_at=0,
        rows=5000,
        reference_rows=4000,
        features=[
            column("humid", 0.04), column("temp", temp), column("dest=XYZ", None),
            column("wind", 0.31, critical=0.5),
        ],
        output_drift=column(output, 0.15, 4.5),
        attributions=AttributionDrift(
            kendall=0.82, spearman=None, jaccard_at_8=None, ndcg_at_8=None, procrustes=None,
            symmetric_kl=None,
        ),
    )  # fmt: skip
