"""Names of the topics: a prefix and a role; every one can be set to another name."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from attributary.schemas.row import DEFAULT_TOPIC

DEFAULT_PREFIX = "attributary."


class Topics(BaseModel):
    """Topic names by role."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: str = DEFAULT_TOPIC
    models: str = "attributary.models"
    grids: str = "attributary.grids"
    sketches: str = "attributary.sketches"
    snapshots: str = "attributary.snapshots"
    attributions: str = "attributary.attributions"
    drift: str = "attributary.drift"
    requests: str = "attributary.requests"
    requests_high: str = "attributary.requests-high"
    explanations: str = "attributary.explanations"
    cancellations: str = "attributary.cancellations"
    dead_letters: str = "attributary.dead-letters"

    @classmethod
    def with_prefix(cls, prefix: str) -> Topics:
        """Return the default names under another prefix, such as ``team-a.``."""
        return cls(
            **{
                role: prefix + field.default.removeprefix(DEFAULT_PREFIX)
                for role, field in cls.model_fields.items()
            }
        )
