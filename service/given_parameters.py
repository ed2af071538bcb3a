"""A method's parameters as callers have them at hand, as JSON carries them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attributary.schemas.errors import ConfigurationError
from attributary.service.arrays import is_numpy

_DEEPEST = 20


def given_parameters(given: Any) -> dict[str, Any]:
    """Return parameters of plain values; arrays become lists.

    ConfigurationError names one that JSON does not carry: NaN and infinities among them, which would
    travel as null, the default.
    """
    if not isinstance(given, Mapping):
        raise ConfigurationError(
            f"parameters: expected a mapping by name, got {type(given).__name__}"
        )
    return {_key(name, "parameters"): plain_parameter(value, name) for name, value in given.items()}


def plain_parameter(value: Any, name: object) -> Any:
    """Return one parameter; see ``given_parameters``."""
    return _plain(value, f"parameter {name!r:.80}", 0)


def _plain(value: Any, what: str, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ConfigurationError(f"{what} is nested more than {_DEEPEST} deep")
    if is_numpy(value):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {_key(name, what): _plain(inner, what, depth + 1) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner, what, depth + 1) for inner in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ConfigurationError(
                f"{what} must be finite, got {value}; leave it out for its default"
            )
        return float(value)
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    raise ConfigurationError(
        f"{what} must be a number, a text, a boolean, None, or a list or mapping of them, "
        f"got {type(value).__name__}"
    )


def _key(name: Any, what: str) -> str:
    if not isinstance(name, str):
        raise ConfigurationError(f"{what}: a name must be a text, got {name!r:.80}")
    return str(name)
