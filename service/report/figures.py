"""Figures as inline SVG: intervals in rows, dependence profiles, bars with critical values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attributary.schemas.attribution import ColumnDrift, FeatureScore, Profile
from attributary.service.printable import printable
from attributary.service.report.axes import Axis, short, spanning
from attributary.service.report.markup import Markup, tag

_ROW, _TOP, _BOTTOM = 22.0, 8.0, 26.0
_NAMES, _WIDTH, _NUMBERS = 190.0, 720.0, 110.0
_NAME_LENGTH = 28
_PROFILE = (230.0, 150.0)
_DIRECTIONS = {1: "up", -1: "down", 0: "none"}
_GLYPHS = {1: "▲", -1: "▼", 0: "·"}


@dataclass(frozen=True)
class Mark:
    """One row of an interval figure: a point with its 95 % limits."""

    name: str
    value: float
    low: float
    high: float
    direction: int
    label: str


def score_marks(scores: Sequence[FeatureScore]) -> list[Mark]:
    """Return the scores as rows."""
    return [
        Mark(s.name, s.score, *s.interval, s.direction, f"{_GLYPHS[s.direction]} {s.score:.3f}")
        for s in scores
    ]


def effect_marks(scores: Sequence[FeatureScore]) -> list[Mark]:
    """Return the effects as rows, those that are known."""
    found = []
    for score in scores:
        if score.effect is not None:
            half = 1.96 * (score.effect_stderr or 0.0)
            label = short(score.effect) + (f" ± {half:.2g}" if score.effect_stderr else "")
            sign = (score.effect - half > 0) - (score.effect + half < 0)
            found.append(
                Mark(
                    score.name, score.effect, score.effect - half, score.effect + half, sign, label
                )
            )
    return found


def interval_figure(
    marks: Sequence[Mark], title: str, *, axis: tuple[float, float] | None, neutral: float
) -> Markup:
    """Return a figure of points with error bars, one a row; a line stands at ``neutral``."""
    height = _TOP + _ROW * len(marks) + _BOTTOM
    start, stop = _NAMES, _WIDTH - _NUMBERS
    scale = (
        Axis(*axis, start, stop)
        if axis is not None
        else spanning([v for m in marks for v in (m.low, m.high)], start, stop, zero=True)
    )
    parts = [*_grid(scale, height), _vertical(scale.at(neutral), height, "neutral")]
    for place, mark in enumerate(marks):
        y = _TOP + _ROW * (place + 0.5)
        parts.append(_interval_row(mark, y, scale))
    return _svg(_WIDTH, height, title, parts)


def profile_figure(score: FeatureScore, profile: Profile) -> Markup | None:
    """Return the mean output over the feature's cells with its 95 % band; None where nothing is known."""
    width, height = _PROFILE
    known = [
        (cell, mean, 1.96 * (error or 0.0))
        for cell, (mean, error) in enumerate(zip(profile.mean, profile.stderr, strict=False))
        if mean is not None
    ]
    if not known:
        return None
    left, right, top, bottom = 46.0, width - 8, 24.0, height - 24
    y = spanning([v for _, mean, half in known for v in (mean - half, mean + half)], bottom, top)
    x = Axis(0, max(len(profile.mean), 1), left, right)
    upper = [(x.at(cell + 0.5), y.at(mean + half)) for cell, mean, half in known]
    lower = [(x.at(cell + 0.5), y.at(mean - half)) for cell, mean, half in known]
    line = [(x.at(cell + 0.5), y.at(mean)) for cell, mean, _ in known]
    parts = [
        tag("text", printable(score.name, _NAME_LENGTH), x=left, y=14, class_="name"),
        *(_horizontal(y.at(v), left, right, short(v)) for v in y.ticks(3)),
        tag("polygon", points=_points([*upper, *reversed(lower)]), class_="band"),
        tag("polyline", points=_points(line), class_=f"line {_DIRECTIONS[score.direction]}"),
        *(_dot(at, mean, half, place) for (at, mean, half), place in zip(known, line, strict=True)),
        *_cell_labels(profile.edges, x, height),
    ]
    return _svg(width, height, f"Mean output over the cells of {score.name}", parts, "small")


