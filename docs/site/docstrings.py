"""Docstrings as Markdown: examples in fences, and none of the ``::`` that stand before them."""

from __future__ import annotations

import re
from typing import Any

import griffe

_DOCTEST = re.compile(r"(?:^[ ]*>>>.*\n?(?:^[ ]*(?!>>>)\S.*\n?)*)+", re.MULTILINE)


class Examples(griffe.Extension):
    """Changes what was read of each module, class and function."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring, where there is one."""
        if obj.docstring is not None:
            text = _DOCTEST.sub(
                lambda found: f"```pycon\n{found[0].strip()}\n```\n", obj.docstring.value
            )
            text = re.sub(r"^::$", "", text, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r"::$", ":", text, flags=re.MULTILINE)
