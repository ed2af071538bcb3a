"""MCIR-M in a terminal: the ranked features with bars, then those that cannot be ranked."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from attributary.schemas.explanation import LightRun, McirResult, UniqueInformation
from attributary.service.fitted_table import FittedTable
from attributary.service.printable import printable

_NAME, _BAR, _NEAR = 24, 12, 32
_COMPONENTS = {
    "outputs": "outputs (Wasserstein, in deviations)",
    "projected": "reduced outputs (the same)",
    "rank": "ranking ((1 − τ) / 2)",
    "head": "first {head} features (1 − Jaccard)",
    "curves": "deletion and insertion curves",
}
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def information_view(model: str, result: McirResult, top: int) -> RenderableType:
    """Return the tables, ``top`` features at most in each, and how the neighbourhoods were chosen."""
    ranked = [one for one in result.features if one.ranked]
    others = [one for one in result.features if not one.ranked]
    source = "rows of the stream" if result.observed else "rows, outputs of the model"
    names = ", ".join(printable(name, 40) for name in result.outputs[:5])
    more = f" and {len(result.outputs) - 5} more" if len(result.outputs) > 5 else ""
    parts: list[RenderableType] = [
        Text(
            f"{printable(model, 40)} · {names}{more} · {result.rows:,} {source}",
            style="bold",
        )
    ]
    if ranked:
        parts += [_ranked(ranked, top)]
    if others:
        parts += [Text("not ranked: no neighbourhood", style="bold"), _others(others, top)]
    parts += [Text(line, style="dim") for line in _choice(result)]
    if result.light is not None:
        parts += [Text(_light(result.light, result.rows), style="bold"), _fidelity(result.light)]
    return Group(*parts)


def _ranked(ranked: list[UniqueInformation], top: int) -> FittedTable:
    titles = ("", "feature", "score", "", "unique", "joint", "given", "doubts")
    table = FittedTable(*titles, name=1, left=[3, 6, 7], spare=[3, 6, 5, 4, 7])
    for one in ranked[:top]:
        table.add_row(
            Text(str(one.rank), style="dim"),
            printable(one.feature, _NAME),
            _score(one),
            Text(bar(one.score), style="green"),
            f"{one.unique:.3g}",
            f"{one.joint:.3g}",
            Text(_shortened(one.neighbourhood), style="dim"),
            Text(", ".join(one.flags), style="yellow"),
        )
    _rest(table, len(ranked) - top, (1, 6))
    return table


def _others(others: list[UniqueInformation], top: int) -> FittedTable:
    table = FittedTable("feature", "marginal", "", left=[2], spare=[2])
    largest = max(one.marginal for one in others)
    for one in others[:top]:
        share = one.marginal / largest if largest > 0 else 0.0
        table.add_row(
            printable(one.feature, _NAME), f"{one.marginal:.3g}", Text(bar(share), style="green")
        )
    _rest(table, len(others) - top, (0, 2))
    return table


def _light(light: LightRun, rows: int) -> str:
    reduced = "" if light.outputs is None else f", outputs reduced to {light.outputs}"
    return (
        f"light run: {light.rows:,} of {rows:,} rows, {light.sampling}{reduced}; "
        f"{light.seconds:.2g} s, the full one {light.seconds_full:.2g} s"
    )


def _fidelity(light: LightRun) -> FittedTable:
    table = FittedTable("distance from the full run", "value", "tolerance", "", left=[3])
    for one in light.components:
        if one.value is None:
            verdict = Text("undefined", style="dim")
        else:
            verdict = Text("pass", style="green") if one.passed else Text("fail", style="red")
        table.add_row(
            _COMPONENTS[one.name].format(head=light.head),
            "" if one.value is None else f"{one.value:.3g}",
            f"{one.tolerance:g}",
            verdict,
        )
    return table


def _choice(result: McirResult) -> list[str]:
    lines = ["unique, joint and marginal information in nats"]
    if result.size is not None and len(result.sizes) > 1:
        tried = ", ".join(f"{one.size}: {one.total:.3g}" for one in result.sizes)
        lines.append(f"neighbourhoods of up to {result.size}; criterion by size {tried}")
    lines += _kept(result)
    found = result.stability
    if found is not None and found.kendall is not None:
        head = "" if found.jaccard is None else f", the first {found.head} {found.jaccard:.2f}"
        lines.append(f"agreement of resamples: Kendall's τ {found.kendall:.2f}{head}")
    return lines


def _kept(result: McirResult) -> list[str]:
    source = result.neighbourhoods
    if source is None or (source.origin == "found" and source.change is None):
        return []
    if source.origin == "given":
        return ["neighbourhoods as they were given"]
    words = "kept" if source.origin == "reused" else "found anew"
    change = source.change
    if change is None or change.pair is None:
        return [f"neighbourhoods {words}: dependence has not changed beyond chance"]
    first, second = (printable(name, _NAME) for name in change.pair)
    return [
        f"neighbourhoods {words}: the correlation of {first} and {second} has changed by "
        f"{change.largest:.2g}, the limit is {change.limit:g}"
    ]


def bar(share: float) -> str:
    """Return a bar of blocks for a share of 0 to 1."""
    whole, part = divmod(round(min(max(share, 0.0), 1.0) * _BAR * 8), 8)
    return "█" * whole + (_EIGHTHS[part] if part else "")


def _score(one: UniqueInformation) -> Text:
    text = Text(f"{one.score:.3f}")
    if one.interval is not None:
        text.append(f" {one.interval[0]:.2f}–{one.interval[1]:.2f}", style="dim")
    return text


def _shortened(names: list[str]) -> str:
    shown = ", ".join(printable(name, _NAME) for name in names)
    return shown if len(shown) <= _NEAR else f"{shown[: _NEAR - 1]}…"


def _rest(table: FittedTable, hidden: int, empty: tuple[int, int]) -> None:
    """Say how many rows there are besides, between so many empty cells before and after."""
    if hidden > 0:
        before, after = empty
        table.add_row(*[""] * before, f"{hidden} more", *[""] * after, style="dim")
