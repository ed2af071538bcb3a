"""Pictures of MCIR-M: scores with their intervals as bars, as SVG in one HTML file."""

from __future__ import annotations

from html import escape

from attributary.schemas.explanation import McirResult, UniqueInformation
from attributary.service.printable import printable

#: Sizes in pixels, and the most bars of one picture.
_LABEL, _ROW, _WIDTH, _MOST = 190, 18, 420, 60

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 14px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; color: #222 }}
svg {{ display: block; margin: .6rem 0 1.6rem; max-width: 100% }}
svg text {{ font: 11px system-ui, sans-serif; fill: #222 }}
.own {{ fill: #2166ac }} .doubt {{ fill: #9bb8d3 }}
.error {{ stroke: #222 }} .grid {{ stroke: #ccc }}
</style></head><body><h1>{title}</h1>
"""


def information_html(result: McirResult, title: str) -> str:
    """Return one HTML page that needs nothing else: the scores, and what is not ranked."""
    ranked = [one for one in result.features if one.ranked]
    others = [one for one in result.features if not one.ranked]
    names = printable(", ".join(result.outputs[:10]), 200)
    parts = [
        _HEAD.format(title=escape(printable(title))),
        f"<p>{result.rows:,} rows, output {escape(names)}.</p>",
    ]
    parts += [f"<p>{escape(note)}</p>" for note in result.notes]
    if ranked:
        parts += ["<h2>Unique information</h2>", _scores(ranked[:_MOST]), _more(ranked)]
    if others:
        parts += [
            "<h2>Not ranked: no neighbourhood</h2>",
            _marginals(others[:_MOST]),
            _more(others),
        ]
    return "\n".join([*parts, "</body></html>\n"])


def _more(features: list[UniqueInformation]) -> str:
    hidden = len(features) - _MOST
    return f"<p>{hidden} more are not drawn.</p>" if hidden > 0 else ""


def _scores(features: list[UniqueInformation]) -> str:
    drawn = [_grid(len(features), 1.0)]
    for place, one in enumerate(features):
        y = place * _ROW
        kind = "doubt" if one.flags else "own"
        near = printable(", ".join(one.neighbourhood), 300)
        about = (
            f"{printable(one.feature)}: {one.score:.4g}, unique {one.unique:.4g} of "
            f"{one.joint:.4g} nats, given {near}" + "".join(f"; {flag}" for flag in one.flags)
        )
        drawn += [_label(y, one.feature), _bar(y, one.score, kind, about)]
        if one.interval is not None:
            low, high = (_LABEL + _WIDTH * end for end in one.interval)
            drawn.append(
                f'<line class="error" x1="{low:.1f}" y1="{y + 9}" x2="{high:.1f}" y2="{y + 9}"/>'
            )
    return _svg(len(features), "score, with its 95 % interval", drawn)


def _marginals(features: list[UniqueInformation]) -> str:
    largest = max(one.marginal for one in features)
    drawn = [_grid(len(features), largest)]
    for place, one in enumerate(features):
        share = one.marginal / largest if largest > 0 else 0.0
        about = f"{printable(one.feature)}: {one.marginal:.4g} nats"
        drawn += [_label(place * _ROW, one.feature), _bar(place * _ROW, share, "doubt", about)]
    return _svg(len(features), "marginal information, nats", drawn)


def _grid(rows: int, most: float) -> str:
    height = rows * _ROW
    parts = []
    for share in (0.0, 0.5, 1.0):
        x = _LABEL + _WIDTH * share
        parts.append(f'<line class="grid" x1="{x:.0f}" y1="0" x2="{x:.0f}" y2="{height}"/>')
        parts.append(
            f'<text x="{x:.0f}" y="{height + 14}" text-anchor="middle">{most * share:.3g}</text>'
        )
    return "".join(parts)


def _label(y: int, name: str) -> str:
    shown = escape(printable(name, 28))
    return f'<text x="{_LABEL - 6}" y="{y + 13}" text-anchor="end">{shown}</text>'


def _bar(y: int, share: float, kind: str, about: str) -> str:
    return (
        f'<rect class="{kind}" x="{_LABEL}" y="{y + 3}" width="{_WIDTH * share:.1f}" '
        f'height="{_ROW - 6}"><title>{escape(about)}</title></rect>'
    )


def _svg(rows: int, name: str, parts: list[str]) -> str:
    width, height = _LABEL + _WIDTH + 30, rows * _ROW + 34
    foot = (
        f'<text x="{_LABEL + _WIDTH / 2:.0f}" y="{height - 4}" text-anchor="middle">'
        f"{escape(name)}</text>"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(name)}" '
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        + "".join(parts)
        + foot
        + "</svg>"
    )
