"""What the programs themselves say of a container: its command, its environment, and what it serves."""

from __future__ import annotations

import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from unittest import mock

import click
import trustme
from prometheus_client import CollectorRegistry

from attributary.schemas.errors import AttributaryError
from attributary.service.cli import cli
from attributary.service.exposition import Exposition
from attributary.service.settings import Settings, load_settings


def parsed(arguments: Sequence[str]) -> click.Context:
    """Return the context of the command that would be called; click.UsageError where none would."""
    command: click.Command = cli
    rest, context, name = [str(each) for each in arguments], None, "attributary"
    while True:
        context = command.make_context(name, rest, parent=context)
        if not isinstance(command, click.Group):
            return context
        rest = [*context._protected_args, *context.args]
        if not rest:
            raise click.UsageError("no command", context)
        found, inner, rest = command.resolve_command(context, rest)
        assert inner is not None
        name, command = str(found), inner


def command_faults(arguments: Sequence[str]) -> list[str]:
    """Return why the command line would refuse these arguments."""
    try:
        parsed(arguments)
    except click.ClickException as error:
        return [f"attributary {' '.join(map(str, arguments))}: {error.format_message()}"]
    return []


def settings_of(
    variables: Mapping[str, str], files: Mapping[str, str] | None = None
) -> Settings | str:
    """Return the settings that these variables make, or why they make none.

    ``files``: what is mounted, by path; a value that names such a path is read from there.
    """
    return _settings(tuple(sorted(variables.items())), tuple(sorted((files or {}).items())))


@lru_cache(maxsize=1024)
def _settings(
    variables: tuple[tuple[str, str], ...], files: tuple[tuple[str, str], ...]
) -> Settings | str:
    with _written(dict(files)) as folder:
        given = {
            name: f"{folder}{value}" if value.startswith("/") else value
            for name, value in variables
            if name.startswith("ATTRIBUTARY_")
        }
        kept = {name: value for name, value in os.environ.items() if "ATTRIBUTARY_" not in name}
        with mock.patch.dict(os.environ, {**kept, **given}, clear=True):
            try:
                return load_settings()
            except AttributaryError as error:
                return str(error)


@contextmanager
def _written(files: Mapping[str, str]) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            path = Path(f"{folder}{name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(certificate() if name.endswith(".crt") else content)
        yield folder


@lru_cache(maxsize=1)
def certificate() -> str:
    """Return a CA's certificate, for files that only hold a reminder to put one there."""
    return trustme.CA().cert_pem.bytes().decode()


@lru_cache(maxsize=1)
def served() -> frozenset[str]:
    """Return the paths that a worker serves, of those that anybody may think of."""
    asked = ("/metrics", "/healthz", "/readyz", "/health", "/ready", "/livez", "/")
    with Exposition(CollectorRegistry()) as exposition:
        exposition.ready()
        base = exposition.url.removesuffix("/metrics")
        return frozenset(path for path in asked if _found(base + path))


def _found(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code != 404
