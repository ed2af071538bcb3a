"""Pictures of OrdShap: γ as a heat map, value against position importance, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from attributary.schemas.explanation import LocalOrder, OrderImportance, OrdShapResult
from attributary.service.picture_sheet import Part, Picture, Words, picture
from attributary.service.printable import printable

#: Sizes in pixels; a map of many positions gets narrower cells.
_LABEL, _ROW, _WIDTH, _MARGIN = 150, 18, 620, 46
_LINE, _LABEL_WIDTH = 12, 90
_POSITIVE, _NEGATIVE, _NEUTRAL = (178, 24, 43), (33, 102, 172), (247, 247, 247)


def order_parts(result: OrdShapResult) -> list[Part]:
    """Return what there is to see: for each explanation a heat map and a scatter."""
    parts: list[Part] = [Words("note", note) for note in result.notes]
    for entry in result.explanations:
        name = entry.id if entry.id is not None else f"instance {entry.instance}"
        parts.append(Words("heading", printable(f"{name}, output {entry.output}")))
        parts.append(
            Words(
                "note",
                f"Prediction {entry.prediction:.4g}; with everything masked {entry.base_value:.4g}.",
            )
        )
        if any(feature.gamma for feature in entry.features):
            parts.append(_heat_map(entry))
        parts.append(_scatter(entry))
    return parts


def label(feature: OrderImportance) -> str:
    """Return the feature's name and what it holds, safe for a terminal and for XML."""
    if feature.value is None:
        return printable(feature.feature)
    value = feature.value if isinstance(feature.value, str) else f"{feature.value:g}"
    return printable(f"{feature.feature} = {value}")


def _heat_map(entry: LocalOrder) -> Picture:
    rows = [feature for feature in entry.features if feature.gamma]
    columns = max(len(feature.gamma or []) for feature in rows)
    largest = max((abs(c) for f in rows for c in f.gamma or [] if c is not None), default=0.0)
    width = min(40.0, _WIDTH / max(columns, 1))
    height = _ROW * len(rows)
    cells = []
    for k, feature in enumerate(rows):
        y = k * _ROW
        cells.append(_text(_LABEL - 6, y + 13, label(feature), "end", 24))
        for column, value in enumerate(feature.gamma or []):
            place = f"position {entry.positions[column]:g}" if entry.positions else f"{column}"
            shown = "never visited" if value is None else f"{value:.4g}"
            cells.append(
                f'<rect x="{_LABEL + column * width:.1f}" y="{y}" width="{width:.2f}" '
                f'height="{_ROW}" fill="{_colour(value, largest)}">'
                f"<title>{escape(label(feature))}, {escape(place)}: {shown}</title></rect>"
            )
    places = entry.positions or list(range(columns))
    step = max(1, round(28 / width))
    ticks = [
        _text(_LABEL + (c + 0.5) * width, height + 14, f"{places[c]:g}", "middle")
        for c in range(0, columns, step)
    ]
    middle = _LABEL + columns * width / 2
    words = f"position; red raises the output there, blue lowers it, in full by {largest:.3g}"
    foot = _text(middle, height + 32, words, "middle", 80)
    total = max(_LABEL + columns * width + 10, middle + 170)
    return picture(total, height + 40, "γ by feature and position", [*cells, *ticks, foot])


def _scatter(entry: LocalOrder) -> Picture:
    """Value importance to the right, position importance up, bars of 1.96 standard errors."""
    points = [
        (
            feature,
            feature.value_importance,
            feature.position_importance,
            1.96 * (feature.value_stderr or 0.0),
            1.96 * (feature.position_stderr or 0.0),
        )
        for feature in entry.features
    ]
    side = 380.0
    x_low, x_high = _range([p[1] - p[3] for p in points], [p[1] + p[3] for p in points])
    y_low, y_high = _range([p[2] - p[4] for p in points], [p[2] + p[4] for p in points])

    def across(value: float) -> float:
        return _MARGIN + (value - x_low) / (x_high - x_low) * side

    def up(value: float) -> float:
        return 10 + (y_high - value) / (y_high - y_low) * side

    drawn = [
        _line(across(x_low), up(0.0), across(x_high), up(0.0), "grid"),
        _line(across(0.0), up(y_low), across(0.0), up(y_high), "grid"),
    ]
    beside = _apart([(across(p[1]) + 5, up(p[2]) - 4) for p in points])
    for (feature, x, y, x_error, y_error), (left, base) in zip(points, beside, strict=True):
        drawn += [
            _line(across(x - x_error), up(y), across(x + x_error), up(y), "bar"),
            _line(across(x), up(y - y_error), across(x), up(y + y_error), "bar"),
            f'<circle class="dot" cx="{across(x):.1f}" cy="{up(y):.1f}" r="3"><title>'
            f"{escape(label(feature))}: value {x:.4g}, position {y:.4g}</title></circle>",
            _text(left, base, label(feature), "start", 24),
        ]
    drawn += [
        _text(across(x_low), side + 26, f"{x_low:.3g}", "start"),
        _text(across(x_high), side + 26, f"{x_high:.3g}", "end"),
        _text(_MARGIN + side / 2, side + 26, "value importance", "middle"),
        _text(_MARGIN - 4, up(y_high) + 8, f"{y_high:.2g}", "end"),
        _text(_MARGIN - 4, up(y_low), f"{y_low:.2g}", "end"),
        f'<text transform="translate(12 {side / 2 + 10:.0f}) rotate(-90)" text-anchor="middle">'
        "position importance</text>",
    ]
    return picture(_MARGIN + side + 170, side + 34, "value and position importance", drawn)


def _apart(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Move labels that start at these places up or down until they do not lie on each other, if near by."""
    found: dict[int, tuple[float, float]] = {}
    for number in sorted(range(len(places)), key=lambda k: places[k][::-1]):
        left, base = places[number]
        for step in sorted(range(-4, 5), key=abs):
            moved = base + step * _LINE / 2
            if all(
                abs(left - x) > _LABEL_WIDTH or abs(moved - y) >= _LINE for x, y in found.values()
            ):
                base = moved
                break
        found[number] = (left, base)
    return [found[number] for number in range(len(places))]


def _range(low: Sequence[float], high: Sequence[float]) -> tuple[float, float]:
    """Return ends that hold everything and 0, a little apart."""
    least, most = min([0.0, *low]), max([0.0, *high])
    room = 0.05 * (most - least) or 1.0
    return least - room, most + room


def _colour(value: float | None, largest: float) -> str:
    if value is None:
        return "#ddd"
    share = min(1.0, abs(value) / largest) if largest > 0.0 else 0.0
    end = _POSITIVE if value > 0 else _NEGATIVE
    mixed = (round(a + (b - a) * share) for a, b in zip(_NEUTRAL, end, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _text(x: float, y: float, words: str, anchor: str, most: int = 60) -> str:
    shown = words if len(words) <= most else words[: most - 1] + "…"
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(shown)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
