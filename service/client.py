"""The client: ``from attributary import Publisher, subscribe, …``. Imports the base install only."""

from __future__ import annotations

from attributary.service.asgi import PredictionMiddleware
from attributary.service.explainer import Explainer, NoAnswerError
from attributary.service.publisher import Publisher
from attributary.service.subscription import Subscription, subscribe

__all__ = [
    "Explainer",
    "NoAnswerError",
    "PredictionMiddleware",
    "Publisher",
    "Subscription",
    "subscribe",
]
