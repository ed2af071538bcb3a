"""A table that leaves columns out, rather than digits, where the terminal is narrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

_GAP = 2
_LEAST_NAME = 10


class FittedTable:
    """Rows of text under ``titles``; cells are no markup, whatever they hold.

    ``name`` is the column that is cut first, ``left`` those that begin at the left, ``spare`` those that
    are left out, the first of them first, until the others have room.
    """

    def __init__(
        self, *titles: str, name: int = 0, left: Sequence[int] = (), spare: Sequence[int] = ()
    ) -> None:
        self._titles = titles
        self._name = name
        self._left = {name, *left}
        self._spare = tuple(spare)
        self._rows: list[tuple[Text, ...]] = []

    def add_row(self, *cells: str | Text, style: str = "") -> None:
        """Add a row, a cell for each title."""
        row = tuple(
            cell.copy() if isinstance(cell, Text) else Text(cell, style=style) for cell in cells
        )
        if len(row) != len(self._titles):
            raise ValueError(f"expected {len(self._titles)} cells, got {len(row)}")
        self._rows.append(row)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render what fits, with names as long as there is room."""
        widths = [
            max([len(title), *(row[place].cell_len for row in self._rows)])
            for place, title in enumerate(self._titles)
        ]
        shown = list(range(len(widths)))
        for place in self._spare:
            if self._room(widths, shown, options.max_width) >= min(widths[self._name], _LEAST_NAME):
                break
            shown.remove(place)
        room = max(self._room(widths, shown, options.max_width), _LEAST_NAME)
        table = Table(box=None, pad_edge=False, header_style="dim")
        for place in shown:
            side: Literal["left", "right"] = "left" if place in self._left else "right"
            table.add_column(self._titles[place], justify=side, no_wrap=True)
        for row in self._rows:
            cut = row[self._name].copy()
            cut.truncate(room, overflow="ellipsis")
            table.add_row(*(cut if place == self._name else row[place] for place in shown))
        yield table

    def _room(self, widths: Sequence[int], shown: Sequence[int], width: int) -> int:
        """Return what the other columns leave for the name."""
        others = [widths[place] for place in shown if place != self._name]
        return width - sum(others) - _GAP * len(others)
