"""OrdShap in a terminal: one line per feature, with γ as a row of blocks."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from attributary.schemas.explanation import LocalOrder, OrdShapResult
from attributary.service.order_pictures import label
from attributary.service.printable import printable

_BLOCKS = "▁▂▃▄▅▆▇█"
#: More positions than this are averaged in runs.
_COLUMNS = 40


def order_tables(result: OrdShapResult, rows: int = 20) -> RenderableType:
    """Return one table per explanation, the ``rows`` features of the largest importance first."""
    parts: list[RenderableType] = [_table(entry, rows) for entry in result.explanations]
    parts += [Text(printable(note), style="dim") for note in result.notes]
    return Group(*parts)


def _table(entry: LocalOrder, rows: int) -> Table:
    name = entry.id if entry.id is not None else f"instance {entry.instance}"
    table = Table(
        title=Text(printable(f"{name}: {entry.output} = {entry.prediction:.4g}")),
        title_justify="left",
    )
    table.add_column("feature", overflow="fold")
    table.add_column("value importance", justify="right")
    table.add_column("position importance", justify="right")
    table.add_column("worth by position", no_wrap=True)
    known = [c for f in entry.features for c in f.gamma or [] if c is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    places = max(len(entry.features), 1)
    order = sorted(
        entry.features,
        key=lambda f: -max(abs(f.value_importance), abs(f.position_importance) * places / 2),
    )
    for feature in order[:rows]:
        table.add_row(
            Text(label(feature)),
            _with_error(feature.value_importance, feature.value_stderr),
            _with_error(feature.position_importance, feature.position_stderr),
            _strip(feature.gamma or [], low, high),
        )
    if len(order) > rows:
        table.caption = f"and {len(order) - rows} more"
    return table


def _with_error(value: float, stderr: float | None) -> str:
    if not stderr:
        return f"{value:+.3g}"
    return f"{value:+.3g} ± {1.96 * stderr:.2g}"


def _strip(gamma: Sequence[float | None], low: float, high: float) -> str:
    """Return a block for each position, or run of positions, between the table's extremes."""
    step = -(-len(gamma) // _COLUMNS) if gamma else 1
    drawn = []
    for start in range(0, len(gamma), step):
        run = [value for value in gamma[start : start + step] if value is not None]
        if not run:
            drawn.append(" ")
            continue
        share = (sum(run) / len(run) - low) / (high - low) if high > low else 0.0
        drawn.append(_BLOCKS[min(int(share * len(_BLOCKS)), len(_BLOCKS) - 1)])
    return "".join(drawn)
