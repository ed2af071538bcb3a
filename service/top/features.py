"""The table of a model's leading features, with the columns that a width has room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from attributary.schemas.attribution import ColumnDrift, FeatureScore, WindowDrift
from attributary.service.cells import (
    DIRECTION_COLOURS,
    arrow,
    effect_cell,
    plain_table,
    psi_cell,
    psi_level,
    ranked,
    shortened,
)

# A name keeps so many cells beside the columns that matter more, and so many beside the others.
_NAME_LEAST, _NAME_FAIR, _NAME_MOST = 12, 22, 40
_LONG_BAR, _SHORT_BAR = 12, 6
_MARKS = ("", "!", "!!")


@dataclass(frozen=True)
class _Column:
    """Cells under a title; as wide as the widest of them, so that no number is ever cut."""

    title: str
    cells: Sequence[Text]
    justify: Literal["left", "right"] = "left"
    style: str = ""

    @property
    def width(self) -> int:
        return max([len(self.title), *(cell.cell_len for cell in self.cells)])


def feature_table(
    scores: Sequence[FeatureScore], drift: WindowDrift | None, count: int, width: int
) -> Table:
    """Return the first ``count`` features in at most ``width`` cells: always name, direction and CIR, then
    what has room of the interval, the effect, the drift, the strength as a bar and the missing rate."""
    shown = ranked(scores)[:count]
    columns = _columns(shown, drift)
    hidden = len(scores) - len(shown)
    more = f"and {hidden} more" if hidden else ""
    told = ["feature", more, *(shortened(score.name, _NAME_MOST) for score in shown)]
    longest = max(map(cell_len, told))
    chosen = _chosen(columns, longest, width)
    name_width = max(1, min(longest, width - _taken(columns, chosen)))
    names = [Text(shortened(score.name, name_width)) for score in shown]
    columns["name"] = _Column("feature"[:name_width], names)
    table = plain_table()
    present = [name for name in columns if name == "name" or name in chosen]
    for name in present:
        column = columns[name]
        size = name_width if name == "name" else column.width
        table.add_column(
            column.title, width=size, justify=column.justify, style=column.style, no_wrap=True
        )
    for row in range(len(shown)):
        table.add_row(*(columns[name].cells[row] for name in present))
    if more:
        last = Text(shortened(more, name_width), style="dim")
        table.add_row(*(last if name == "name" else "" for name in present))
    return table


def _columns(shown: Sequence[FeatureScore], drift: WindowDrift | None) -> dict[str, _Column]:
    """Return all columns as they stand from left to right, the name's still empty."""
    drifted = {column.name: column for column in drift.features} if drift is not None else {}
    found = [drifted.get(score.name) for score in shown]
    missing = ["–" if score.missing is None else f"{score.missing:.1%}" for score in shown]
    return {
        "rank": _Column("", [Text(str(score.rank)) for score in shown], "right", "dim"),
        "name": _Column("", ()),
        "arrow": _Column("", [arrow(score) for score in shown]),
        "long bar": _Column("strength", [_strength(score, _LONG_BAR) for score in shown]),
        "short bar": _Column("strength", [_strength(score, _SHORT_BAR) for score in shown]),
        "CIR": _Column("CIR", [Text(f"{score.score:.3f}") for score in shown]),
        "interval": _Column("95 %", [_interval(score) for score in shown]),
        "effect": _Column("effect", [effect_cell(score) for score in shown], "right"),
        "missing": _Column("missing", [Text(cell) for cell in missing], "right"),
        "PSI": _Column("PSI", [psi_cell(column) for column in found], "right"),
        "marks": _Column("", [_marks(column) for column in found]),
    }


def _chosen(columns: dict[str, _Column], longest: int, width: int) -> set[str]:
    """Return the columns that have room beside the name."""
    chosen = {"rank", "arrow", "CIR"}
    if _taken(columns, chosen) + min(longest, _NAME_LEAST) > width:
        chosen -= {"rank"}
    for least, more in (
        (_NAME_LEAST, {"interval"}),
        (_NAME_LEAST, {"effect"}),
        (_NAME_LEAST, {"PSI", "marks"}),
        (_NAME_FAIR, {"long bar"}),
        (_NAME_LEAST, {"short bar"}),
        (_NAME_FAIR, {"missing"}),
    ):
        if more == {"short bar"} and "long bar" in chosen:
            continue
        if _taken(columns, chosen | more) + min(longest, least) <= width:
            chosen |= more
    return chosen


def _taken(columns: dict[str, _Column], chosen: set[str]) -> int:
    """Return the cells of the columns, each with the one that parts it from the next."""
    return sum(columns[name].width + 1 for name in chosen)


def _interval(score: FeatureScore) -> Text:
    low, high = score.interval
    return Text(f"{low:.3f}–{high:.3f}", style="dim")


def _strength(score: FeatureScore, size: int) -> Text:
    """Return |2·CIR - 1| as a bar, filled up to its sure part."""
    strength = abs(2 * score.score - 1)
    whole, sure = round(strength * size), round(min(score.strength_low, strength) * size)
    text = Text().append("█" * sure, style=DIRECTION_COLOURS[score.direction])
    text.append("▒" * (whole - sure), style="dim")
    return text.append(" " * (size - whole) + f" {strength:.2f}", style="bold")


def _marks(column: ColumnDrift | None) -> Text:
    """Return ! and !! for a noticeable and a large PSI, KS where it is beyond its critical value."""
    if column is None:
        return Text("")
    level = psi_level(column)
    beyond = (
        column.ks is not None and column.ks_critical is not None and column.ks > column.ks_critical
    )
    text = Text().append(_MARKS[level], style=("", "yellow", "bold red")[level])
    return text.append(" KS" if beyond and level else "KS" if beyond else "", style="yellow")
