"""What Prometheus sees of results: within its budget, without stale series, gone with the partition."""

from __future__ import annotations

import gc
import sys

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from attributary.schemas.attribution import (
    Accounting,
    AttributionDrift,
    ColumnDrift,
    FeatureScore,
    LightAgreement,
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


def attribution(
    model: str, output: str, features: list[FeatureScore], window: Window = WINDOW
) -> WindowAttribution:
    return WindowAttribution(
        model=model,
        output=output,
        window=window,
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


def drift(
    model: str,
    output: str,
    columns: list[ColumnDrift],
    reference: str,
    window: Window = WINDOW,
) -> WindowDrift:
    return WindowDrift(
        model=model,
        output=output,
        window=window,
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


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    found: float | None = registry.get_sample_value(f"attributary_{name}", labels)
    return found


def light() -> LightAgreement:
    return LightAgreement.model_construct(
        jaccard_at_8=1.0, kendall=1.0, spearman=1.0, procrustes=0.0, symmetric_kl=0.0
    )


def export(gauges: ModelGauges, models: int, outputs: int, windows: int, groups: int) -> None:
    """A round of everything that a model of 200 features can have."""
    features = [feature(f"f{i}", i + 1) for i in range(200)]
    columns = [column(f"f{i}", 0.1) for i in range(200)]
    for m in range(models):
        for w in range(windows):
            window = Window(kind="tumbling", start=0, end=60_000, seconds=60.0 + w)
            for o in range(outputs):
                scores = attribution(f"m{m}", f"class {o}", features, window)
                grouped = [feature(f"g{i}", 1) for i in range(groups)]
                gauges.attributions(
                    scores.model_copy(update={"groups": grouped, "light_agreement": light()})
                )
                for reference in ("baseline", "preceding"):
                    gauges.drift(drift(f"m{m}", f"class {o}", columns, reference, window))
        gauges.watermark(f"m{m}", 60_000)


@pytest.mark.parametrize(
    ("outputs", "windows", "groups", "least"),
    [(1, 2, 5, 1_300), (10, 1, 1, 3_500), (10, 4, 50, 3_000), (100, 4, 10, 2_000)],
)
def test_a_model_stays_within_its_budget_whatever_it_has(
    outputs: int, windows: int, groups: int, least: int
) -> None:
    registry = CollectorRegistry()
    gauges = ModelGauges(StreamMetrics.build(registry), most=50, budget=4000)
    export(gauges, 1, outputs, windows, groups)
    assert least <= len(shown(registry)) <= 4000
    export(gauges, 1, outputs, windows, groups)
    assert least <= len(shown(registry)) <= 4000


def test_what_is_left_out_is_counted() -> None:
    registry = CollectorRegistry()
    gauges = ModelGauges(StreamMetrics.build(registry), most=50, budget=4000)
    export(gauges, 1, 100, 4, 60)
    window = {"model": "m0", "window": "tumbling_60s"}
    scored = {**window, "output": "class 3"}
    features = sum(
        line.startswith("attributary_rank{") and 'output="class 3"' in line and "_60s" in line
        for line in shown(registry)
    )
    assert value(registry, "features_not_exported", **scored) == 200 - features
    groups = sum(
        line.startswith("attributary_group_score") and 'output="class 3"' in line and "_60s" in line
        for line in shown(registry)
    )
    assert value(registry, "groups_not_exported", **scored) == 60 - groups
    drifting = value(registry, "drift_features_not_exported", **window, reference="baseline")
    assert drifting is not None
    assert drifting >= 150
    # 100 pairs and 125 triples are admitted, of 400 and 800.
    assert value(registry, "outputs_not_exported", model="m0") == 300 + 675


def test_fifty_models_of_ten_classes_and_200_features_hold_no_more_memory_round_by_round() -> None:
    registry = CollectorRegistry()
    gauges = ModelGauges(StreamMetrics.build(registry), most=50, budget=4000)
    held = []
    for _ in range(3):
        export(gauges, 50, 10, 1, 1)
        gc.collect()
        held.append(sys.getallocatedblocks())
    count = len(shown(registry))
    assert 50 * 3_500 <= count <= 50 * 4_000
    # A series holds several blocks; one in a hundred that stayed would show.
    assert held[2] - held[1] < count / 100


def test_a_late_revision_of_an_older_window_does_not_replace_the_newest() -> None:
    registry = CollectorRegistry()
    gauges = ModelGauges(StreamMetrics.build(registry), most=5, budget=4000)
    labels = {"model": "m", "output": "y", "window": "tumbling_60s"}
    newer = Window(kind="tumbling", start=60_000, end=120_000, seconds=60.0)
    gauges.attributions(attribution("m", "y", [feature("a", 1)], newer))
    gauges.attributions(attribution("m", "y", [feature("b", 1)]))
    assert value(registry, "rank", **labels, feature="a") == 1
    assert value(registry, "rank", **labels, feature="b") is None
    assert value(registry, "window_end_timestamp_seconds", **labels) == 120
    gauges.drift(drift("m", "y", [column("a", 0.3)], "preceding", newer))
    gauges.drift(drift("m", "y", [column("a", 0.9)], "preceding"))
    drifted = {"model": "m", "window": "tumbling_60s", "reference": "preceding", "feature": "a"}
    assert value(registry, "psi_ratio", **drifted) == 0.3


def test_what_nothing_is_published_of_for_a_day_is_removed() -> None:
    registry = CollectorRegistry()
    now = [0.0]
    gauges = ModelGauges(StreamMetrics.build(registry), 5, 4000, clock=lambda: now[0])
    gauges.attributions(attribution("gone", "y", [feature("a", 1)]))
    gauges.drift(drift("gone", "y", [column("a", 0.1)], "baseline"))
    gauges.attributions(attribution("here", "y", [feature("a", 1)]))
    week = Window(kind="tumbling", start=0, end=60_000, seconds=604_800.0)
    gauges.attributions(attribution("gone", "y", [feature("a", 1)], week))
    for hour in range(1, 26):
        now[0] = 3600.0 * hour
        gauges.attributions(attribution("here", "y", [feature("a", 1)]))
        gauges.watermark("gone", 60_000)  # what the worker still holds
        gauges.watermark("here", 60_000 * hour)
        gauges.sweep()
    left = [line for line in shown(registry) if 'model="gone"' in line]
    assert left
    assert all("tumbling_604800s" in line for line in left)
    assert value(registry, "watermark_timestamp_seconds", model="here") == 1500
    gauges.watermark("gone", 120_000)
    assert value(registry, "watermark_timestamp_seconds", model="gone") == 120


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
    gauges.watermark("m", 1000)
    gauges.attributions(attribution("stays", "y", [feature("a", 1)]))
    assert r'feature="f\"\n\\"' in generate_latest(registry).decode()
    gauges.forget(lambda model: model == "m")
    assert shown(registry)
    assert all('model="stays"' in line for line in shown(registry))
    gauges.forget(lambda model: True)
    assert shown(registry) == []
