"""Lines of a frame that are made of parts: wrapped between these, without the least important."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text

_BETWEEN = " · "


class Part(NamedTuple):
    """A part of a line. The one with the highest ``rank`` is left out first, one of rank 0 never."""

    rank: int
    text: Text


def part(rank: int, text: str, style: str = "") -> Part:
    """Return a part in one style."""
    return Part(rank, Text(text, style=style))


def flow(
    parts: Sequence[Part], width: int, lines: int | None, *, between: str = _BETWEEN
) -> list[Text]:
    """Return the parts in lines of at most ``width`` cells; with ``lines`` in no more than so many, unless
    parts of rank 0 need them. A part is cut only where it is longer than a line."""
    left = list(parts)
    while True:
        made = _wrapped(left, width, between)
        least = max(left, key=lambda one: one.rank, default=None)
        if lines is None or len(made) <= lines or least is None or least.rank == 0:
            return made
        # Of equals the last.
        left.reverse()
        left.remove(next(one for one in left if one.rank == least.rank))
        left.reverse()


def sentence(text: str, width: int, style: str = "") -> list[Text]:
    """Return a text in lines of at most ``width`` cells, wrapped between words."""
    return flow([part(0, word, style) for word in text.split()], width, None, between=" ")


def _wrapped(parts: Sequence[Part], width: int, between: str) -> list[Text]:
    made: list[Text] = []
    for _, text in parts:
        text = text.copy()
        text.truncate(width, overflow="ellipsis")
        if made and made[-1].cell_len + len(between) + text.cell_len <= width:
            made[-1].append(between, "dim").append_text(text)
        else:
            made.append(Text().append_text(text))  # or its style would be the line's
    return made
