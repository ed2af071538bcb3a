"""A table that leaves columns out where the terminal is narrow, and takes no name for markup."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from attributary.service.fitted_table import FittedTable


def shown(width: int, name: str = "a name of twenty-two c") -> list[str]:
    table = FittedTable("feature", "value", "part", "", left=[3], spare=[3, 1])
    table.add_row(name, "0.123456", Text("-1.5", style="red"), "████│")
    table.add_row("x", "1", "+25", "    │██")
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(table)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_all_of_it_where_there_is_room() -> None:
    assert shown(60) == [
        "feature                    value  part",
        "a name of twenty-two c  0.123456  -1.5  ████│",
        "x                              1   +25      │██",
    ]


@pytest.mark.parametrize(
    ("width", "first"),
    [
        (47, "a name of twenty-two c  0.123456  -1.5  ████│"),
        (46, "a name of twenty-two…  0.123456  -1.5  ████│"),
        (35, "a name of…  0.123456  -1.5  ████│"),
        (34, "a name of twenty-…  0.123456  -1.5"),
        (26, "a name of…  0.123456  -1.5"),
        (25, "a name of twenty-t…  -1.5"),
        (16, "a name of…  -1.5"),
    ],
)
def test_the_name_is_cut_then_columns_go_and_no_digit_ever(width: int, first: str) -> None:
    assert shown(width)[1] == first


@pytest.mark.parametrize("name", ["[bold]x[/bold]", "[/x]", ":smile:", "größe 体重"])
def test_a_name_is_shown_as_it_is(name: str) -> None:
    assert shown(60, name)[1].startswith(f"{name}  ")


def test_a_wide_character_takes_its_two_cells() -> None:
    lines = shown(60, "体重" * 8)
    assert lines[1] == "体重" * 8 + "  0.123456  -1.5  ████│"
    assert shown(35, "体重" * 8)[1].startswith("体重体重 …  0.123456  -1.5")


def test_a_row_has_a_cell_for_each_title() -> None:
    with pytest.raises(ValueError, match="expected 2 cells, got 1"):
        FittedTable("a", "b").add_row("x")
