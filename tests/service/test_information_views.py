"""MCIR-M in a terminal and as a picture: ranked, then not, safe, and complete."""

from __future__ import annotations

import io
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from attributary.schemas.errors import ConfigurationError
from attributary.schemas.explanation import (
    DependenceChange,
    Explanation,
    McirResult,
    Neighbourhoods,
    NeighbourhoodSize,
    RankStability,
    UniqueInformation,
)
from attributary.schemas.unique_information import UniqueInformationRun
from attributary.service.asking import Question, ask
from attributary.service.explanation_tables import explanation_view
from attributary.service.information_pictures import information_parts
from attributary.service.items import RunItem
from attributary.service.picture_sheet import html

HOSTILE = "<b>in\x1b[31mcome</b>"


def one(name: str, rank: int | None, score: float, **changes: Any) -> UniqueInformation:
    given: dict[str, Any] = {
        "feature": name, "kind": "continuous", "ranked": rank is not None, "rank": rank,
        "score": score, "interval": (score / 2, min(1.0, 2 * score)), "stderr": 0.1,
        "unique": 0.25, "joint": 1.5, "marginal": 0.125, "neighbourhood": ["debt"],
        "estimator": "copula", **changes,
    }  # fmt: skip
    return UniqueInformation(**given)


RESULT = McirResult(
    outputs=["y"],
    observed=True,
    rows=2000,
    rows_left_out=3,
    size=3,
    sizes=[
        NeighbourhoodSize(size=1, instability=0.1, leftover=0.5, penalty=0.1, total=0.7),
        NeighbourhoodSize(size=3, instability=0.1, leftover=0.2, penalty=0.3, total=0.6),
    ],
    stability=RankStability(kendall=0.875, jaccard=None, head=8),
    features=[
        one(HOSTILE, 1, 0.5),
        one("age", 2, 0.25, neighbourhood=["years", "service", "and so", "on & on"]),
        one("debt", 3, 0.0, flags=["small denominator"], interval=None),
        one("noise", None, 1.0, marginal=0.5, neighbourhood=[]),
        one("chance", None, 1.0, marginal=0.0, neighbourhood=[]),
    ],
    notes=["3 rows with a missing value are left out."],
)


def answer(result: McirResult) -> Explanation:
    return Explanation(
        id="r", model="churn", method="mcir-m", outcome="result", result=result,
        requested_at=0, computed_at=1, seconds=0.25,
    )  # fmt: skip


def shown(result: McirResult = RESULT, top: int = 15) -> list[str]:
    console = Console(file=io.StringIO(), width=120, highlight=False)
    console.print(explanation_view(answer(result), top))
    text = console.file.getvalue()
    assert "\x1b" not in text
    return [line.rstrip() for line in text.splitlines()]


@pytest.mark.parametrize(
    ("origin", "largest", "line"),
    [
        ("given", None, "neighbourhoods as they were given"),
        ("reused", 0.0, "neighbourhoods kept: dependence has not changed beyond chance"),
        (
            "reused",
            0.05,
            "neighbourhoods kept: the correlation of age and debt has changed by 0.05",
        ),
        ("found", 0.375, "found anew: the correlation of age and debt has changed by 0.38"),
        ("found", None, None),
    ],
)
def test_the_table_says_where_neighbourhoods_come_from(
    origin: Any, largest: float | None, line: str | None
) -> None:
    change = None
    if largest is not None:
        pair = ("age", "debt") if largest else None
        change = DependenceChange(largest=largest, pair=pair, limit=0.1, rows_before=500)
    source = Neighbourhoods(
        origin=origin, screen="pearson", threshold=0.6, max_candidates=6, sizes=[1], change=change
    )
    lines = shown(RESULT.model_copy(update={"neighbourhoods": source}))
    told = [one for one in lines if "neighbourhoods " in one and "criterion" not in one]
    assert (line in told[0]) if line else not told
    assert all("the limit is 0.1" in one for one in told if largest)


def test_a_message_survives_its_bytes() -> None:
    sent = answer(RESULT)
    assert Explanation.from_bytes(sent.to_bytes()) == sent


