"""A small language of paths into JSON, after JSONPath (RFC 9535) and without its filters: nothing runs.

``$`` is the message, ``@`` the row (the same where a message is one row). Steps: ``.name``,
``['any name']``, ``[0]``, ``[-1]``; ``[*]`` stands for every element, in the path of the rows alone;
``.json()`` reads text that is JSON. ``header:NAME`` and ``key`` are of the message itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from attributary.schemas.adapters.message import ForeignMessage, parse_json
from attributary.schemas.errors import ConfigurationError

_STEP = re.compile(
    r"""\.(?P<json>json\(\)) | \.(?P<name>[A-Za-z_][\w-]*) | \[(?P<place>-?\d{1,9})\] | \[(?P<every>\*)\]
    | \['(?P<single>(?:[^'\\]|\\.)*)'\] | \["(?P<double>(?:[^"\\]|\\.)*)"\]""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(.)")
_MOST_STEPS = 32


class Missing:
    """Nothing lies at the path."""


MISSING = Missing()


class _Special(Enum):
    """Steps that are neither a name nor a place."""

    EVERY = "[*]"
    JSON = ".json()"


@dataclass(frozen=True)
class Path:
    """A parsed path; ``root`` is ``$``, ``@``, ``key`` or ``header``."""

    text: str
    root: str
    steps: tuple[Any, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Path:
        """Return the path; ConfigurationError says where it cannot be read."""
        if text == "key":
            return cls(text, "key")
        if text.startswith("header:") and len(text) > 7:
            return cls(text, "header", (text[7:].lower(),))
        if text[:1] not in ("$", "@"):
            raise ConfigurationError(
                f"path {text!r:.80}: expected $…, @…, header:NAME or key; "
                "a constant is written { constant = … }"
            )
        steps: list[Any] = []
        at = 1
        while at < len(text):
            found = _STEP.match(text, at)
            if found is None or len(steps) == _MOST_STEPS:
                raise ConfigurationError(
                    f"path {text!r:.80}: cannot read {text[at:]!r:.40}; steps are .name, ['name'], [0], "
                    "[*] and .json()"
                )
            steps.append(_step(found))
            at = found.end()
        return cls(text, text[0], tuple(steps))

    @property
    def many(self) -> bool:
        """Whether it stands for several values."""
        return _Special.EVERY in self.steps

    def find(self, message: ForeignMessage, document: Any, row: Any) -> Any:
        """Return what lies there, a list where the path stands for several; MISSING: nothing."""
        if self.root == "key":
            return MISSING if message.key is None else message.key.decode("utf-8", "replace")
        if self.root == "header":
            found = message.header(self.steps[0])
            return MISSING if found is None else found
        return _walk(document if self.root == "$" else row, self.steps, self.text)


def _walk(value: Any, steps: tuple[Any, ...], text: str) -> Any:
    for place, step in enumerate(steps):
        if step is _Special.EVERY:
            if not isinstance(value, list):
                return MISSING
            found = [_walk(each, steps[place + 1 :], text) for each in value]
            return [each for each in found if each is not MISSING]
        if step is _Special.JSON:
            if not isinstance(value, str):
                return MISSING
            value = parse_json(value, f"the text at {text}")
        elif isinstance(step, int):
            if not isinstance(value, list) or not -len(value) <= step < len(value):
                return MISSING
            value = value[step]
        else:
            if not isinstance(value, dict) or step not in value:
                return MISSING
            value = value[step]
    return value


def _step(found: re.Match[str]) -> Any:
    if found["json"]:
        return _Special.JSON
    if found["every"]:
        return _Special.EVERY
    if found["place"]:
        return int(found["place"])
    if found["name"]:
        return found["name"]
    quoted = found["single"] if found["single"] is not None else found["double"]
    return _ESCAPE.sub(r"\1", quoted)
