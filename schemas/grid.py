"""The grid of one epoch of one model: its columns, their cell edges and the width of its panes."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from attributary.schemas.card import ModelName
from attributary.schemas.message import Message


class Column(BaseModel):
    """One scored column: a numeric feature, or one level of a categorical (None: '(other)')."""

    model_config = ConfigDict(frozen=True)

    feature: str
    level: str | None = None
    categorical: bool = False
    group: str | None = None

    @property
    def name(self) -> str:
        """The column's name as messages carry it: ``feature`` or ``feature=level``."""
        if not self.categorical:
            return self.feature
        return f"{self.feature}={'(other)' if self.level is None else self.level}"


class GridRecord(Message):
    """One epoch. Of several records for one (model, epoch), the first in log order holds."""

    SCHEMA: ClassVar[str] = "attributary.grid/1"

    model: ModelName
    epoch: Annotated[int, Field(ge=0)]
    layout: Annotated[int, Field(ge=0)] = Field(
        description="Epoch that introduced these columns; sketches of one layout can be merged."
    )
    rows: Annotated[int, Field(ge=0)] = Field(description="Rows that the edges were taken from.")
    pane_ms: Annotated[int, Field(gt=0)]
    samples: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Rows kept per pane with their raw values."
    )
    compression: Annotated[int, Field(ge=200, le=2000)] = Field(
        default=200, description="Size of the t-digests: at most about this many centroids."
    )
    cards: Annotated[int, Field(ge=0)] = Field(
        default=0, description="How far the models topic had been read when this was proposed."
    )
    columns: list[Column]
    outputs: list[str]
    x_edges: list[list[float]]
    y_edges: list[list[float]]
    x_reference: list[float]
    y_reference: list[float]
