"""Windows, rows, lengths of time and event times in words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from attributary.schemas.attribution import Window


def describe_window(window: Window) -> str:
    """Return a window in words, such as ``28 days to 2013-05-30``."""
    if window.kind == "lifetime":
        return "all rows so far"
    if window.kind == "decayed":
        return f"half-life {duration(window.half_life_seconds or 0)}"
    return f"{duration((window.end - window.start) / 1000)} to {moment(window.end)}"


def duration(seconds: float) -> str:
    """Return a length of time in its largest whole unit."""
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length and seconds % length == 0:
            count = int(seconds // length)
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{seconds:g} s"


def how_many(number: int, noun: str, one: str, more: str) -> str:
    """Return how many there are, and what they do: ``1 row waits``, ``2 rows wait``."""
    return f"{number:,} {noun} {one}" if number == 1 else f"{number:,} {noun}s {more}"


def listed(parts: Sequence[str], most: int = 5) -> str:
    """Return the first of them, and how many more there are."""
    named = ", ".join(parts[:most])
    return f"{named} and {len(parts) - most:,} more" if len(parts) > most else named


def left_out(rows: int) -> str:
    """Return in brackets how many of the rows just named no score rests on; nothing where it is none."""
    return f" ({rows:,} of them left out of the scores, lightweight mode)" if rows else ""


def moment(milliseconds: int) -> str:
    """Return an event time as a UTC date, with the time of day where it is not midnight."""
    try:
        when = datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    except (OverflowError, ValueError, OSError):  # no calendar has it
        return f"{milliseconds} ms"
    midnight = (when.hour, when.minute, when.second) == (0, 0, 0)
    return when.strftime("%Y-%m-%d" if midnight else "%Y-%m-%d %H:%M")


def about(seconds: float) -> str:
    """Return a length of time to two digits or so, in the largest unit that it fills."""
    for unit, length in (("y", 365.25 * 86_400), ("d", 86_400), ("h", 3_600), ("min", 60)):
        if abs(seconds) >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s"


def name_window(window: Window) -> str:
    """Return which of a card's windows this is one of, such as ``hopping, 28 days every 7 days``."""
    if window.kind == "lifetime":
        return "lifetime"
    if window.kind == "decayed":
        return f"decayed, {describe_window(window)}"
    width = f"{window.kind}, {duration(window.seconds or 0)}"
    return f"{width} every {duration(window.hop_seconds)}" if window.hop_seconds else width


def quantity(count: int, noun: str) -> str:
    """Return a number of things: ``1 message``, ``2,000 messages``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
