"""The panel of one model: its books, its window, its leading features, groups and drift."""

from __future__ import annotations

from rich.console import Group
from rich.panel import Panel
from rich.text import Text

from attributary.schemas.attribution import WindowAttribution, WindowDrift
from attributary.service.cells import (
    arrow,
    beyond_chance,
    psi_cell,
    psi_level,
    ranked,
    reference_words,
    shortened,
    worst,
)
from attributary.service.model_board import ModelBoard
from attributary.service.top.choice import Choice
from attributary.service.top.features import feature_table
from attributary.service.top.lines import Part, flow, part, sentence
from attributary.service.words import about, describe_window, quantity

#: From this width on there is room to tell what could be wrong and is not.
WIDE = 100
_GROUPS = 4
_DRIFTED = 4
_LEAST_FEATURES = 3
_LEVELS = ("", "yellow", "bold red")
_MARKS = ("", " !", " !!")
# The frame takes two lines and, with its padding, four cells of every line.
_FRAME_LINES, _FRAME_CELLS = 2, 4


class ModelPanel:
    """A model's panel, before it is known how many features it has room for. ``lines``: the most lines of a
    text in it; None: as many as it takes."""

    def __init__(
        self, model: ModelBoard, choice: Choice, now: int, *, width: int, lines: int | None
    ) -> None:
        self._width = max(8, width - _FRAME_CELLS)
        self._title = shortened(model.name, min(60, self._width))
        self._message: WindowAttribution | None = None
        self._drift: WindowDrift | None = None
        self._above = flow(_books(model, now, zeros=width >= WIDE), self._width, lines)
        self._below: list[Text] = []
        self._features = 0
        output, window = choice.output_of(model), choice.window_of(model)
        latest = model.latest(window) if window is not None else None
        message = latest.shown(output) if latest is not None and output is not None else None
        if message is None or latest is None:
            why = choice.absent_from(model) or "nothing of this output and window yet"
            self._above += sentence(why, self._width, "dim")
            return
        self._message, self._drift = message, latest.drift(message.output)
        self._above += flow(_window(model, message, self._width), self._width, lines)
        self._below += flow(_groups(message), self._width, lines and 1)
        self._below += flow(_drift_parts(self._drift), self._width, lines)
        count = len(message.features)
        self._features = count if choice.features is None else min(count, choice.features)

    @property
    def least(self) -> int:
        """Lines that it takes with a few features."""
        rows = min(self._rows(self._features), _LEAST_FEATURES + 1)
        return self._fixed + rows

    @property
    def most(self) -> int:
        """Lines that it takes with all its features."""
        return self._fixed + self._rows(self._features)

    def drawn(self, lines: int) -> Panel:
        """Return it in so many lines, with as many features as these hold."""
        if self._message is None:
            return self._framed(Group(*self._above))
        count = self._features
        while count > 1 and self._fixed + self._rows(count) > lines:
            count -= 1
        table = feature_table(self._message.features, self._drift, count, self._width)
        return self._framed(Group(*self._above, table, *self._below))

    @property
    def _fixed(self) -> int:
        titles = 0 if self._message is None else 1
        return _FRAME_LINES + len(self._above) + titles + len(self._below)

    def _rows(self, features: int) -> int:
        """Return the lines of so many features, with the one that tells how many are left out."""
        total = 0 if self._message is None else len(self._message.features)
        return features + (features < total)

    def _framed(self, content: Group) -> Panel:
        title = Text(self._title, style="bold")
        return Panel(content, title=title, title_align="left", padding=(0, 1))


def _books(model: ModelBoard, now: int, *, zeros: bool) -> list[Part]:
    """Return the model's accounting; with ``zeros`` also what could be wrong and is not."""
    rate = f"{model.rate(now):,.0f} rows/s"
    message = model.newest
    if message is None:
        return [part(1, rate)]
    books = message.accounting
    rejected = ", ".join(
        f"{shortened(r, 30)} {n:,}" for r, n in sorted(books.rows_rejected.items())
    )
    behind = None if message.watermark is None else (now - message.watermark) / 1000
    parts = [
        part(1, rate),
        part(2, "no watermark yet" if behind is None else f"watermark {about(behind)} behind"),
        part(3, f"{books.rows_accepted:,} accepted"),
    ]
    if rejected or zeros:
        told = f"{rejected or 'none'} rejected"
        parts.append(part(1 if rejected else 4, told, "red" if rejected else ""))
    if (late := books.rows_late) or zeros:
        parts.append(part(1 if late else 5, f"{late:,} late", "yellow" if late else ""))
    if (gaps := books.gaps) or zeros:
        parts.append(part(0 if gaps else 6, quantity(gaps, "gap"), "bold red" if gaps else ""))
    if books.fractions and min(books.fractions) < 1:
        share = f"sketched at {min(books.fractions):.0%}"
        parts.append(
            part(1, f"{share}, {books.rows_thinned:,} of the window's rows left out", "yellow")
        )
    return [*parts, part(2, f"told {about((now - message.computed_at) / 1000)} ago", "dim")]


def _window(model: ModelBoard, message: WindowAttribution, width: int) -> list[Part]:
    name = Text(shortened(message.output, min(40, width - 12)), style="bold cyan")
    if (count := len(model.outputs)) > 1:
        name.append(f" ({model.outputs.index(message.output) + 1} of {count})", "dim not bold")
    state = "final" if message.final else "so far"
    rows = quantity(message.accounting.rows, "row")
    kind = f"{message.window.kind}: {describe_window(message.window)}"
    kind = kind if len(kind) <= width else describe_window(message.window)
    whole = f"{kind}, {rows}, {state}"
    if len(whole) <= width:
        return [Part(0, name), part(0, whole)]
    return [Part(0, name), part(0, kind), part(1, f"{rows}, {state}")]


def _groups(message: WindowAttribution) -> list[Part]:
    parts = []
    for place, score in enumerate(ranked(message.groups)[:_GROUPS]):
        text = Text("groups  " if place == 0 else "", style="bold")
        text.append(f"{shortened(score.name, 16)} ", "not bold").append_text(arrow(score))
        low, high = score.interval
        text.append(f" {score.score:.2f}", "not bold")
        text.append(f" ±{(high - low) / 2:.2f}", "dim not bold")
        parts.append(Part(place, text))
    return parts


def _drift_parts(drift: WindowDrift | None) -> list[Part]:
    """Return what drifted: first what is beyond chance, the output with its name among it."""
    text = Text("drift ", style="bold")
    if drift is None:
        return [Part(0, text.append(" no window to compare with yet", "dim not bold"))]
    output = drift.output_drift
    level = psi_level(output)
    text.append(f" against {reference_words(drift)}", "not bold")
    parts = [Part(0, text)]
    if level or beyond_chance(output):
        told = Text(f"output {shortened(output.name, 24)} PSI ").append_text(psi_cell(output))
        told.append(_MARKS[level] or " beyond chance", _LEVELS[level])
        parts.append(Part(1, told))
    else:
        parts.append(Part(3, Text("output PSI ").append_text(psi_cell(output))))
    told_of = [column for column in drift.features if column.psi is not None]
    for place, column in enumerate(worst(told_of, _DRIFTED)):
        told = Text(f"{shortened(column.name, 16)} ").append_text(psi_cell(column))
        mark = psi_level(column)
        told.append(_MARKS[mark], _LEVELS[mark])
        parts.append(Part(4 + place if place or not (mark or beyond_chance(column)) else 2, told))
    if (agreement := drift.attributions.kendall) is not None:
        parts.append(part(4, f"ranking agrees {agreement:.2f}"))
    return parts
