"""Names cut in the middle to the room that there is: ends of names tell columns apart."""

from __future__ import annotations

import unicodedata

from attributary.service.printable import printable

_NARROW = frozenset(" !'()*,-./:;[]`fijlrt{|}")
_BROAD = frozenset("%@MWmw…")


def fitted(name: str, room: float) -> str:
    """Return ``name``, safe to show, in at most ``room`` ems: its beginning, an ellipsis, its end.

    The widths are those of a broad sans serif: in other fonts it takes less.
    """
    shown = printable(name)
    if sum(map(_width, shown)) <= room:
        return shown
    room -= _width("…")
    head = _fits(shown, room * 0.55)
    tail = _fits(shown[::-1], room - sum(map(_width, head)))
    return f"{head}…{tail[::-1]}"


def _fits(text: str, room: float) -> str:
    for count, character in enumerate(text):
        room -= _width(character)
        if room < 0:
            return text[:count]
    return text


def _width(character: str) -> float:
    if unicodedata.combining(character):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF" or character in _BROAD:
        return 1.0
    if character in _NARROW:
        return 0.42
    return 0.78 if character.isupper() else 0.64
