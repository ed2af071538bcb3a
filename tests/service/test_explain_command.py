"""What ``attributary explain`` makes of its options, and how it shows an answer."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from attributary.schemas.errors import ConfigurationError
from attributary.schemas.explanation import (
    Contribution,
    Explanation,
    LocalContributions,
    LocalOrder,
    OrderImportance,
    OrdShapResult,
    TExplainerResult,
)
from attributary.schemas.request import StreamWindow
from attributary.service.asking import _output, _parameters, parse_window
from attributary.service.explanation_tables import explanation_view


@pytest.mark.parametrize(
    ("text", "window"),
    [
        (None, StreamWindow()),
        ("90s", StreamWindow(seconds=90.0)),
        ("10m", StreamWindow(seconds=600.0)),
        ("1.5h", StreamWindow(seconds=5400.0)),
        ("7d", StreamWindow(seconds=7 * 86_400.0)),
        ("1970-01-02/", StreamWindow(start=86_400_000)),
        ("/1970-01-02T00:00:00Z", StreamWindow(end=86_400_000)),
        ("1970-01-01T01:00:00+01:00/1970-01-02", StreamWindow(start=0, end=86_400_000)),
    ],
)
def test_windows(text: str | None, window: StreamWindow) -> None:
    assert parse_window(text) == window


@pytest.mark.parametrize(
    "text", ["", "10", "m", "0s", "-5m", "10 m", "x/y", "1970-01-02/1970-01-01", "99999d"]
)
def test_windows_that_are_none(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--window"):
        parse_window(text)


def test_parameters_are_json_or_text() -> None:
    assert _parameters(("a=1", "b=[1,2]", "c=word", "d=null", "e=x=y")) == {
        "a": 1, "b": [1, 2], "c": "word", "d": None, "e": "x=y"
    }  # fmt: skip
    for wrong in ("a", "=1", ""):
        with pytest.raises(ConfigurationError, match="NAME=VALUE"):
            _parameters((wrong,))


def test_an_output_is_a_name_before_it_is_a_position() -> None:
    assert _output(None, ["y"]) is None
    assert _output("1", ["y"]) == 1
    assert _output("1", ["0", "1"]) == "1"
    assert _output("-1", ["y"]) == "-1"


def answer(result: TExplainerResult | OrdShapResult) -> Explanation:
    return Explanation(
        id="r", model="churn", method=result.method, outcome="result", result=result,
        background_rows=50, model_rows=164, requested_at=0, computed_at=1, seconds=0.25,
    )  # fmt: skip


def shown(result: TExplainerResult | OrdShapResult, top: int = 15) -> str:
    console = Console(file=io.StringIO(), width=100, highlight=False)
    console.print(explanation_view(answer(result), top))
    text = console.file.getvalue()
    assert "\x1b" not in text
    return text


LOCAL = LocalContributions(
    instance=0, output="mar\x1bgin", prediction=1.0, base_value=0.5, additivity_gap=-0.25,
    features=[
        Contribution(feature="age", value=41.0, contribution=0.25, gradient=-0.5, step=0.1),
        Contribution(feature="plan", value="pro\n", contribution=1.0),
        Contribution(feature="income", value=None, contribution=None),
        Contribution(feature="debt", value=3e9, contribution=-0.5, gradient=2.0),
    ],
)  # fmt: skip


def test_contributions_are_shown_by_size_with_bars() -> None:
    text = shown(TExplainerResult(explanations=[LOCAL], notes=["A note."]))
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines[0] == r"churn · row 0 · mar\x1bgin = 1"
    names = [line.split()[0] for line in lines[2:6]]
    assert names == ["plan", "debt", "age", "income"]
    assert r"pro\n" in lines[2]
    assert "+1" in lines[2]
    assert "│██████████" in lines[2]
    assert "█████│" in lines[3]
    assert "│██▌" in lines[4]
    assert "missing" in lines[5]
    assert lines[6] == "base 0.5 + 0.75 from features − 0.25 left over = 1"
    assert "A note." in text
    assert "164 rows asked of the model, 50 background rows" in text


def test_what_does_not_fit_is_summed() -> None:
    text = shown(TExplainerResult(explanations=[LOCAL]), top=2)
    assert "2 more" in text
    assert "+0.25" in text
    assert "age" not in text


def test_orders_are_shown_with_their_errors() -> None:
    order = LocalOrder(
        instance=0, id="visit 7", output="y", prediction=1.0, base_value=0.0, completeness_gap=0.0,
        features=[
            OrderImportance(
                feature="hat", value="hat", value_importance=0.75, position_importance=0.3,
                value_stderr=0.1, position_stderr=math.nan,
            ),
            OrderImportance(
                feature="bag", value="bag", value_importance=-2.25, position_importance=-0.9
            ),
        ],
    )  # fmt: skip
    text = shown(OrdShapResult(explanations=[order]))
    assert "visit 7 · y = 1" in text
    assert text.index("bag") < text.index("hat")
    assert "+0.75 ± 0.2" in text
    assert "-0.9" in text
