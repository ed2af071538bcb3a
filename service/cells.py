"""Scores and drift as the cells of tables for a terminal: directions, intervals, effects, marks of drift."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from attributary.schemas.attribution import ColumnDrift, FeatureScore, WindowDrift
from attributary.service.printable import printable

PSI_NOTICEABLE, PSI_LARGE = 0.1, 0.25  # the customary thresholds of the index

_ARROWS = {1: "▲", -1: "▼", 0: "·"}
DIRECTION_COLOURS = {1: "green", -1: "red", 0: "dim"}


def plain_table() -> Table:
    """Return a table without lines."""
    return Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")


def ranked(scores: Sequence[FeatureScore]) -> list[FeatureScore]:
    """Return the scores, the surest and strongest first."""
    return sorted(scores, key=lambda score: score.rank)


def score_cells(score: FeatureScore, width: int) -> tuple[Text, Text, Text, Text]:
    """Return name, direction, score and interval."""
    low, high = score.interval
    return (
        Text(shortened(score.name, width)),
        arrow(score),
        Text(f"{score.score:.3f}"),
        Text(f"{low:.3f}–{high:.3f}", style="dim"),
    )


def compact(score: FeatureScore, *, error: bool) -> Text:
    """Return a score in one cell, with its name."""
    text = Text(shortened(score.name, 8)).append(" ").append_text(arrow(score))
    text.append(f" {score.score:.2f}")
    if error:
        low, high = score.interval
        text.append(f" ±{(high - low) / 2:.2f}", style="dim")
    return text


def way(score: FeatureScore) -> int:
    """Return the direction where it is sure; 0 where the interval of the score includes 1/2."""
    return score.direction if score.strength_low > 0 else 0


def arrow(score: FeatureScore) -> Text:
    """Return the sure direction: up, down, or neither."""
    return Text(_ARROWS[way(score)], style=DIRECTION_COLOURS[way(score)])


def effect_cell(score: FeatureScore) -> Text:
    """Return the effect with its 95 % limits, in units of the output."""
    if score.effect is None:
        return Text("–", style="dim")
    text = Text(f"{score.effect:+.3g}")
    if score.effect_stderr is not None:
        text.append(f" ± {1.96 * score.effect_stderr:.2g}", style="dim")
    return text


def psi_level(column: ColumnDrift) -> int:
    """Return 2 where the index is large, 1 where it is noticeable, 0 where not, or within chance."""
    psi = column.psi
    if psi is None or (column.psi_critical is not None and not beyond_chance(column)):
        return 0
    return 2 if psi >= PSI_LARGE else 1 if psi >= PSI_NOTICEABLE else 0


def psi_cell(column: ColumnDrift | None) -> Text:
    """Return the index, coloured where it is large and beyond what chance gives."""
    if column is None or column.psi is None:
        return Text("–", style="dim")
    return Text(f"{column.psi:.2f}", style=("dim", "yellow", "bold red")[psi_level(column)])


def beyond_chance(column: ColumnDrift) -> bool:
    """Whether the index is known to exceed its critical value."""
    return (
        column.psi is not None
        and column.psi_critical is not None
        and column.psi > column.psi_critical
    )


def worst(columns: Sequence[ColumnDrift], count: int) -> list[ColumnDrift]:
    """Return the columns that drifted most: those beyond chance first, large and noticeable ones in front."""

    def order(column: ColumnDrift) -> tuple[int, bool, float]:
        return -psi_level(column), not beyond_chance(column), -(column.psi or 0.0)

    return sorted(columns, key=order)[:count]


def reference_words(drift: WindowDrift) -> str:
    """Return what the window is compared with."""
    if drift.reference == "preceding":
        return "the window before"
    return "the card's baseline" if drift.reference_window is None else "the first full window"


def shortened(name: str, width: int) -> str:
    """Return a name made safe for the terminal, cut in its middle to ``width`` cells of it: names of one
    family begin alike, those of one kind end alike."""
    safe = printable(name)
    if cell_len(safe) <= width:
        return safe
    head = _leading(safe, width // 2)
    tail = _leading(safe[::-1], width - 1 - cell_len(head))[::-1]
    return f"{head}…{tail}"


def _leading(text: str, cells: int) -> str:
    """Return as much of the text's beginning as ``cells`` hold."""
    count = 0
    while count < len(text) and cell_len(text[: count + 1]) <= cells:
        count += 1
    return text[:count]
