"""Figures of scores, effects and drift: intervals in rows, and bars with critical values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from attributary.schemas.attribution import ColumnDrift, FeatureScore
from attributary.service.cells import PSI_LARGE, PSI_NOTICEABLE, psi_level, way
from attributary.service.report.axes import Axis, short, spanning
from attributary.service.report.markup import Markup, tag
from attributary.service.report.plot import MIDDLE, figure, level, row, share, upright
from attributary.service.report.verdicts import drift_words

_CLASSES = {1: "up", -1: "down", 0: "none"}
_FILLS = ("fill", "fill noticeable", "fill large")
_GLYPHS = {1: "▲", -1: "▼", 0: "·"}
_TIGHT = 3.0  # per cent of the drawing: ends of a narrower interval would make its point a square
_PSI_SHOWN = (
    1.0  # a larger index is cut off, so that the others and the thresholds can be told apart
)


@dataclass(frozen=True)
class Mark:
    """One row of an interval figure: a point with its 95 % limits; None where they are unknown."""

    name: str
    value: float
    limits: tuple[float, float] | None
    direction: int
    label: str


def score_marks(scores: Sequence[FeatureScore]) -> list[Mark]:
    """Return the scores as rows."""
    return [
        Mark(s.name, s.score, s.interval, way(s), f"{_GLYPHS[way(s)]} {s.score:.3f}")
        for s in scores
    ]


def effect_marks(scores: Sequence[FeatureScore]) -> list[Mark]:
    """Return the effects as rows, those that are known."""
    return [mark for score in scores if (mark := _effect_mark(score)) is not None]


def _effect_mark(score: FeatureScore) -> Mark | None:
    effect, error = score.effect, score.effect_stderr
    if effect is None:
        return None
    if error is None:
        return Mark(score.name, effect, None, 0, f"{short(effect)} ± unknown")
    half = 1.96 * error
    sign = (effect - half > 0) - (effect + half < 0)
    label = f"{short(effect)} ± {half:.2g}"
    return Mark(score.name, effect, (effect - half, effect + half), sign, label)


def interval_figure(
    marks: Sequence[Mark], title: str, *, axis: tuple[float, float] | None, neutral: float
) -> Markup:
    """Return a figure of points with error bars, one a row; a line stands at ``neutral``."""
    values = [v for mark in marks for v in (mark.value, *(mark.limits or ()))]
    scale = Axis(*axis, 0.0, 100.0) if axis else spanning(values, 0.0, 100.0, zero=True)
    return figure(title, scale, [(neutral, "neutral")], (_interval_row(m, scale) for m in marks))


def drift_figure(columns: Sequence[ColumnDrift], title: str) -> Markup:
    """Return bars of the population-stability index, with what chance alone exceeds in 5 % of windows."""
    values = [v for c in columns for v in (c.psi, c.psi_critical) if v is not None]
    scale = Axis(0.0, min(1.05 * max([*values, 0.3]), _PSI_SHOWN), 0.0, 100.0)
    thresholds = [(value, "threshold") for value in (PSI_NOTICEABLE, PSI_LARGE)]
    return figure(title, scale, thresholds, (_drift_row(column, scale) for column in columns))


def _interval_row(mark: Mark, scale: Axis) -> Markup:
    class_ = _CLASSES[mark.direction]
    if mark.limits is None:
        told, bar, point = "95 % limits unknown", [], "point unknown"
    else:
        low, high = mark.limits
        told, point = f"95 % {low:.4g} to {high:.4g}", f"point {class_}"
        bar = list(_bar(scale.at(low), scale.at(high), f"bar {class_}"))
    circle = tag("circle", cx=share(scale.at(mark.value)), cy=MIDDLE, r=4, class_=point)
    told = f"{mark.name}: {mark.value:.4g}, {told}"
    return row(mark.name, told, [*bar, circle], mark.label, class_)


def _bar(low: float, high: float, class_: str) -> Iterator[Markup]:
    yield level(low, high, class_)
    if high - low > _TIGHT:
        yield from (upright(place, class_, 4) for place in (low, high))


def _drift_row(column: ColumnDrift, scale: Axis) -> Markup:
    psi, critical = column.psi, column.psi_critical
    told = f"{column.name}: PSI {short(psi)}, critical {short(critical)}"
    drawing = []
    if psi is not None:
        drawing.append(
            tag(
                "rect",
                x=0,
                y=5,
                width=share(scale.at(psi)),
                height=12,
                class_=_FILLS[psi_level(column)],
            )
        )
        if psi > scale.high:
            drawing += [_slash(place) for place in (94.0, 96.0)]
    if critical is not None and critical <= scale.high:
        drawing.append(upright(scale.at(critical), "critical", 9))
    return row(column.name, told, drawing, f"{short(psi)} {drift_words(column)}".rstrip(), "")


def _slash(place: float) -> Markup:
    return tag("line", x1=share(place - 0.5), x2=share(place + 0.5), y1=19, y2=3, class_="break")
