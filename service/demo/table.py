"""The live table: what a model's outputs follow, how surely, and what drifts. Fits 100 columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from attributary.schemas.attribution import (
    FeatureScore,
    WindowAttribution,
    WindowDrift,
)
from attributary.service.accounting import Accounting
from attributary.service.cells import (
    compact,
    effect_cell,
    plain_table,
    psi_cell,
    ranked,
    reference_words,
    score_cells,
    shortened,
    worst,
)
from attributary.service.latest import Latest
from attributary.service.words import describe_window, left_out, moment

WIDTH = 100
NAME_WIDTH, GROUP_WIDTH = 20, 12
TOP_FEATURES = 12
TOP_GROUPS = 8
TOP_DRIFT = 4
TOP_PER_CLASS = 3


@dataclass
class View:
    """What is shown: results, counts and progress. The runner updates it, ``render`` draws it."""

    title: str
    unit: str
    latest: Latest
    total: int
    published: int = 0
    rate: float = 0.0
    elapsed: float = 0.0
    state: str = "streaming"
    accounting: Accounting = field(default_factory=lambda: Accounting({}, {}))

    def render(self) -> RenderableType:
        """Return the table as it stands."""
        parts: list[RenderableType] = [_progress(self)]
        outputs = self.latest.outputs
        shown = [message for name in outputs if (message := self.latest.shown(name)) is not None]
        if not shown:
            parts.append(Text("waiting for the first attributions", style="dim"))
        elif len(outputs) == 1:
            parts.append(_window_line(shown[0], self.latest.watermark))
            parts.append(_one_output(shown[0], self.latest.drift(outputs[0]), self.unit))
        else:
            parts.append(_window_line(shown[0], self.latest.watermark))
            parts.append(_classes(shown))
        parts.append(_drift_lines([self.latest.drift(name) for name in outputs], self.unit))
        return Panel(Group(*parts), title=self.title, width=WIDTH, padding=(0, 1))


def _progress(view: View) -> Text:
    counts = view.accounting
    reasons = ", ".join(
        f"{reason} {rows:,}" for reason, rows in sorted(counts.rejected_by_reason.items())
    )
    text = Text()
    text.append(f"{view.state} {view.elapsed:.0f} s", style="bold")
    text.append(
        f" · {view.published:,} of {view.total:,} rows published · {view.rate:,.0f} rows/s\n"
    )
    text.append(f"{counts.accepted:,} accepted", style="green")
    text.append(left_out(counts.thinned), style="yellow")
    text.append(" · ")
    text.append(f"{counts.rejected:,} rejected", style="red" if counts.rejected else "")
    text.append(f" ({reasons})" if reasons else "")
    text.append(f" · {counts.waiting:,} waiting" if counts.waiting else "")
    text.append(f" · {counts.gaps:,} offsets lost" if counts.gaps else "", style="bold red")
    return text


def _window_line(message: WindowAttribution, watermark: int | None) -> Text:
    state = "final" if message.final else "open"
    rows = message.accounting.rows
    text = Text("\n").append(f"{message.window.kind} window: ", style="bold")
    text.append(f"{describe_window(message.window)}, {rows:,} rows, {state}")
    text.append(f" · watermark {'none yet' if watermark is None else moment(watermark)}")
    return text


def _one_output(message: WindowAttribution, drift: WindowDrift | None, unit: str) -> RenderableType:
    beside = Table.grid(padding=(0, 2, 0, 0))
    beside.add_row(_features(message, drift, unit), _groups(message.groups))
    return beside


def _features(message: WindowAttribution, drift: WindowDrift | None, unit: str) -> Table:
    drifted = {column.name: column for column in drift.features} if drift is not None else {}
    table = plain_table()
    table.add_column(message.output, width=NAME_WIDTH, no_wrap=True)
    table.add_column("", width=1)
    table.add_column("CIR", width=5, justify="right")
    table.add_column("95 %", width=11, no_wrap=True)
    table.add_column(f"effect, {unit}"[:16], width=16, justify="right", no_wrap=True)
    table.add_column("PSI", width=4, justify="right")
    for score in ranked(message.features)[:TOP_FEATURES]:
        table.add_row(
            *score_cells(score, NAME_WIDTH), effect_cell(score), psi_cell(drifted.get(score.name))
        )
    return table


def _groups(groups: Sequence[FeatureScore]) -> Table:
    table = plain_table()
    table.add_column("group", width=GROUP_WIDTH, no_wrap=True)
    table.add_column("", width=1)
    table.add_column("CIR", width=5, justify="right")
    table.add_column("95 %", width=11, no_wrap=True)
    for score in ranked(groups)[:TOP_GROUPS]:
        table.add_row(*score_cells(score, GROUP_WIDTH))
    return table


def _classes(shown: Sequence[WindowAttribution]) -> Table:
    """One line per output: its strongest features and its strongest group."""
    table = plain_table()
    table.add_column("output", width=12, no_wrap=True)
    for place in range(TOP_PER_CLASS):
        table.add_column("strongest, ± 95 %" if place == 0 else "", width=21, no_wrap=True)
    table.add_column("group", width=16, no_wrap=True)
    for message in shown:
        best = ranked(message.features)[:TOP_PER_CLASS]
        cells = [compact(score, error=True) for score in best]
        cells += [Text("")] * (TOP_PER_CLASS - len(cells))
        group = ranked(message.groups)[:1]
        table.add_row(message.output, *cells, compact(group[0], error=False) if group else Text(""))
    return table


def _drift_lines(found: Sequence[WindowDrift | None], unit: str) -> Text:
    drifts = [message for message in found if message is not None]
    text = Text("\n").append("drift: ", style="bold")
    if not drifts:
        return text.append("no window to compare yet", style="dim")
    first = drifts[0]
    text.append(f"{describe_window(first.window)}, against {reference_words(first)}")
    text.append("\n  features")
    for column in worst(first.features, TOP_DRIFT):
        text.append(f"  {shortened(column.name, 20)} PSI ").append_text(psi_cell(column))
    text.append("\n  output")
    if len(drifts) == 1:
        text.append("  ").append_text(_output_drift(first, unit))
    else:
        for column in worst([drift.output_drift for drift in drifts], TOP_DRIFT):
            text.append(f"  {shortened(column.name, 12)} PSI ").append_text(psi_cell(column))
    return text


def _output_drift(message: WindowDrift, unit: str) -> Text:
    drift, agreement = message.output_drift, message.attributions.kendall
    text = Text(f"{shortened(message.output, 20)} PSI ").append_text(psi_cell(drift))
    if drift.wasserstein is not None:
        text.append(f", moved {drift.wasserstein:.3g} {unit}")
    if agreement is not None:
        text.append(f" · ranking agrees {agreement:.2f} (Kendall)")
    return text
