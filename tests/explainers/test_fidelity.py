"""The lightweight protocol's components against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from attributary.workers.explainers.fidelity import TOLERANCES, fidelity, output_distance


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
    assert [component.passed for component in found.values()] == [False] * 4


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


def test_wrong_shapes_and_missing_tolerances_are_named() -> None:
    with pytest.raises(ValueError, match="not one kind"):
        output_distance(np.ones((3, 2)), np.ones(3))
    with pytest.raises(ValueError, match="expected \\(d,\\) twice"):
        fidelity(np.ones(3), np.ones(4), np.ones(3), np.ones(3))
    limits = {name: 0.1 for name in TOLERANCES if name != "curves"}
    with pytest.raises(ValueError, match="no tolerance for curves"):
        fidelity(np.ones(3), np.ones(3), np.ones(3), np.ones(3), tolerances=limits)
