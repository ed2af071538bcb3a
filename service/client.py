"""The client: ``from attributary import Explainer, Publisher, subscribe``. Imports the base install only."""

from __future__ import annotations

from attributary.service.explainer import Explainer, NoAnswerError
from attributary.service.publisher import Publisher
from attributary.service.subscription import Subscription, subscribe

__all__ = ["Explainer", "NoAnswerError", "Publisher", "Subscription", "subscribe"]
