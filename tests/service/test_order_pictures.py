"""The pictures of OrdShap are well-formed, safe, and show what the message holds."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from attributary.schemas.errors import ConfigurationError
from attributary.schemas.explanation import (
    Explanation,
    LocalOrder,
    OrderImportance,
    OrdShapResult,
)
from attributary.service import asking
from attributary.service.order_pictures import order_parts
from attributary.service.order_strip import extremes, strip
from attributary.service.picture_sheet import check_file, html

HOSTILE = "<script>alert('x')</script>\x1b[31m"


def result(columns: int = 3, gamma: bool = True) -> OrdShapResult:
    features = [
        OrderImportance(
            feature=name,
            value=value,
            value_importance=worth,
            position_importance=-worth / 4,
            value_stderr=0.1,
            position_stderr=None,
            gamma=[worth * k for k in range(columns - 1)] + [None] if gamma else None,
        )
        for name, value, worth in ((HOSTILE, "a & b", 1.0), ("w1", 2.5, -2.0), ("w2", None, 0.0))
    ]
    entry = LocalOrder(
        instance=0,
        id=None,
        output="mood",
        prediction=1.5,
        base_value=0.25,
        completeness_gap=0.0,
        positions=[10.0 * k for k in range(columns)],
        features=features,
    )
    return OrdShapResult(explanations=[entry], notes=["A masked feature shows 0 & nothing."])


def svgs(page: str) -> list[ElementTree.Element]:
    found = re.findall(r"<svg.*?</svg>", page, re.S)
    return [ElementTree.fromstring(part) for part in found]  # noqa: S314 - our own


def test_a_heat_map_with_a_cell_for_each_position_and_a_scatter() -> None:
    page = html("OrdShap & more", order_parts(result()))
    assert "<title>OrdShap &amp; more</title>" in page
    assert "<script" not in page
    heat, scatter = svgs(page)
    space = "{http://www.w3.org/2000/svg}"
    cells = heat.findall(f"{space}rect")
    assert len(cells) == 9
    # γ: 0, 1, none / 0, -2, none / 0, 0, none: the strongest cell is full blue, 0 is neutral.
    fills = [cell.get("fill") for cell in cells]
    assert fills[0] == fills[6] == "#f7f7f7"
    assert fills[4] == "#2166ac"
    assert fills[2] == fills[5] == "#ddd"
    titles = [cell.findtext(f"{space}title") for cell in cells]
    assert titles[4] == "w1 = 2.5, position 10: -2"
    dots = scatter.findall(f"{space}circle")
    assert len(dots) == 3
    across = [float(dot.get("cx", "nan")) for dot in dots]
    up = [float(dot.get("cy", "nan")) for dot in dots]
    assert across[1] < across[2] < across[0]
    # Down is larger: -2 has the largest position importance.
    assert up[1] < up[2] < up[0]


@pytest.mark.parametrize("columns", [1, 3, 400])
def test_any_number_of_positions(columns: int) -> None:
    for element in svgs(html("t", order_parts(result(columns)))):
        width = float(element.get("width", "nan"))
        assert 0 < width < 1_000


def test_least_squares_has_no_heat_map() -> None:
    assert len(svgs(html("t", order_parts(result(gamma=False))))) == 1


def test_strips_share_their_extremes() -> None:
    local = result(4).explanations[0]
    low, high = extremes(local)
    assert (low, high) == (-4.0, 2.0)
    # 0, -2, -4 and nothing.
    assert strip(local.features[1].gamma or [], low, high) == "▆▃▁ "
    assert strip([1.0], 1.0, 1.0) == "▁"
    assert strip([], 0.0, 0.0) == ""
    assert len(strip([0.0] * 400, 0.0, 1.0)) == 40


def test_the_command_draws_the_form_that_the_file_is_named_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answered(*_: Any, **__: Any) -> Explanation:
        return Explanation(
            id="r", model="mood", method="ordshap", outcome="result", result=result(),
            requested_at=0, computed_at=0, seconds=0.1,
        )  # fmt: skip

    monkeypatch.setattr(asking, "_ask", answered)
    monkeypatch.setattr(asking, "require_broker", lambda connection: None)
    question = asking.Question(
        model="mood", instance=None, sample=1, method="ordshap", output=None, background=None,
        window=None, rows=None, parameters=(), seed=0, timeout=1.0, high=False,
    )  # fmt: skip
    settings: Any = SimpleNamespace(connection=None)
    drawn = {}
    for ending in ("html", "png"):
        path = tmp_path / f"p.{ending}"
        if ending == "png":
            pytest.importorskip("resvg_py", reason="needs the extra png")
            try:
                check_file(path)
            except ConfigurationError as error:
                pytest.skip(str(error))
        assert asking.ask(settings, question, top=5, as_json=True, save=path) == 0
        drawn[ending] = path.read_bytes()
    assert b"OrdShap: mood" in drawn["html"]
    assert drawn["png"].startswith(b"\x89PNG")
    assert len(drawn["png"]) > 10_000
