"""Attributary's public face: ``from attributary import Explainer, Publisher, subscribe``.

Names are loaded on first use, so that ``import attributary`` costs nothing in a serving process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attributary.service.client import (
        Explainer,
        PredictionMiddleware,
        Publisher,
        subscribe,
    )

__all__ = ["Explainer", "PredictionMiddleware", "Publisher", "subscribe"]


_MODULES = {
    "Explainer": "explainer",
    "PredictionMiddleware": "asgi",
    "Publisher": "publisher",
    "subscribe": "subscribe",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'attributary' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"attributary.service.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
