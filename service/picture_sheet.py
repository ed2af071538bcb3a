"""Words and SVG pictures below each other: as one HTML file, or as one PNG of the same pictures."""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Literal

from attributary.schemas.errors import ConfigurationError
from attributary.service.printable import printable

#: The endings of files that can be written.
ENDINGS = (".html", ".png")

_STYLE = """.grid { stroke: #ccc } .bar { stroke: #888 } .dot { fill: #444 }
.own { fill: #2166ac } .doubt { fill: #9bb8d3 } .error { stroke: #222 }"""
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 14px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; color: #222 }}
svg {{ display: block; margin: .6rem 0 1.6rem; max-width: 100% }}
svg text {{ font: 11px system-ui, sans-serif; fill: #222 }}
{style}
</style></head><body><h1>{title}</h1>
"""
# The renderer takes no font that is not named; of these the first that the system has.
_FONTS = (
    "DejaVu Sans, Noto Sans, Liberation Sans, Helvetica, Arial, Segoe UI, Roboto, Ubuntu, Cantarell, "
    "Open Sans, FreeSans"
)
_TEXT = f"text {{ font-family: {_FONTS}; font-size: 11px; fill: #222 }}"
_SPACE = "http://www.w3.org/2000/svg"

#: Pixels of the PNG before it is enlarged, and what it may have in all.
_MARGIN, _LEAST_WIDTH, _MOST_HEIGHT = 24, 640, 12_000
_ZOOM, _MOST_PIXELS = 2.0, 40_000_000
#: Size, height of a line, and width of a character of each kind of words.
_WORDS = {"title": (20, 30, 11.0), "heading": (15, 26, 8.5), "note": (12, 18, 6.5)}


@dataclass(frozen=True)
class Words:
    """A line or a paragraph; not escaped."""

    kind: Literal["heading", "note"]
    text: str


@dataclass(frozen=True)
class Picture:
    """An ``<svg>`` element of this size in pixels, with the classes of the style sheet."""

    svg: str
    width: float
    height: float


Part = Words | Picture


def picture(width: float, height: float, name: str, drawn: Sequence[str]) -> Picture:
    """Return the elements ``drawn`` as a picture called ``name``."""
    svg = (
        f'<svg xmlns="{_SPACE}" role="img" aria-label="{escape(name)}" '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">'
        + "".join(drawn)
        + "</svg>"
    )
    return Picture(svg, width, height)


def html(title: str, parts: Sequence[Part]) -> str:
    """Return one page that needs nothing else."""
    title = escape(printable(title))
    lines = [_PAGE.format(title=title, style=_STYLE)]
    for part in parts:
        if isinstance(part, Picture):
            lines.append(part.svg)
        else:
            tag = "h2" if part.kind == "heading" else "p"
            lines.append(f"<{tag}>{escape(part.text)}</{tag}>")
    return "\n".join([*lines, "</body></html>\n"])


def sheet(title: str, parts: Sequence[Part]) -> Picture:
    """Return all as one picture. What would make it too high is left out, and the last line says so."""
    inner = max([_LEAST_WIDTH, *(part.width for part in parts if isinstance(part, Picture))])
    drawn: list[str] = []
    y = float(_MARGIN)
    for number, part in enumerate([Words("heading", title), *parts]):
        if isinstance(part, Picture):
            if y + part.height > _MOST_HEIGHT and number > 1:
                drawn += _lines("note", "The rest is not drawn: ask for an .html file.", y, inner)
                y += _WORDS["note"][1]
                break
            placed = part.svg.replace("<svg ", f'<svg x="{_MARGIN}" y="{y:.0f}" ', 1)
            drawn.append(placed)
            y += part.height + 20
            continue
        kind = "title" if number == 0 else part.kind
        y += 10 if kind == "heading" else 0
        lines = _lines(kind, part.text, y, inner)
        drawn += lines
        y += len(lines) * _WORDS[kind][1] + 4
    width, height = inner + 2 * _MARGIN, y + _MARGIN
    style = f"<style>{_TEXT} {_STYLE}</style>"
    return picture(width, height, printable(title), [style, *drawn])


def png(title: str, parts: Sequence[Part]) -> bytes:
    """Return all as one PNG, twice as fine as a screen. ConfigurationError: what draws it is missing."""
    renderer = _renderer()
    whole = sheet(title, parts)
    zoom = min(_ZOOM, (_MOST_PIXELS / (whole.width * whole.height)) ** 0.5)
    found: bytes = renderer.svg_to_bytes(svg_string=whole.svg, background="#ffffff", zoom=zoom)
    return found


def check_file(path: Path) -> None:
    """Raise ConfigurationError where no picture can be written under this name."""
    if path.suffix not in ENDINGS:
        raise ConfigurationError(
            f"a picture is written to a file *{' or *'.join(ENDINGS)}, got {str(path)!r}"
        )
    if path.suffix == ".png":
        _renderer()


def save(path: Path, title: str, parts: Sequence[Part]) -> None:
    """Write the picture in the form that the file's name ends with."""
    if path.suffix == ".png":
        path.write_bytes(png(title, parts))
    else:
        path.write_text(html(title, parts), encoding="utf-8")


def _lines(kind: str, text: str, y: float, width: float) -> list[str]:
    size, height, character = _WORDS[kind]
    weight = "normal" if kind == "note" else "bold"
    return [
        f'<text x="{_MARGIN}" y="{y + size + height * number:.0f}" '
        f'style="font-size: {size}px; font-weight: {weight}">{escape(line)}</text>'
        for number, line in enumerate(textwrap.wrap(printable(text), int(width / character)))
    ]


def _renderer() -> Any:
    """Return the library that draws SVG. ConfigurationError: it is not there, or has no font."""
    try:
        renderer = importlib.import_module("resvg_py")
    except ImportError:
        raise ConfigurationError(
            "a PNG needs the package resvg-py: pip install 'attributary[png]', or write *.html"
        ) from None
    # It draws without a word where there is no font.
    blank, word = (
        renderer.svg_to_bytes(
            svg_string=f'<svg xmlns="{_SPACE}" width="9" height="9"><style>{_TEXT}</style>'
            f'<text y="8">{text}</text></svg>'
        )
        for text in ("", "x")
    )
    if blank == word:
        raise ConfigurationError(
            f"a PNG needs one of the fonts {_FONTS}: install one (Debian: fonts-dejavu-core), or write *.html"
        )
    return renderer
