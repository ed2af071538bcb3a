"""The client: ``from attributary import Publisher, subscribe, …``. Light to import.

What the base install has beyond msgspec is loaded by the thread, or the call, that needs it.
"""

from __future__ import annotations

from attributary.service.asgi import PredictionMiddleware
from attributary.service.explainer import Explainer, NoAnswerError
from attributary.service.publisher import Publisher
from attributary.service.subscribe import subscribe

__all__ = [
    "Explainer",
    "NoAnswerError",
    "PredictionMiddleware",
    "Publisher",
    "subscribe",
]
