"""Windows, lengths of time and event times in words."""

from __future__ import annotations

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


def moment(milliseconds: int) -> str:
    """Return an event time as a UTC date, with the time of day where it is not midnight."""
    when = datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    midnight = (when.hour, when.minute, when.second) == (0, 0, 0)
    return when.strftime("%Y-%m-%d" if midnight else "%Y-%m-%d %H:%M")
