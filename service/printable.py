"""Text from messages, made safe for a terminal."""

from __future__ import annotations


def printable(text: str, limit: int | None = None) -> str:
    """Return ``text`` with everything that is not printable escaped, cut to ``limit`` characters.

    Names and messages come from whoever writes to the topics: an escape sequence in them would
    drive the terminal that shows them.
    """
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return safe if limit is None or len(safe) <= limit else safe[: limit - 1] + "…"


def printable_bytes(data: bytes, limit: int) -> str:
    """Return the first ``limit`` bytes as text: UTF-8 where it is, escapes elsewhere."""
    shown = printable(data[:limit].decode("utf-8", "backslashreplace"))
    return shown if len(data) <= limit else f"{shown}… ({len(data):,} bytes)"
