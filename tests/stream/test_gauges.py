"""What Prometheus sees of results: within its budget, without stale series, gone with the partition."""

from __future__ import annotations

import gc

from prometheus_client import CollectorRegistry, generate_latest

from attributary.schemas.attribution import (
    Accounting,
    AttributionDrift,
    ColumnDrift,
    FeatureScore,
    Window,
    WindowAttribution,
    WindowDrift,
)
from attributary.workers.stream.gauges import ModelGauges
from attributary.workers.stream.metrics import StreamMetrics

WINDOW = Window(kind="tumbling", start=0, end=60_000, seconds=60.0)


def feature(name: str, rank: int, effect: float | None = 1.0) -> FeatureScore:
    return FeatureScore(
        name=name,
        score=0.9,
        stderr=0.01,
        interval=(0.88, 0.92),
        effective_rows=100.0,
        direction=1,
        strength_low=0.7,
        rank=rank,
        effect=effect,
        missing=0.0,
    )


def attribution(model: str, output: str, features: list[FeatureScore]) -> WindowAttribution:
    return WindowAttribution(
        model=model,
        output=output,
        window=WINDOW,
        revision=1000,
        final=True,
        watermark=60_000,
        computed_at=61_000,
        epochs=[0],
        output_quartiles=None,
        features=features,
        groups=[feature("all", 1)],
        accounting=Accounting(
            rows=1000,
            rows_accepted=1000,
            rows_rejected={},
            rows_late=0,
            offsets={},
            duplicates=0,
            gaps=0,
        ),
    )


def column(name: str, psi: float | None) -> ColumnDrift:
    return ColumnDrift(
        name=name,
        psi=psi,
        psi_critical=0.1,
        ks=0.2,
        ks_critical=0.05,
        wasserstein=None,
        wasserstein_error=None,
        missing_change=0.0,
        missing_change_interval=None,
    )


def drift(model: str, output: str, columns: list[ColumnDrift], reference: str) -> WindowDrift:
    return WindowDrift(
        model=model,
        output=output,
        window=WINDOW,
        revision=1000,
        reference=reference,
        reference_window=None,
        computed_at=61_000,
        rows=1000,
        reference_rows=900,
        features=columns,
        output_drift=column(output, 0.3),
        attributions=AttributionDrift(
            kendall=0.5,
            spearman=None,
            jaccard_at_8=None,
            ndcg_at_8=None,
            procrustes=None,
            symmetric_kl=None,
            change_low=0.25,
        ),
    )


def shown(registry: CollectorRegistry) -> list[str]:
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if line.startswith("attributary_") and 'model="' in line]


def test_fifty_models_of_ten_classes_and_200_features_stay_within_their_budget() -> None:
    registry = CollectorRegistry()
    gauges = ModelGauges(StreamMetrics.build(registry), most=50, budget=4000)
    features = [feature(f"f{i}", i + 1) for i in range(200)]
    columns = [column(f"f{i}", 0.1) for i in range(200)]
    sizes = []
    for _ in range(3):
        for m in range(50):
            for o in range(10):
                gauges.attributions(attribution(f"m{m}", f"class {o}", features))
                for reference in ("baseline", "preceding"):
                    gauges.drift(drift(f"m{m}", f"class {o}", columns, reference))
        gc.collect()
        sizes.append(len(shown(registry)))
    per_model = sizes[-1] / 50
    # What each output has besides its features: 5 of the window, 1 group, 6 of drift per reference.
    assert per_model <= 4000 + 10 * (5 + 1 + 2 * 6)
    assert per_model > 2000
    assert sizes[1] == sizes[2]
    dropped = registry.get_sample_value(
        "attributary_features_not_exported",
        {"model": "m3", "output": "class 4", "window": "tumbling_60s"},
    )
    assert dropped is not None
    assert 150 <= dropped < 200


def test_a_feature_that_drops_out_and_a_figure_that_ends_leave_no_series() -> None:
    registry = CollectorRegistry()
    gauges = ModelGauges(StreamMetrics.build(registry), most=2, budget=4000)
    labels = {"model": "m", "output": "y", "window": "tumbling_60s"}
    gauges.attributions(attribution("m", "y", [feature("a", 1), feature("b", 2), feature("c", 3)]))
    assert registry.get_sample_value("attributary_rank", {**labels, "feature": "b"}) == 2
    assert registry.get_sample_value("attributary_rank", {**labels, "feature": "c"}) is None
    assert registry.get_sample_value("attributary_features_not_exported", labels) == 1
    gauges.attributions(attribution("m", "y", [feature("a", 1, None), feature("c", 2)]))
    assert registry.get_sample_value("attributary_rank", {**labels, "feature": "b"}) is None
    assert registry.get_sample_value("attributary_rank", {**labels, "feature": "c"}) == 2
    assert registry.get_sample_value("attributary_effect", {**labels, "feature": "a"}) is None
    assert registry.get_sample_value("attributary_effect", {**labels, "feature": "c"}) == 1
    assert (
        registry.get_sample_value("attributary_group_score_ratio", {**labels, "group": "all"})
        == 0.9
    )


def test_drift_stands_beside_what_chance_exceeds_and_what_it_rests_on() -> None:
    registry = CollectorRegistry()
    gauges = ModelGauges(StreamMetrics.build(registry), most=2, budget=4000)
    columns = [
        column("small", 0.01),
        column("large", 0.5),
        column("none", None),
        column("mid", 0.2),
    ]
    gauges.drift(drift("m", "y", columns, "baseline"))
    per_feature = {"model": "m", "window": "tumbling_60s", "reference": "baseline"}
    values = {
        name: registry.get_sample_value("attributary_psi_ratio", {**per_feature, "feature": name})
        for name in ("small", "large", "none", "mid")
    }
    assert values == {"small": None, "large": 0.5, "none": None, "mid": 0.2}
    per_output = {**per_feature, "output": "y"}
    for name, value in (
        ("attributary_output_ks_ratio", 0.2),
        ("attributary_output_ks_critical_ratio", 0.05),
        ("attributary_output_psi_ratio", 0.3),
        ("attributary_attribution_kendall_ratio", 0.5),
        ("attributary_attribution_change_low_ratio", 0.25),
        ("attributary_drift_rows", 1000),
        ("attributary_drift_reference_rows", 900),
        ("attributary_drift_timestamp_seconds", 61),
    ):
        assert registry.get_sample_value(name, per_output) == value, name


def test_nothing_is_left_once_the_partition_has_moved() -> None:
    registry = CollectorRegistry()
    metrics = StreamMetrics.build(registry)
    gauges = ModelGauges(metrics, most=5, budget=4000)
    gauges.attributions(attribution("m", 'a "quoted"\\name\n', [feature('f"\n\\', 1)]))
    gauges.drift(drift("m", "y", [column("a", 0.1)], "baseline"))
    metrics.watermark.labels("m").set(1)
    assert r'feature="f\"\n\\"' in generate_latest(registry).decode()
    gauges.forget()
    assert shown(registry) == []
