"""HTML and SVG as escaped text: what comes from messages can only ever be text in the page."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from attributary.service.printable import printable

_VOID = frozenset({"meta", "br", "col"})
_SHAPES = frozenset({"line", "rect", "polyline", "polygon"})


class Markup(str):
    """Text that is markup already. Everything else is escaped where it is put in."""

    __slots__ = ()


Part = str | Markup | None
Attribute = str | float | None


def text(value: str) -> Markup:
    """Return ``value`` as text: escaped, and without what is not printable."""
    return Markup(escape(printable(value)))


def tag(element: str, /, *parts: Part | Iterable[Part], **attributes: Attribute) -> Markup:
    """Return an element. ``class_`` is class, ``stroke_width`` is stroke-width; None is left out."""
    named = "".join(
        f' {key.strip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if element in _VOID:
        return Markup(f"<{element}{named}>")
    if element in _SHAPES or (element == "circle" and not parts):
        return Markup(f"<{element}{named}/>")
    return Markup(f"<{element}{named}>{join(*parts)}</{element}>")


def join(*parts: Part | Iterable[Part]) -> Markup:
    """Return parts one after the other; what is no markup is escaped."""
    found = []
    for part in parts:
        if part is None:
            continue
        if isinstance(part, Markup):
            found.append(part)
        elif isinstance(part, str):
            found.append(text(part))
        else:
            found.append(join(*part))
    return Markup("".join(found))


def table(
    caption: str, titles: Iterable[Part], rows: Iterable[Iterable[Part]], class_: str | None = None
) -> Markup:
    """Return a table that scrolls where it is too wide; the first column is text, the others numbers."""
    head = tag("tr", (tag("th", title, scope="col") for title in titles))
    body = (
        tag("tr", (tag("td", cell) if at else tag("th", cell, scope="row")
                   for at, cell in enumerate(row)))
        for row in rows
    )  # fmt: skip
    parts = tag("caption", caption), tag("thead", head), tag("tbody", body)
    return tag("div", tag("table", parts, class_=class_), class_="scroll")


def _value(value: str | float) -> str:
    if isinstance(value, str):
        return text(value)
    return f"{value:.2f}".rstrip("0").rstrip(".")
