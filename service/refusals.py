"""What a message's model refuses, as one plain sentence."""

from __future__ import annotations

from pydantic import ValidationError

_SHOWN = 60


def refusal_of(error: ValidationError) -> str:
    """Return the first problem: the field, what it takes, and what it got."""
    problems = error.errors(include_url=False)
    first = problems[0]
    place = str(first["loc"][0]) if first["loc"] else ""
    # A field of several types has a problem for each of them.
    same = [problem for problem in problems if problem["loc"][:1] == first["loc"][:1]]
    said = " or ".join(dict.fromkeys(_plain(problem["msg"]) for problem in same))
    if not place:
        return said
    return f"{place}: expected {said}, got {_shown(first['input'])}"


def _plain(message: str) -> str:
    for start in ("Value error, ", "Input should be ", "String should "):
        message = message.removeprefix(start)
    return message


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
