"""The change of scores beyond their errors: against its formula, its level, and what is unknown."""

from __future__ import annotations

import numpy as np
import pytest

from attributary.workers.maths.score_change import largest_change


def test_the_surest_change_is_told_and_not_the_largest() -> None:
    found = largest_change([0.0, 0.0, 0.5], [0.1, 0.01, 0.3], [0.1, 0.3, -0.5], [0.1, 0.01, 0.4])
    assert found is not None
    # 1 - 0.05 / 6 of the standard normal distribution.
    assert found.low == pytest.approx(0.3 - 2.3939797998 * 0.01 * np.sqrt(2.0), abs=1e-9)
    assert found.column == 1


def test_unknown_scores_and_errors_are_left_out() -> None:
    nan = float("nan")
    found = largest_change([nan, 0.2, 0.0], [0.1, nan, 0.1], [0.9, 0.9, 0.0], [0.1, 0.1, 0.1])
    assert found == (0.0, 2)
    assert largest_change([nan], [0.1], [0.5], [0.1]) is None
    assert largest_change([], [], [], []) is None
    # No error at all: a constant that has become another one.
    assert largest_change([0.5], [0.0], [1.0], [0.0]) == (0.5, 0)


@pytest.mark.parametrize("scores", [1, 8, 200])
def test_chance_is_taken_for_a_change_at_the_level_whatever_the_number_of_scores(
    scores: int,
) -> None:
    rng = np.random.default_rng(scores)
    told = 0
    for _ in range(2000):
        errors = rng.uniform(0.01, 0.1, (2, scores))
        before, now = rng.standard_normal((2, scores)) * errors
        change = largest_change(before, errors[0], now, errors[1])
        assert change is not None
        told += change.low > 0
    # Four standard errors about 5 %; Bonferroni's inequality is nearly an equality here.
    assert told / 2000 == pytest.approx(0.05, abs=0.02)
