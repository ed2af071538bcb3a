"""An explanation as tables with bars, for people."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from attributary.schemas.explanation import (
    Contribution,
    Explanation,
    LocalContributions,
    LocalOrder,
    McirResult,
    OrderImportance,
    OrdShapResult,
    TExplainerResult,
)
from attributary.service.fitted_table import FittedTable
from attributary.service.information_table import information_view
from attributary.service.order_strip import extremes, strip
from attributary.service.printable import printable

_NAME, _VALUE, _BAR = 28, 14, 20
# Years and such stay as they are.
_GROUPED, _EXPONENT = 1e4, 1e9
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_COLOURS = {1: "green", -1: "red", 0: "dim"}


def explanation_view(answer: Explanation, top: int) -> RenderableType:
    """Return one table for each instance and output, the features by the size of their parts."""
    parts: list[RenderableType] = []
    result = answer.result
    if isinstance(result, TExplainerResult):
        for local in result.explanations:
            parts += [_heading(answer, local), _contributions(local, top), _sum(local), Text("")]
    elif isinstance(result, OrdShapResult):
        for order in result.explanations:
            parts += [_heading(answer, order), _orders(order, top), Text("")]
    elif isinstance(result, McirResult):
        parts += [information_view(answer.model or "", result, top), Text("")]
    notes = [] if result is None else result.notes
    parts += [Text(note, style="dim") for note in notes]
    parts.append(
        Text(
            f"{answer.method} in {answer.seconds:.2f} s: {answer.model_rows:,} rows asked of the model"
            + (f", {answer.background_rows:,} background rows" if answer.background_rows else ""),
            style="dim",
        )
    )
    return Group(*parts)


def _heading(answer: Explanation, local: LocalContributions | LocalOrder) -> Text:
    name = f"row {local.instance}" if local.id is None else printable(local.id, _NAME)
    return Text(
        f"{printable(answer.model or '', 40)} · {name} · {printable(local.output, 40)} = "
        f"{_number(local.prediction)}",
        style="bold",
    )


def _contributions(local: LocalContributions, top: int) -> FittedTable:
    ranked = sorted(local.features, key=lambda one: -abs(one.contribution or 0.0))
    shown = ranked[:top]
    largest = max((abs(one.contribution or 0.0) for one in shown), default=0.0)
    table = FittedTable(
        "feature", "value", "contribution", "", "per unit", left=[3], spare=[4, 3, 1]
    )
    for one in shown:
        table.add_row(
            printable(one.feature, _NAME),
            _value(one),
            _signed(one.contribution),
            _bar(one.contribution, largest),
            Text("–" if one.gradient is None else _number(one.gradient, 3, "+"), style="dim"),
        )
    _rest(table, ranked[top:])
    return table


def _rest(table: FittedTable, hidden: Sequence[Contribution]) -> None:
    if hidden:
        total = sum(one.contribution or 0.0 for one in hidden)
        table.add_row(Text(f"{len(hidden)} more", style="dim"), "", _signed(total), "", "")


def _sum(local: LocalContributions) -> Text:
    total = sum(one.contribution or 0.0 for one in local.features)
    return Text(
        f"base {_number(local.base_value)} {_added(total)} from features {_added(local.additivity_gap)} "
        f"left over = {_number(local.prediction)}",
        style="dim",
    )


def _orders(local: LocalOrder, top: int) -> FittedTable:
    ranked = sorted(local.features, key=lambda one: -abs(one.value_importance))[:top]
    largest = max((abs(one.value_importance) for one in ranked), default=0.0)
    low, high = extremes(local)
    titles = ("feature", "value", "value's part", "", "per position", "worth by position")
    table = FittedTable(*titles, left=[3], spare=[3, 5, 1])
    for one in ranked:
        table.add_row(
            printable(one.feature, _NAME),
            _value(one),
            _with_error(one.value_importance, one.value_stderr),
            _bar(one.value_importance, largest),
            _with_error(one.position_importance, one.position_stderr),
            Text(strip(one.gamma or [], low, high)),
        )
    return table


def _bar(value: float | None, largest: float) -> Text:
    """Return a bar that grows right from the middle for what adds, left for what takes away."""
    if value is None or not largest:
        return Text("")
    eighths = round(abs(value) / largest * _BAR / 2 * 8)
    whole, part = divmod(eighths, 8)
    half = _BAR // 2
    if value >= 0:
        bar = "█" * whole + (_EIGHTHS[part] if part else "")
        return Text(" " * half + "│" + bar, style=_COLOURS[1])
    # There are no blocks that grow from the right edge: half a cell at least.
    bar = ("▐" if part >= 4 else "") + "█" * whole
    return Text(f"{bar:>{half}}│", style=_COLOURS[-1])


def _value(one: Contribution | OrderImportance) -> Text:
    value = one.value
    if value is None:
        return Text("missing", style="dim")
    return Text(printable(value, _VALUE) if isinstance(value, str) else _number(value))


def _signed(value: float | None) -> Text:
    if value is None:
        return Text("–", style="dim")
    return Text(_number(value, 4, "+"), style=_COLOURS[(value > 0) - (value < 0)])


def _with_error(value: float, stderr: float | None) -> Text:
    text = _signed(value)
    if stderr is not None and math.isfinite(stderr):
        text.append(f" ± {1.96 * stderr:.2g}", style="dim")
    return text


def _added(value: float) -> str:
    return f"{'−' if value < 0 else '+'} {_number(abs(value), 4)}"


def _number(value: float, digits: int = 6, sign: str = "") -> str:
    """Return so many digits, and all before the point of what people read without an exponent."""
    if not _GROUPED <= abs(value) < _EXPONENT:
        return f"{value:{sign}.{digits}g}"
    return f"{value:{sign},.{digits}g}" if abs(value) < 10**digits else f"{value:{sign},.0f}"
