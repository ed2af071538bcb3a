"""The lightweight protocol's components against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from attributary.workers.explainers.fidelity import (
    TOLERANCES,
    fidelity,
    output_distance,
    ranking_curves,
)
from attributary.workers.explainers.light_sample import PrincipalOutputs, light_rows
from attributary.workers.explainers.metrics import deletion_curve, insertion_curve


def test_every_component_is_its_distance() -> None:
    outputs = np.arange(100.0)
    scores = np.arange(10.0)
    swapped = scores.copy()
    swapped[[0, 9]] = swapped[[9, 0]]
    found = fidelity(
        scores,
        swapped,
        outputs,
        outputs + 0.1 * outputs.std(),
        curves=([1.0, 0.5, 0.0], [1.0, 0.6, 0.0]),
        head=3,
    )
    assert found["outputs"].value == pytest.approx(0.1)
    # The swap reverses 17 of 45 pairs.
    assert found["rank"].value == pytest.approx(17 / 45)
    assert found["head"].value == pytest.approx(1 - 2 / 4)
    assert found["curves"].value == pytest.approx(0.1)
    assert found["projected"].passed is None
    shown = [found[name].passed for name in ("outputs", "rank", "head", "curves")]
    assert shown == [False] * 4


def test_equal_runs_pass_and_undefined_components_say_so() -> None:
    scores, outputs = np.arange(4.0), np.random.default_rng(0).standard_normal((50, 3))
    found = fidelity(scores, scores, outputs, outputs)
    assert found["outputs"].passed
    assert found["rank"].passed
    assert found["head"].passed is None
    assert found["curves"].passed is None
    assert fidelity(np.ones(4), scores, outputs, outputs)["rank"].value is None


def test_a_shift_of_one_dimension_is_seen_through_projections() -> None:
    rng = np.random.default_rng(1)
    full = rng.standard_normal((2000, 2))
    light = full + [1.0, 0.0]
    # A projected shift |cos| averages 2/π over directions.
    assert output_distance(full, light) == pytest.approx(2 / np.pi, abs=0.06)


def test_reduced_outputs_are_compared_where_the_light_run_looks() -> None:
    rng = np.random.default_rng(2)
    common = rng.standard_normal((400, 1))
    full = np.hstack([3 * common, -common, common]) + 0.01 * rng.standard_normal((400, 3)) + 5.0
    reduce = PrincipalOutputs(full, 1)
    first = reduce.of(full)[:, 0]
    assert abs(np.corrcoef(first, common[:, 0])[0, 1]) > 0.9999
    # Three standardised outputs in step: the component's deviation is √3, its mean 0.
    assert first.std() == pytest.approx(np.sqrt(3), rel=1e-3)
    assert first.mean() == pytest.approx(0, abs=1e-12)
    light = full + [0.3, 0.0, 0.0]
    shift = abs(reduce.of(light) - reduce.of(full)).mean() / first.std()
    found = fidelity(
        np.arange(3.0), np.arange(3.0), full, light, reduced=(reduce.of(full), reduce.of(light))
    )
    assert found["projected"].value == pytest.approx(shift)
    with pytest.raises(ValueError, match="4 of 3 outputs"):
        PrincipalOutputs(full, 4)


@pytest.mark.parametrize("batch_rows", [1, 100, 10_000])
def test_curves_of_one_ranking_are_the_mean_of_the_rows_curves(batch_rows: int) -> None:
    rng = np.random.default_rng(3)
    X, order, baseline = rng.standard_normal((30, 4)), [2, 0, 3, 1], rng.standard_normal(4)

    def model(rows: np.ndarray) -> np.ndarray:
        return rows[:, 0] * rows[:, 2] + np.sin(rows[:, 1]) - rows[:, 3]

    both = ranking_curves(model, X, order, baseline, batch_rows=batch_rows)
    assert both.shape == (2, 5, 1)
    scores = np.broadcast_to(np.argsort(order) * -1.0, X.shape)
    for curve, mine in ((deletion_curve, both[0]), (insertion_curve, both[1])):
        theirs = curve(model, X, scores, baseline=baseline).value.mean(axis=0)
        assert mine[:, 0] == pytest.approx(theirs, abs=1e-12)
    several = ranking_curves(
        lambda rows: np.stack([model(rows), -model(rows)], axis=1), X, order, baseline
    )
    assert several[:, :, 1] == pytest.approx(-both[:, :, 0], abs=1e-12)


def test_strata_give_their_share_and_uniform_rows_are_rows() -> None:
    rng = np.random.default_rng(4)
    classes = np.repeat([0.0, 1.0, 2.0], [700, 290, 10])
    for rows in (1, 7, 100, 999, 1000):
        taken = light_rows(classes, rows, rng, strata=10)
        counts = np.array([(classes[taken] == value).sum() for value in (0, 1, 2)])
        assert np.abs(counts - rows * np.array([0.7, 0.29, 0.01])).max() < 1
        assert len(set(taken.tolist())) == rows
        assert (np.diff(taken) > 0).all()
    outputs = rng.standard_normal(1000)
    cells = np.quantile(outputs, np.arange(1, 10) / 10)
    taken = light_rows(outputs, 100, rng, strata=10)
    assert np.bincount(np.searchsorted(cells, outputs[taken])).tolist() == [10] * 10
    strata = [output_distance(outputs, outputs[light_rows(outputs, 100, rng, strata=10)])
              for _ in range(20)]  # fmt: skip
    uniform = [output_distance(outputs, outputs[light_rows(outputs, 100, rng)]) for _ in range(20)]
    assert np.mean(strata) < 0.6 * np.mean(uniform)
    both = np.column_stack([outputs, 2 * outputs])
    assert len(light_rows(both, 50, rng, strata=5)) == 50
    drawn = np.bincount(
        np.concatenate([light_rows(outputs[:50], 5, rng) for _ in range(2000)]), minlength=50
    )
    assert abs(drawn / 200 - 1).max() < 0.35, "every row is as likely"
    for wrong in (0, 1001):
        with pytest.raises(ValueError, match="of 1000 rows"):
            light_rows(outputs, wrong, rng)


def test_wrong_shapes_and_missing_tolerances_are_named() -> None:
    with pytest.raises(ValueError, match="not one kind"):
        output_distance(np.ones((3, 2)), np.ones(3))
    with pytest.raises(ValueError, match="expected \\(d,\\) twice"):
        fidelity(np.ones(3), np.ones(4), np.ones(3), np.ones(3))
    limits = {name: 0.1 for name in TOLERANCES if name != "curves"}
    with pytest.raises(ValueError, match="no tolerance for curves"):
        fidelity(np.ones(3), np.ones(3), np.ones(3), np.ones(3), tolerances=limits)
