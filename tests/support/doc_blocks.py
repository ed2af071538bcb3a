"""The fenced blocks of the documentation's pages, and what is said of those that are not run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\S*)\s*$")
_MARK = re.compile(r"^\s*<!-- (?P<mark>not run: (?P<reason>.+)|runs on) -->\s*$")


@dataclass(frozen=True)
class Block:
    """One fenced block. ``reason``: why it is not run; ``endless``: it goes on until it is stopped."""

    page: Path
    line: int
    heading: str
    language: str
    text: str
    reason: str | None = None
    endless: bool = False

    @property
    def place(self) -> str:
        """Where it is, as editors take it."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def commands(self) -> list[list[str]]:
        """Return the words of each command; in a block that shows output too, commands begin with ``$``."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if any(line.startswith("$ ") for line in lines):
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        return [words for line in lines if (words := shlex.split(line, comments=True))]


def pages() -> list[Path]:
    """Return every page: README.md and all of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page in their order."""
    return list(_blocks(page))


def _blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text(encoding="utf-8").splitlines()
    heading, mark, at = page.stem, None, 0
    while at < len(lines):
        line = lines[at]
        at += 1
        fence = _FENCE.match(line)
        if fence is None:
            if line.startswith("#"):
                heading = line.lstrip("# ")
            if line.strip():
                mark = _MARK.match(line)
            continue
        start, indent = at, len(fence["indent"])
        while lines[at].strip() != "```":
            at += 1
        text = "\n".join(line[indent:] for line in lines[start:at]) + "\n"
        at += 1
        yield Block(
            page,
            start,
            heading,
            fence["language"],
            text,
            reason=mark["reason"] if mark else None,
            endless=mark is not None and mark["mark"] == "runs on",
        )
        mark = None
