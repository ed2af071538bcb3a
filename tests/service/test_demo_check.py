"""The comparison at the demonstration's end finds what is wrong with a message, however little."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from attributary.schemas.attribution import Accounting as MessageAccounting
from attributary.schemas.attribution import FeatureScore, Window, WindowAttribution
from attributary.schemas.manifest import Manifest, ModelCount
from attributary.service.accounting import ManifestFold
from attributary.service.demo.check import compare
from attributary.service.demo.columns import column_names, feature_columns, with_baseline
from attributary.service.demo.dataset import Dataset
from attributary.service.demo.report import report
from attributary.service.demo.session import Outcome
from attributary.service.demo.small import START, small
from attributary.service.latest import Latest

HOUR = 3_600_000
LIFETIME = Window(kind="lifetime", start=0, end=START)
NOON = Window(kind="tumbling", start=START + 10 * HOUR, end=START + 12 * HOUR, seconds=7200.0)


@pytest.fixture(scope="module")
def diabetes() -> Dataset:
    return small("diabetes", rows=1500)


def brute_force(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> float:
    """CIR from its definition: one feature, one output, no missing value."""
    low, high = np.quantile(x, [0.25, 0.75])
    below, above = np.quantile(y, [0.25, 0.75])
    product = (x - (low + high) / 2) * (y - (below + above) / 2)
    return float((1 + product.sum() / np.abs(product).sum()) / 2) if product.any() else 0.5


def messages(dataset: Dataset, window: Window, *, wrong: float = 0.0) -> list[WindowAttribution]:
    """Right messages by brute force, but for the score of 'bmi'."""
    rows = dataset.rows
    if window.kind != "lifetime":
        rows = rows.where((rows.times >= window.start) & (rows.times < window.end))
    scores = []
    for feature in dataset.card.features:
        columns = feature_columns(feature, rows)
        for name, values in zip(column_names(feature), columns.T, strict=True):
            value = brute_force(values, rows.outputs[:, 0]) + (wrong if name == "bmi" else 0.0)
            scores.append(
                FeatureScore(
                    name=name, score=value, stderr=None, interval=(0.0, 1.0), effective_rows=1.0,
                    direction=0, strength_low=0.0, rank=len(scores) + 1,
                )
            )  # fmt: skip
    return [
        WindowAttribution(
            model="diabetes", output="progression", window=window, revision=len(rows), final=True,
            watermark=None, computed_at=0, epochs=[0], output_quartiles=None, features=scores,
            groups=[],
            accounting=MessageAccounting(
                rows=len(rows), rows_accepted=len(rows), rows_rejected={}, rows_late=0, offsets={},
                duplicates=0, gaps=0,
            ),
        )
    ]  # fmt: skip


@pytest.mark.parametrize("window", [LIFETIME, NOON], ids=["lifetime", "window"])
def test_right_scores_differ_by_rounding_only(diabetes: Dataset, window: Window) -> None:
    found = compare(diabetes.card, diabetes.rows, messages(diabetes, window))
    assert found.largest < 1e-12
    assert found.scores == 12  # nine numbers, two levels of sex and '(other)'
    assert found.rows == found.streamed_rows == (1500 if window is LIFETIME else 125)


def test_one_wrong_score_is_found_and_named(diabetes: Dataset) -> None:
    found = compare(diabetes.card, diabetes.rows, messages(diabetes, NOON, wrong=0.0123))
    assert found.largest == pytest.approx(0.0123, abs=1e-12)
    assert found.where == "column bmi, output progression"


def test_a_score_that_is_no_number_is_the_largest_difference(diabetes: Dataset) -> None:
    found = compare(diabetes.card, diabetes.rows, messages(diabetes, NOON, wrong=float("nan")))
    assert (found.largest, found.where) == (np.inf, "column bmi, output progression")


def test_a_column_that_the_card_does_not_have_is_refused(diabetes: Dataset) -> None:
    features = [feature for feature in diabetes.card.features if feature.name != "bmi"]
    card = diabetes.card.model_copy(update={"features": features})
    with pytest.raises(ValueError, match="no column 'bmi'"):
        compare(card, diabetes.rows, messages(diabetes, NOON))


def test_levels_become_columns_of_zeros_and_ones_with_the_others_last(diabetes: Dataset) -> None:
    sex = next(feature for feature in diabetes.card.features if feature.name == "sex")
    known = sex.model_copy(update={"levels": ["2"]})
    assert column_names(known) == ["sex=2", "sex=(other)"]
    values = diabetes.rows.features["sex"]
    assert np.array_equal(
        feature_columns(known, diabetes.rows), np.column_stack([values == "2", values != "2"])
    )


def test_a_baseline_holds_the_sixteenths_of_the_training_rows(diabetes: Dataset) -> None:
    baseline = with_baseline(diabetes.card, diabetes.rows).baseline
    assert baseline is not None
    bmi = [feature.name for feature in diabetes.card.features].index(
        "bmi"
    ) + 2  # sex: three columns
    assert baseline.x_edges[bmi] == pytest.approx(
        np.quantile(diabetes.rows.features["bmi"], np.arange(1, 16) / 16).tolist()
    )
    assert (len(baseline.x_edges), len(baseline.y_edges), baseline.rows) == (12, 1, 1500)


def outcome(dataset: Dataset, **other: Any) -> Outcome:
    fold = ManifestFold()
    accepted = other.pop("accepted", 1500)
    fold.add(
        Manifest(
            topic="rows", partition=0, block=0, upto=9, previous=None, sealed=True, partitions=1,
            end_offset=9,
            models={"diabetes": ModelCount(accepted={0: accepted}, rejected={"bad_time": 2})},
        )
    )  # fmt: skip
    latest = Latest(dataset.card.outputs)
    for window in (LIFETIME, NOON):
        latest.add_attribution(messages(dataset, window)[0])
    parts: dict[str, Any] = {
        "rows": dataset.rows,
        "published": 1502,
        "unpublished": 0,
        "accounting": fold.accounting({("rows", 0): (0, 9)}),
        "latest": latest,
        "interrupted": False,
        "complete": True,
    }
    return Outcome(**{**parts, **other})


def told(dataset: Dataset, found: Outcome) -> tuple[bool, str]:
    stream = io.StringIO()
    exact = report(dataset, found, Console(file=stream, width=200, color_system=None))
    return exact, stream.getvalue()


def test_the_report_says_that_the_books_are_exact_and_how_far_the_scores_are_off(
    diabetes: Dataset,
) -> None:
    exact, text = told(diabetes, outcome(diabetes))
    assert exact
    assert "rows published 1,502 = accepted 1,500 + rejected 2: exact" in text
    assert "rejected, bad_time: 2" in text
    assert "left out" not in text
    largest = [float(value) for value in re.findall(r"batch\| CIR (\S+) over 12 scores\n", text)]
    assert len(largest) == 2
    assert max(largest) < 1e-12
    assert "\n  of all rows so far, 1,500 rows\n" in text
    assert "\n  of tumbling window of 2 hours to 2026-01-01 12:00, 125 rows\n" in text


def test_a_row_that_is_missing_in_the_books_makes_them_inexact(diabetes: Dataset) -> None:
    exact, text = told(diabetes, outcome(diabetes, accepted=1499))
    assert not exact
    assert "rows published 1,502 ≠ accepted 1,499 + rejected 2\n" in text


def test_rows_that_the_broker_never_took_make_the_books_inexact(diabetes: Dataset) -> None:
    exact, text = told(diabetes, outcome(diabetes, unpublished=7))
    assert not exact
    assert "rows never acknowledged by the broker: 7" in text
