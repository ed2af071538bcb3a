"""One frame: a line about everything, and for each model its leading features with what moves them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from attributary.schemas.attribution import (
    ColumnDrift,
    FeatureScore,
    WindowAttribution,
    WindowDrift,
)
from attributary.service.cells import (
    DIRECTION_COLOURS,
    arrow,
    effect_cell,
    plain_table,
    psi_cell,
    psi_level,
    ranked,
    reference_words,
    shortened,
    worst,
)
from attributary.service.model_board import ModelBoard
from attributary.service.printable import printable
from attributary.service.top.board import Board
from attributary.service.words import about, describe_window

_NAME = 28
_BAR = 12
_GROUPS = 4
_DRIFTED = 3
# Lines of a model's panel beside its features: the frame, the books, the window, titles, drift.
_PANEL_LINES, _HEAD_LINES = 8, 3
_MARKS = ("", "!", "!!")


@dataclass
class Choice:
    """What of each model is shown; positions wrap around, so that keys may go on and on."""

    window: str | None = None
    output: str | None = None
    model: int | None = None
    windows_on: int = 0
    outputs_on: int = 0
    features: int = 12

    def window_of(self, model: ModelBoard) -> str | None:
        """Return the name of the window shown; None: the model publishes none of that kind."""
        names = [name for name in model.windows if (self.window or "") in ("", name.split(",")[0])]
        return names[self.windows_on % len(names)] if names else None

    def output_of(self, model: ModelBoard) -> str | None:
        """Return the output shown; None: the model has no such output."""
        if self.output is not None:
            return self.output if self.output in model.outputs else None
        return model.outputs[self.outputs_on % len(model.outputs)]


def render(
    board: Board, choice: Choice, now: int, *, height: int | None, keys: bool
) -> RenderableType:
    """Return the frame at ``now`` (milliseconds), cut to ``height`` lines where there is one."""
    models = [board.models[name] for name in sorted(board.models)]
    if choice.model is not None and models:
        models = [models[choice.model % len(models)]]
    parts: list[Text | Panel] = [_head(board, now)]
    if not models:
        parts.append(Text("waiting for the first attributions", style="dim"))
    shown, features = _fit(len(models), choice.features, height)
    fitted = height is not None
    parts += [_panel(model, choice, now, features, one_line=fitted) for model in models[:shown]]
    if len(models) > shown:
        hidden = ", ".join(shortened(model.name, 20) for model in models[shown : shown + 4])
        more = " …" if len(models) > shown + 4 else ""
        parts.append(Text(f"{len(models) - shown} more models: {hidden}{more}", style="dim"))
    if keys:
        parts.append(Text("q quit · w window · o output · m one model · a all models", style="dim"))
    if fitted:
        _cut(parts)
    return Group(*parts)


def _cut(parts: Sequence[RenderableType]) -> None:
    """Let every text have one line only."""
    for part in parts:
        if isinstance(part, Text):
            part.no_wrap, part.overflow = True, "ellipsis"


def _fit(models: int, features: int, height: int | None) -> tuple[int, int]:
    """Return how many models, and features of each, fit into ``height`` lines."""
    if height is None or not models:
        return models, features
    room = height - _HEAD_LINES
    shown = min(models, max(1, room // (_PANEL_LINES + 3)))
    return shown, min(features, max(1, room // shown - _PANEL_LINES))


def _head(board: Board, now: int) -> Text:
    count, rate = len(board.models), sum(model.rate(now) for model in board.models.values())
    text = Text().append(printable(board.broker), style="bold")
    text.append(f" · {count} model{'' if count == 1 else 's'} · {rate:,.0f} rows/s")
    text.append(f" · lag {board.lag:,} messages")
    text.append(f" · {board.dead_letters:,} dead letters", "red" if board.dead_letters else "")
    text.append(f" · {board.gaps:,} offsets lost", "bold red" if board.gaps else "")
    if board.skipped:
        text.append(f" · {board.skipped:,} results unreadable", "red")
    return text


def _panel(model: ModelBoard, choice: Choice, now: int, features: int, *, one_line: bool) -> Panel:
    output, window = choice.output_of(model), choice.window_of(model)
    parts: list[Text | Table | None] = [_books(model, now)]
    latest = model.latest(window) if window is not None else None
    message = latest.shown(output) if latest is not None and output is not None else None
    if message is None or latest is None:
        parts.append(Text("nothing of this output and window yet", style="dim"))
    else:
        drift = latest.drift(message.output)
        parts.append(_window(model, message))
        parts.append(_features(message, drift, features))
        parts.append(_groups(message.groups))
        parts.append(_drift(drift))
    title = Text(printable(model.name, 60), style="bold")
    found = [part for part in parts if part is not None]
    if one_line:
        _cut(found)
    return Panel(Group(*found), title=title, title_align="left", padding=(0, 1))


def _books(model: ModelBoard, now: int) -> Text:
    text = Text(f"{model.rate(now):,.0f} rows/s")
    message = model.newest
    if message is None:
        return text
    books = message.accounting
    rejected = ", ".join(f"{printable(r)} {n:,}" for r, n in sorted(books.rows_rejected.items()))
    behind = None if message.watermark is None else (now - message.watermark) / 1000
    text.append(" · no watermark yet" if behind is None else f" · watermark {about(behind)} behind")
    text.append(f" · {books.rows_accepted:,} accepted")
    text.append(f" · {rejected or 'none'} rejected", "red" if rejected else "")
    text.append(f" · {books.rows_late:,} late", "yellow" if books.rows_late else "")
    text.append(f" · {books.gaps:,} gaps", "bold red" if books.gaps else "")
    if books.fractions and min(books.fractions) < 1:
        share = f" · sketched at {min(books.fractions):.0%}"
        text.append(f"{share}, {books.rows_thinned:,} of the window's rows left out", "yellow")
    text.append(f" · told {about((now - message.computed_at) / 1000)} ago", "dim")
    return text


def _window(model: ModelBoard, message: WindowAttribution) -> Text:
    text = Text().append(printable(message.output, 40), style="bold cyan")
    if (count := len(model.outputs)) > 1:
        text.append(f" ({model.outputs.index(message.output) + 1} of {count})", "dim")
    state = "final" if message.final else "so far"
    text.append(f" · {message.window.kind}: {describe_window(message.window)}")
    return text.append(f", {message.accounting.rows:,} rows, {state}")


def _features(message: WindowAttribution, drift: WindowDrift | None, count: int) -> Table:
    drifted = {column.name: column for column in drift.features} if drift is not None else {}
    table = plain_table()
    table.add_column("", justify="right", style="dim", no_wrap=True)
    table.add_column("feature", no_wrap=True, max_width=_NAME, min_width=10, overflow="ellipsis")
    table.add_column("", no_wrap=True)
    table.add_column("strength", no_wrap=True, width=_BAR + 5)
    table.add_column("CIR", no_wrap=True)
    table.add_column("95 %", no_wrap=True)
    table.add_column("effect", justify="right", no_wrap=True)
    table.add_column("missing", justify="right", no_wrap=True)
    table.add_column("PSI", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for score in ranked(message.features)[:count]:
        column = drifted.get(score.name)
        low, high = score.interval
        table.add_row(
            str(score.rank), Text(shortened(score.name, _NAME)), arrow(score), _strength(score),
            f"{score.score:.3f}", Text(f"{low:.3f}–{high:.3f}", style="dim"), effect_cell(score),
            "–" if score.missing is None else f"{score.missing:.1%}",
            psi_cell(column), _marks(column),
        )  # fmt: skip
    hidden = len(message.features) - count
    if hidden > 0:
        table.add_row("", Text(f"and {hidden} more", style="dim"))
    return table


def _strength(score: FeatureScore) -> Text:
    """Return |2·CIR - 1| as a bar, filled up to its sure part."""
    strength = abs(2 * score.score - 1)
    whole, sure = round(strength * _BAR), round(min(score.strength_low, strength) * _BAR)
    text = Text().append("█" * sure, style=DIRECTION_COLOURS[score.direction])
    text.append("▒" * (whole - sure), style="dim")
    return text.append(" " * (_BAR - whole) + f" {strength:.2f}", style="bold")


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


def _groups(groups: Sequence[FeatureScore]) -> Text | None:
    if not groups:
        return None
    text = Text().append("groups ", style="bold")
    for score in ranked(groups)[:_GROUPS]:
        text.append(f" {shortened(score.name, 16)} ", "").append_text(arrow(score))
        low, high = score.interval
        text.append(f" {score.score:.2f}", "").append(f" ±{(high - low) / 2:.2f} ", "dim")
    return text


def _drift(drift: WindowDrift | None) -> Text:
    text = Text().append("drift ", style="bold")
    if drift is None:
        return text.append(" no window to compare with yet", style="dim")
    text.append(f" against {reference_words(drift)}: output PSI ", "")
    text.append_text(psi_cell(drift.output_drift))
    for column in worst(drift.features, _DRIFTED):
        text.append(f" · {shortened(column.name, 16)} ", "").append_text(psi_cell(column))
    if (agreement := drift.attributions.kendall) is not None:
        text.append(f" · ranking agrees {agreement:.2f}")
    return text
