"""The explanation methods: one module each, with a ``METHOD``."""

from __future__ import annotations

import importlib
from typing import Any

from attributary.schemas.explanation import ErrorCode
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.methods.method import Method

_MODULES = {"mcir-m": "mcir_m", "ordshap": "ordshap", "t-explainer": "t_explainer"}


def find_method(name: str) -> Method[Any]:
    """Return the method; RequestError where this worker has none of that name."""
    module = _MODULES.get(name)
    if module is None:
        raise RequestError(
            ErrorCode.METHOD_UNKNOWN,
            f"this worker knows the methods {', '.join(_MODULES)}; got {name!r}",
        )
    found: Method[Any] = importlib.import_module(f"{__name__}.{module}").METHOD
    return found
