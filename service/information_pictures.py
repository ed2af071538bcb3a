"""Pictures of MCIR-M: scores with their intervals as bars, as SVG."""

from __future__ import annotations

from html import escape

from attributary.schemas.explanation import McirResult, UniqueInformation
from attributary.service.picture_sheet import Part, Picture, Words, picture
from attributary.service.printable import printable

#: Sizes in pixels, and the most bars of one picture.
_LABEL, _ROW, _WIDTH, _MOST = 190, 18, 420, 60


def information_parts(result: McirResult) -> list[Part]:
    """Return what there is to see: the scores, and what is not ranked."""
    ranked = [one for one in result.features if one.ranked]
    others = [one for one in result.features if not one.ranked]
    names = printable(", ".join(result.outputs[:10]), 200)
    parts: list[Part] = [Words("note", f"{result.rows:,} rows, output {names}.")]
    parts += [Words("note", note) for note in result.notes]
    for heading, features, drawn in (
        ("Unique information", ranked, _scores),
        ("Not ranked: no neighbourhood", others, _marginals),
    ):
        if features:
            parts += [Words("heading", heading), drawn(features[:_MOST])]
            if len(features) > _MOST:
                parts.append(Words("note", f"{len(features) - _MOST} more are not drawn."))
    return parts


def _scores(features: list[UniqueInformation]) -> Picture:
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


def _marginals(features: list[UniqueInformation]) -> Picture:
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


def _svg(rows: int, name: str, parts: list[str]) -> Picture:
    width, height = _LABEL + _WIDTH + 30, rows * _ROW + 34
    foot = (
        f'<text x="{_LABEL + _WIDTH / 2:.0f}" y="{height - 4}" text-anchor="middle">'
        f"{escape(name)}</text>"
    )
    return picture(width, height, name, [*parts, foot])
