"""Dependence profiles as small cards: the mean output over a feature's cells, all to one scale."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat

from attributary.schemas.attribution import FeatureScore, Profile
from attributary.service.report.axes import Axis, labels, short, spanning
from attributary.service.report.fitting import fitted
from attributary.service.report.markup import Markup, tag

_WIDTH, _HEIGHT = 230.0, 150.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 48.0, _WIDTH - 8, 24.0, _HEIGHT - 24
_ALONE = 3.0  # half the width of a band over one cell
_DIGIT = 6.0  # width of a digit of a label
_NAME_ROOM = (_RIGHT - _LEFT) / 12  # ems


@dataclass(frozen=True)
class _Cell:
    """A cell as it is drawn: ``half`` is half of its mean's 95 % interval, None where that is unknown."""

    mean: float | None
    half: float | None
    upper: float
    rows: float


_Place = tuple[float, _Cell]  # where its middle lies


def profile_figures(scores: Sequence[FeatureScore], count: int) -> list[Markup]:
    """Return figures of the first ``count`` profiles that know two cells or more; their y axes are one."""
    profiles = [(s.name, _cells(s.profile)) for s in scores if s.profile is not None]
    shown = [
        (name, cells)
        for name, cells in profiles
        if sum(cell.mean is not None for cell in cells) > 1
    ][:count]
    limits = [limit for _, cells in shown for cell in cells for limit in _limits(cell)]
    y = spanning(limits, _BOTTOM, _TOP)
    return [_card(name, cells, y) for name, cells in shown]


def _cells(profile: Profile) -> list[_Cell]:
    """Return the cells that can hold rows: between two equal edges there is nothing.

    None of a profile whose lists do not fit together.
    """
    uppers = [*profile.edges, math.inf]
    if not len(uppers) == len(profile.mean) == len(profile.stderr) == len(profile.rows):
        return []
    lowers = [-math.inf, *profile.edges]
    ends = zip(lowers, uppers, strict=True)
    values = zip(profile.mean, profile.stderr, profile.rows, strict=True)
    return [
        _Cell(mean, None if error is None else 1.96 * error, upper, rows)
        for (lower, upper), (mean, error, rows) in zip(ends, values, strict=True)
        if mean is not None or lower != upper
    ]


def _limits(cell: _Cell) -> Iterator[float]:
    if cell.mean is not None:
        yield from (cell.mean - (cell.half or 0.0), cell.mean + (cell.half or 0.0))


def _card(name: str, cells: Sequence[_Cell], y: Axis) -> Markup:
    x = Axis(0, len(cells), _LEFT, _RIGHT)
    places = [(x.at(at + 0.5), cell) for at, cell in enumerate(cells)]
    ticks = y.ticks(3)
    runs = _runs(places)
    return tag(
        "svg",
        tag("title", f"Mean output over the cells of {name}"),
        tag("text", fitted(name, _NAME_ROOM), x=_LEFT, y=14, class_="name"),
        map(_tick, map(y.at, ticks), labels(ticks)),
        (_band(run, y) for run in runs),
        (_line(run, y) for run in runs if len(run) > 1),
        map(_dot, places, _spans(cells), repeat(y)),
        _edge_labels(name, cells, x),
        viewBox=f"0 0 {_WIDTH:g} {_HEIGHT:g}", width=_WIDTH, height=_HEIGHT, role="img",
    )  # fmt: skip


def _runs(places: Sequence[_Place]) -> list[list[tuple[float, float, float]]]:
    """Return the stretches of neighbouring cells whose means and errors are known, as (x, mean, half)."""
    runs: list[list[tuple[float, float, float]]] = [[]]
    for x, cell in places:
        if cell.mean is not None and cell.half is not None:
            runs[-1].append((x, cell.mean, cell.half))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _band(run: Sequence[tuple[float, float, float]], y: Axis) -> Markup:
    around = (-_ALONE, _ALONE) if len(run) == 1 else (0.0,)
    upper = [(x + side, y.at(mean + half)) for x, mean, half in run for side in around]
    lower = [(x + side, y.at(mean - half)) for x, mean, half in run for side in around]
    return tag("polygon", points=_points([*upper, *reversed(lower)]), class_="band")


def _line(run: Sequence[tuple[float, float, float]], y: Axis) -> Markup:
    return tag("polyline", points=_points((x, y.at(mean)) for x, mean, _ in run), class_="line")


def _dot(place: _Place, span: str, y: Axis) -> Markup | None:
    at, cell = place
    if cell.mean is None:
        return None
    half = "unknown" if cell.half is None else short(cell.half)
    told = tag("title", f"{span}: {short(cell.mean)} ± {half}, {cell.rows:,.0f} rows")
    class_ = "dot unknown" if cell.half is None else "dot"
    return tag("circle", told, cx=at, cy=y.at(cell.mean), r=2.5, class_=class_)


def _spans(cells: Sequence[_Cell]) -> list[str]:
    """Return which values each cell holds, in words."""
    ends = labels([cell.upper for cell in cells[:-1]])
    inner = [f"{low} to {high}" for low, high in pairwise(ends)]
    return [f"up to {ends[0]}", *inner, f"above {ends[-1]}"]


def _tick(y: float, label: str) -> Markup:
    return tag(
        "g",
        tag("line", x1=_LEFT, x2=_RIGHT, y1=y, y2=y, class_="grid"),
        tag("text", label, x=_LEFT - 5, y=y + 4, class_="tick", text_anchor="end"),
    )


def _edge_labels(name: str, cells: Sequence[_Cell], x: Axis) -> list[Markup]:
    """Return the values of the first, middle and last edge between cells; of two cells what each is."""
    edges = [cell.upper for cell in cells[:-1]]
    told = labels(edges)
    if len(edges) == 1:
        of_level = "=" in name and edges[0] == 0
        words = ("is not", "is") if of_level else (f"≤ {told[0]}", f"> {told[0]}")
        return [_label(word, x.at(at)) for word, at in zip(words, (0.5, 1.5), strict=True)]
    chosen = sorted({0, len(edges) // 2, len(edges) - 1})
    if sum(len(told[at]) + 2 for at in chosen) * _DIGIT > _RIGHT - _LEFT:
        chosen = [0, len(edges) - 1]
    return [_label(told[at], x.at(at + 1)) for at in chosen]


def _label(word: str, x: float) -> Markup:
    half = len(word) * _DIGIT / 2
    x = min(max(x, half), _WIDTH - half - 2)
    return tag("text", word, x=x, y=_HEIGHT - 8, class_="tick", text_anchor="middle")


def _points(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
