"""Secrets: given as they are (from the environment) or in a file, and never shown."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from attributary.schemas.errors import ConfigurationError

_LARGEST_FILE = 64 * 1024


def reveal(setting: str, value: SecretStr | None, file: Path | None) -> str:
    """Return the secret of ``setting`` or of ``<setting>_file``; exactly one of the two is given.

    A line feed at the file's end is not part of it. ConfigurationError names the setting and the file, and
    nothing of what it holds.
    """
    if value is not None:
        secret = value.get_secret_value()
        source = setting
    else:
        assert file is not None  # noqa: S101
        source = f"{setting}_file {file}"
        secret = read_text(source, file).removesuffix("\n").removesuffix("\r")
    if not secret:
        raise ConfigurationError(f"{source} is empty")
    return secret


def read_text(source: str, file: Path) -> str:
    """Return what a small text file holds; ConfigurationError says what ``source`` is instead."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise ConfigurationError(f"{source}: {error.strerror}") from None
    if len(data) > _LARGEST_FILE:
        raise ConfigurationError(f"{source}: expected at most {_LARGEST_FILE:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigurationError(f"{source}: expected text in UTF-8") from None


def exactly_one(setting: str, value: SecretStr | None, file: Path | None) -> None:
    """Raise ValueError unless one of ``setting`` and ``<setting>_file`` is given."""
    if (value is None) == (file is None):
        raise ValueError(
            f"set either {setting}_file or {setting}"
            + (", not both" if value is not None else ", which is missing")
        )