def test_the_ranked_come_first_with_bars_and_neighbours() -> None:
    lines = shown()
    assert lines[0] == "churn · y · 2,000 rows of the stream"
    assert [line.split()[0] for line in lines[2:5]] == ["1", "2", "3"]
    assert "0.500 0.25–1.00  ██████  " in lines[2]
    assert "years, service, and so, on & on" in lines[3]
    assert lines[4].endswith("small denominator")
    assert "–" not in lines[4]
    assert lines[5] == "not ranked: no neighbourhood"
    assert lines[7].split()[:2] == ["noise", "0.5"]
    assert "████████████" in lines[7]
    assert "█" not in lines[8]
    text = "\n".join(lines)
    assert "neighbourhoods of up to 3; criterion by size 1: 0.7, 3: 0.6" in text
    assert "Kendall's τ 0.88" in text
    assert "3 rows with a missing value are left out." in text


def test_what_does_not_fit_is_counted() -> None:
    text = "\n".join(shown(top=1))
    assert "2 more" in text
    assert "1 more" in text
    assert "age" not in text


def test_the_picture_is_well_formed_and_safe() -> None:
    page = html("MCIR-M: <churn>", information_parts(RESULT))
    assert "<title>MCIR-M: &lt;churn&gt;</title>" in page
    assert "<b>" not in page
    assert "\x1b" not in page
    svgs = [ElementTree.fromstring(part) for part in re.findall(r"<svg.*?</svg>", page, re.S)]  # noqa: S314 - our own
    space = "{http://www.w3.org/2000/svg}"
    scores, marginals = (svg.findall(f"{space}rect") for svg in svgs)
    assert [float(rect.get("width", "")) for rect in scores] == [210.0, 105.0, 0.0]
    assert [rect.get("class") for rect in scores] == ["own", "own", "doubt"]
    assert [float(rect.get("width", "")) for rect in marginals] == [420.0, 0.0]
    errors = [line for line in svgs[0].findall(f"{space}line") if line.get("class") == "error"]
    assert [float(errors[0].get(end, "")) for end in ("x1", "x2")] == [295.0, 610.0]
    assert len(errors) == 2
    tip = scores[1].findtext(f"{space}title") or ""
    assert "given years, service, and so, on & on" in tip
    many = RESULT.model_copy(update={"features": [one(f"f{k}", k + 1, 0.1) for k in range(70)]})
    assert "10 more are not drawn." in html("m", information_parts(many))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sample": 5}, "--window TIME and --rows N"),
        ({"background": Path("b.csv")}, "neither --sample nor --background"),
        ({"instance": Path("i.csv"), "window": "1h"}, "both name the rows"),
        ({"save": Path("a.pdf")}, r"\*\.html or \*\.png, got 'a\.pdf'"),
    ],
)
def test_what_mcir_cannot_take_is_said_before_anything_is_sent(
    changes: dict[str, Any], message: str
) -> None:
    save = changes.pop("save", None)
    given: dict[str, Any] = {
        "model": "m", "instance": None, "sample": None, "method": "mcir-m", "output": None,
        "background": None, "window": None, "rows": None, "parameters": (), "seed": 0,
        "timeout": 1.0, "high": False, **changes,
    }  # fmt: skip
    settings: Any = SimpleNamespace()
    with pytest.raises(ConfigurationError, match=message):
        ask(settings, Question(**given), top=5, as_json=False, save=save)


def test_tail_shows_scheduled_runs_as_a_table_or_as_they_came() -> None:
    run = UniqueInformationRun(
        id="scheduled|60000|churn", model="churn", tick=60_000, every_seconds=60.0,
        computed_at=61_000, seconds=0.25, result=RESULT,
    )  # fmt: skip
    item = RunItem(run, 2)
    assert UniqueInformationRun.from_bytes(item.as_json().encode()) == run
    console = Console(file=io.StringIO(), width=120, highlight=False)
    item.draw(console)
    text = console.file.getvalue()
    assert "due 1970-01-01" in text
    assert "churn · y · 2,000 rows of the stream" in text
    assert "\x1b" not in text
