"""Packages that only the demonstration needs, imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from attributary.schemas.errors import ConfigurationError


def needed(name: str) -> Any:
    """Return the module ``name``; ConfigurationError that says how to install it where missing."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigurationError(
            f"the demonstration needs the package {name.partition('.')[0]!r}, which cannot be "
            f"imported ({error}); install it with: pip install 'attributary[demo]'"
        ) from None
