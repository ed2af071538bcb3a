"""Rows of a figure: a name, a drawing to scale, a number. They take the width that the page has.

The drawings stretch and their text does not: x is in per cent of the drawing's width, y in pixels. On a
narrow page name and number stand above the drawing.
"""

from __future__ import annotations

from collections.abc import Iterable

from attributary.service.report.axes import Axis, labels
from attributary.service.report.fitting import fitted
from attributary.service.report.markup import Markup, tag

MIDDLE = 11  # of a row, in pixels
_NAME_ROOM = 18.0  # ems of a name in its column, which is a little wider


def share(place: float) -> str:
    """Return a place on an axis of 0 to 100 as SVG has it."""
    return f"{place:.2f}".rstrip("0").rstrip(".") + "%"


def upright(place: float, class_: str, half: float) -> Markup:
    """Return an upright line at ``place``, ``half`` pixels to both sides of the middle."""
    x = share(place)
    return tag("line", x1=x, x2=x, y1=MIDDLE - half, y2=MIDDLE + half, class_=class_)


def level(low: float, high: float, class_: str) -> Markup:
    """Return a level line through the middle from ``low`` to ``high``."""
    return tag("line", x1=share(low), x2=share(high), y1=MIDDLE, y2=MIDDLE, class_=class_)


def row(name: str, told: str, drawing: Iterable[Markup | None], number: str, class_: str) -> Markup:
    """Return a row; ``told`` is what its drawing shows, in words."""
    shown = fitted(name, _NAME_ROOM)
    return tag(
        "div",
        tag("span", shown, class_="name", title=name if shown != name else None),
        tag("svg", tag("title", told), drawing, role="img"),
        tag("span", number, class_=f"number {class_}".rstrip()),
        class_="row",
    )


def figure(
    title: str, scale: Axis, lines: Iterable[tuple[float, str]], rows: Iterable[Markup]
) -> Markup:
    """Return the rows above their axis, and behind them its grid and the further ``lines`` (value, class)."""
    ticks = scale.ticks()
    grid = [*((value, "grid") for value in ticks), *lines]
    places = [(share(scale.at(value)), class_) for value, class_ in grid]
    behind = [tag("line", x1=x, x2=x, y1=0, y2="100%", class_=class_) for x, class_ in places]
    axis = [
        tag("text", label, x=share(scale.at(value)), y=12, class_="tick", text_anchor="middle")
        for value, label in zip(ticks, labels(ticks), strict=True)
    ]
    return tag(
        "figure",
        tag("svg", behind, class_="behind", aria_hidden="true"),
        rows,
        tag("div", tag("svg", axis, aria_hidden="true"), class_="row axis"),
        class_="rows",
        aria_label=title,
    )
