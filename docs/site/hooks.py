"""What the site has beside docs/: the README as its home page, and the help of every command."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from attributary.service.cli import COMMANDS, cli

README = Path(__file__).parents[2] / "README.md"
_COMMANDS = "reference/commands.md"
_LINK = re.compile(r"(\]\()docs/")
_LIST = re.compile(r"(?:[-*] |\d+\. )")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    home = _LINK.sub(r"\1", README.read_text(encoding="utf-8"))
    # The table of pages is the navigation here; [docs/x.md](x.md) reads as a path.
    home = re.sub(r"\[docs/(\w+)(?:\.md)?\]", r"[\1]", home)
    files.append(File.generated(config, "index.md", content=home))
    files.append(File.generated(config, _COMMANDS, content=commands_page()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put an empty line before lists, which GitHub does without and Python-Markdown needs."""
    found: list[str] = []
    fenced = False
    for line in markdown.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        before = found[-1] if found else ""
        text = (
            not fenced
            and before.strip()
            and not _LIST.match(before)
            and not before.startswith("  ")
        )
        if _LIST.match(line) and text and not _in_item(found):
            found.append("")
        found.append(line)
    return "\n".join(found) + "\n"


def _in_item(lines: list[str]) -> bool:
    """Say whether the last line goes on with a list's item."""
    for line in reversed(lines):
        if not line.strip():
            return False
        if _LIST.match(line):
            return True
    return False


def commands_page() -> str:
    """Return the help of every command, as the command prints it."""
    parts = ["# Commands\n", "What `attributary COMMAND --help` says.\n"]
    with click.Context(cli, info_name="attributary", max_content_width=100) as context:
        parts.append(f"```text\n{cli.get_help(context)}\n```\n")
        for name in COMMANDS:
            if (command := cli.get_command(context, name)) is not None:
                parts += _help(command, name, context)
    return "\n".join(parts)


def _help(command: click.Command, name: str, parent: click.Context) -> list[str]:
    with click.Context(command, parent, name, max_content_width=100) as context:
        found = [f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"]
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                if (deeper := command.get_command(context, inner)) is not None:
                    found += _help(deeper, inner, context)
    return found
