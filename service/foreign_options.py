"""The options of commands that read what other systems log."""

from __future__ import annotations

from pathlib import Path

from attributary.schemas.adapters.formats import Adapter
from attributary.schemas.adapters.inference import Naming
from attributary.schemas.adapters.mapping import read_mapping
from attributary.schemas.errors import ConfigurationError

_LARGEST_MAPPING = 2**20


def build_adapter(
    name: str,
    *,
    model: str | None,
    features: tuple[str, ...],
    outputs: tuple[str, ...],
    only: tuple[str, ...] = (),
    mapping: Path | None = None,
) -> Adapter:
    """Return the adapter of a format; ConfigurationError: the options do not fit together."""
    found = None
    if mapping is not None:
        try:
            with mapping.open("rb") as file:
                data = file.read(_LARGEST_MAPPING + 1)
        except OSError as error:
            raise ConfigurationError(f"{mapping}: {error.strerror or error}") from None
        if len(data) > _LARGEST_MAPPING:
            raise ConfigurationError(f"{mapping}: a mapping file has at most 1 MiB")
        try:
            found = read_mapping(data.decode())
        except UnicodeDecodeError:
            raise ConfigurationError(f"{mapping} is not UTF-8") from None
        except ConfigurationError as error:
            raise ConfigurationError(f"{mapping}: {error}") from None
    return Adapter(name, Naming(model, features, outputs, only), found)