def drift_figure(columns: Sequence[ColumnDrift], title: str) -> Markup:
    """Return bars of the population-stability index, with what chance alone exceeds in 5 % of windows."""
    height = _TOP + _ROW * len(columns) + _BOTTOM
    values = [v for c in columns for v in (c.psi, c.psi_critical) if v is not None]
    scale = Axis(0.0, 1.05 * max([*values, 0.3]), _NAMES, _WIDTH - _NUMBERS)
    parts = [*_grid(scale, height)]
    parts += [_vertical(scale.at(level), height, "threshold") for level in (0.1, 0.25)]
    for place, column in enumerate(columns):
        y = _TOP + _ROW * (place + 0.5)
        parts.append(_drift_row(column, y, scale))
    return _svg(_WIDTH, height, title, parts)


def _interval_row(mark: Mark, y: float, scale: Axis) -> Markup:
    low, high = scale.at(mark.low), scale.at(mark.high)
    way = _DIRECTIONS[mark.direction]
    return tag(
        "g",
        tag("title", f"{mark.name}: {mark.value:.4g}, 95 % {mark.low:.4g} to {mark.high:.4g}"),
        _name(mark.name, y),
        tag("line", x1=low, x2=high, y1=y, y2=y, class_=f"bar {way}"),
        *(tag("line", x1=x, x2=x, y1=y - 4, y2=y + 4, class_=f"bar {way}") for x in (low, high)),
        tag("circle", cx=scale.at(mark.value), cy=y, r=4, class_=f"point {way}"),
        tag("text", mark.label, x=_WIDTH - _NUMBERS + 10, y=y + 4, class_=f"number {way}"),
    )


def _drift_row(column: ColumnDrift, y: float, scale: Axis) -> Markup:
    psi, critical = column.psi, column.psi_critical
    beyond = psi is not None and (critical is None or psi > critical)
    end = scale.at(psi or 0.0)
    return tag(
        "g",
        tag("title", f"{column.name}: PSI {short(psi)}, critical {short(critical)}"),
        _name(column.name, y),
        tag("rect", x=scale.start, y=y - 6, width=end - scale.start, height=12,
            class_="fill beyond" if beyond else "fill"),
        None if critical is None else tag(
            "line", x1=scale.at(critical), x2=scale.at(critical), y1=y - 9, y2=y + 9,
            class_="critical"),
        tag("text", short(psi), x=_WIDTH - _NUMBERS + 10, y=y + 4, class_="number"),
    )  # fmt: skip


def _svg(
    width: float, height: float, title: str, parts: Sequence[Markup | None], class_: str = "wide"
) -> Markup:
    return tag(
        "svg", tag("title", title), parts,
        viewBox=f"0 0 {width:g} {height:g}", width=width, height=height, role="img", class_=class_,
    )  # fmt: skip


def _grid(scale: Axis, height: float) -> list[Markup]:
    found = []
    for value in scale.ticks():
        x = scale.at(value)
        found.append(_vertical(x, height, "grid"))
        found.append(
            tag("text", short(value), x=x, y=height - 8, class_="tick", text_anchor="middle")
        )
    return found


def _vertical(x: float, height: float, class_: str) -> Markup:
    return tag("line", x1=x, x2=x, y1=_TOP, y2=height - _BOTTOM + 4, class_=class_)


def _horizontal(y: float, left: float, right: float, label: str) -> Markup:
    return tag(
        "g",
        tag("line", x1=left, x2=right, y1=y, y2=y, class_="grid"),
        tag("text", label, x=left - 6, y=y + 4, class_="tick", text_anchor="end"),
    )


def _name(name: str, y: float) -> Markup:
    shown = printable(name, _NAME_LENGTH)
    return tag("text", shown, x=_NAMES - 12, y=y + 4, class_="name", text_anchor="end")


def _dot(cell: int, mean: float, half: float, place: tuple[float, float]) -> Markup:
    told = tag("title", f"cell {cell + 1}: {short(mean)} ± {short(half)}")
    return tag("circle", told, cx=place[0], cy=place[1], r=2, class_="dot")


def _cell_labels(edges: Sequence[float], x: Axis, height: float) -> list[Markup]:
    """Return the values of the first, the middle and the last edge between cells."""
    chosen: dict[str, int] = {}
    for at in sorted({0, len(edges) // 2, len(edges) - 1}) if edges else ():
        chosen.setdefault(short(edges[at]), at)  # a 0/1 column has all its edges at one value
    return [
        tag("text", label, x=x.at(at + 1), y=height - 8, class_="tick", text_anchor="middle")
        for label, at in chosen.items()
    ]


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
