"""What a request may ask of ``mcir-m``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from attributary.workers.explainers.estimators import Estimator
from attributary.workers.explainers.gaussian_copula import DEFAULT_RIDGE
from attributary.workers.explainers.neighbourhood_screens import THRESHOLDS, Screen

_SIZES = (1, 3, 5)


class LightParameters(BaseModel):
    """The part of the rows that a light run takes (``fraction`` or ``rows``), and what it is held against."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    rows: Annotated[int, Field(ge=4)] | None = None
    sampling: Literal["uniform", "stratified"] = "uniform"
    strata: Annotated[int, Field(ge=2, le=1000)] = Field(
        default=10, description="Cells of the output, when stratified."
    )
    outputs: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None,
        description="Principal components that outputs are reduced to; null: not reduced.",
    )
    head: Annotated[int, Field(ge=1, le=1000)] = 8
    curve_rows: Annotated[int, Field(ge=0, le=10_000)] = Field(
        default=50, description="Rows of the deletion and insertion curves, where a model is asked."
    )
    tolerances: dict[
        Literal["outputs", "projected", "rank", "head", "curves"], Annotated[float, Field(ge=0)]
    ] = Field(default={}, description="By component; those left out as usual.")

    @model_validator(mode="after")
    def _one_size(self) -> LightParameters:
        if (self.fraction is None) == (self.rows is None):
            raise ValueError("light takes a fraction of the rows, or a number of rows: give one")
        return self


class McirParameters(BaseModel):
    """What a request may set. ``sizes`` null: those of 1, 3 and 5 that ``max_candidates`` allows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    screen: Screen = "pearson"
    threshold: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="null: .3 for interaction, else .6."
    )
    max_candidates: Annotated[int, Field(ge=1, le=50)] = 6
    sizes: (
        Annotated[list[Annotated[int, Field(ge=1, le=50)]], Field(min_length=1, max_length=50)]
        | None
    ) = None
    estimator: Estimator | None = Field(
        default=None, description="null: copula where all is continuous, else switch."
    )
    bootstraps: Annotated[int, Field(ge=0, le=1000)] = 50
    block_length: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=1, description="Rows of a resampled block, in the order of time."
    )
    head: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=8, description="Leading features whose agreement between resamples is told."
    )
    ridge: Annotated[float, Field(ge=0, le=1)] = DEFAULT_RIDGE
    discrete_levels: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=0,
        description="Numbers with at most so many different values, all whole, are discrete.",
    )
    neighbourhoods: dict[str, list[str]] | None = Field(
        default=None,
        max_length=5000,
        description="Every feature's, as found before; null: found from the rows.",
    )
    max_change: Annotated[float, Field(ge=0, le=2)] = Field(
        default=0.1,
        description="With neighbourhoods and a background of the rows that they were found on: they are "
        "kept unless a correlation has changed by more than this, and than chance.",
    )

    reused_bootstraps: Annotated[int, Field(ge=0, le=1000)] | None = Field(
        default=None,
        description="Resamples where they are kept, for intervals alone; null: as many as ever.",
    )

    light: LightParameters | None = Field(
        default=None, description="Also run on a part of the rows, and say how true that is."
    )

    def resamples(self, *, reused: bool) -> int:
        """How many resamples to draw."""
        fewer = self.reused_bootstraps
        return fewer if reused and fewer is not None else self.bootstraps

    @property
    def least(self) -> float:
        """The threshold that is taken."""
        return THRESHOLDS[self.screen] if self.threshold is None else self.threshold

    @property
    def tried_sizes(self) -> list[int]:
        """The sizes that Auto-Φ chooses from."""
        if self.sizes is not None:
            return self.sizes
        return [size for size in _SIZES if size <= self.max_candidates]
