"""Attributions and drift of one window as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from rich.console import Group
from rich.table import Table
from rich.text import Text

from attributary.schemas.attribution import (
    Accounting,
    ColumnDrift,
    FeatureScore,
    Window,
    WindowAttribution,
    WindowDrift,
)
from attributary.service.printable import printable

_ARROWS = {1: "↑", -1: "↓", 0: "·"}
_NAME = 40
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def attribution_view(message: WindowAttribution, top: int) -> Group:
    """Return a heading, the features by rank, the groups, and what it all rests on."""
    state = "final" if message.final else "so far"
    heading = Text(
        f"{printable(message.model, _NAME)} · {printable(message.output, _NAME)} · "
        f"{_window(message.window)} · {message.accounting.rows:,} rows, {state}",
        style="bold",
    )
    table = _table("", "feature", "score", "95 % interval", "", "effect", "eff. rows", "missing")
    for score in sorted(message.features, key=lambda s: s.rank)[:top]:
        _add_score(table, score)
    hidden = len(message.features) - top
    if hidden > 0:
        table.add_row("", Text(f"and {hidden} more", style="dim"))
    if message.groups:
        table.add_section()
        for score in sorted(message.groups, key=lambda s: s.rank)[:top]:
            _add_score(table, score, style="cyan")
    return Group(heading, table, _accounting(message.accounting), Text(""))


def drift_view(message: WindowDrift, top: int) -> Group:
    """Return a heading, the columns by population-stability index, and the scores' agreement."""
    against: str = message.reference
    if message.reference_window is not None:
        against = f"{against} {_window(message.reference_window)}"
    heading = Text(
        f"{printable(message.model, _NAME)} · {printable(message.output, _NAME)} · "
        f"{_window(message.window)} against {against} · "
        f"{message.rows:,} and {message.reference_rows:,} rows",
        style="bold",
    )
    table = _table("", "column", "PSI", "KS", "critical", "Wasserstein", "missing Δ")
    _add_drift(table, "output", message.output_drift)
    table.add_section()
    ranked = sorted(message.features, key=lambda c: c.psi if c.psi is not None else -1.0)[::-1]
    for place, column in enumerate(ranked[:top], 1):
        _add_drift(table, str(place), column)
    found = message.attributions
    agreement = Text(
        "scores against the reference's: "
        f"Kendall {_number(found.kendall)}, Spearman {_number(found.spearman)}, "
        f"Jaccard@8 {_number(found.jaccard_at_8)}, NDCG@8 {_number(found.ndcg_at_8)}",
        style="dim",
    )
    return Group(heading, table, agreement, Text(""))


def moment(milliseconds: int) -> str:
    """Return a time as UTC text; the bare number where no calendar has it."""
    try:
        return (_EPOCH + timedelta(milliseconds=milliseconds)).strftime("%Y-%m-%d %H:%M:%S UTC")
    except OverflowError:
        return f"{milliseconds} ms"


def _window(window: Window) -> str:
    if window.kind == "lifetime":
        return "lifetime"
    if window.kind == "decayed":
        return f"decayed, half-life {window.half_life_seconds or 0:g} s"
    return f"{window.kind} {window.seconds or 0:g} s from {moment(window.start)}"


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in titles:
        text = title in ("feature", "column", "95 % interval")
        table.add_column(title, justify="left" if text else "right", no_wrap=True)
    return table


def _add_score(table: Table, score: FeatureScore, style: str = "") -> None:
    low, high = score.interval
    effect = _number(score.effect)
    if score.effect is not None and score.effect_stderr is not None:
        effect += f" ± {1.96 * score.effect_stderr:.2g}"
    table.add_row(
        str(score.rank),
        Text(printable(score.name, _NAME)),
        _number(score.score),
        f"[{low:.3f}, {high:.3f}]",
        _ARROWS[score.direction],
        effect,
        f"{score.effective_rows:,.0f}",
        "" if score.missing is None else f"{score.missing:.1%}",
        style=style,
    )


def _add_drift(table: Table, place: str, column: ColumnDrift) -> None:
    beyond = (
        column.ks is not None and column.ks_critical is not None and column.ks > column.ks_critical
    )
    table.add_row(
        place,
        Text(printable(column.name, _NAME)),
        *(
            _number(value)
            for value in (
                column.psi,
                column.ks,
                column.ks_critical,
                column.wasserstein,
                column.missing_change,
            )
        ),
        style="yellow" if beyond else "",
    )


def _accounting(found: Accounting) -> Text:
    rejected, thinned = sum(found.rows_rejected.values()), found.rows_thinned
    reasons = ", ".join(f"{printable(r)} {n:,}" for r, n in sorted(found.rows_rejected.items()))
    return Text(
        f"accepted {found.rows_accepted:,}, rejected {rejected:,}"
        f"{f' ({reasons})' if reasons else ''}, late {found.rows_late:,}, gaps {found.gaps:,}"
        f"{f', of this window {thinned:,} left out of the scores' if thinned else ''}"
        f"; {_offsets(found.offsets)}",
        style="red" if found.gaps else "dim",
    )


def _offsets(offsets: dict[str, tuple[int, int]]) -> str:
    shown: Sequence[str] = [
        f"{printable(name)} {low}–{high}" for name, (low, high) in sorted(offsets.items())[:4]
    ]
    more = f" and {len(offsets) - 4} more" if len(offsets) > 4 else ""
    return f"offsets {', '.join(shown)}{more}" if shown else "no offsets"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}" if abs(value) < 1000 else f"{value:,.4g}"
