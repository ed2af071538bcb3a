"""What merge publishes per window and output: scores with their errors, drift, and the accounting."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from attributary.schemas.card import ModelName
from attributary.schemas.message import Message


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, ser_json_inf_nan="null")


class Window(_Part):
    """Half-open event-time interval [start, end), milliseconds since the epoch."""

    kind: Literal["tumbling", "hopping", "lifetime", "decayed"]
    start: int
    end: int
    seconds: float | None = Field(default=None, description="Width, for tumbling and hopping.")
    hop_seconds: float | None = None
    half_life_seconds: float | None = None

    @property
    def label(self) -> str:
        """A short name of the kind and its lengths, such as tumbling_60s."""
        lengths = (self.seconds, self.hop_seconds, self.half_life_seconds)
        return "_".join([self.kind, *(f"{length:g}s" for length in lengths if length)])


class Profile(_Part):
    """Dependence profile: the mean output where the feature lies in each of its cells."""

    edges: list[float] = Field(description="Inner edges of the cells, ascending.")
    mean: list[float | None]
    stderr: list[float | None]
    rows: list[float]


class FeatureScore(_Part):
    """How one column (or group of columns) and one output move together.

    ``score`` is the co-movement ratio CIR in [0, 1] (1/2: no alignment), with its 95 % interval.
    Rank 1 has the highest lower end of the strength |2·CIR − 1|.
    """

    name: str
    score: float
    stderr: float | None
    interval: tuple[float, float]
    effective_rows: float
    direction: Literal[-1, 0, 1]
    strength_low: float
    rank: int
    effect: float | None = Field(
        default=None,
        description="Mean output in the upper minus the lower quartile of the feature.",
    )
    effect_stderr: float | None = None
    missing: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="Share of the window's rows without a finite value."
    )
    quartiles: tuple[float, float, float] | None = None
    mutual_information: float | None = Field(default=None, description="Binned I(x; y), nats.")
    profile: Profile | None = None


class Accounting(_Part):
    """What the message rests on, so that it can be checked from outside."""

    rows: int = Field(description="Rows of this window.")
    rows_thinned: int = Field(
        default=0, description="Of these, rows that the scores leave out (lightweight mode)."
    )
    fractions: list[float] = Field(
        default=[1.0], description="Shares of their rows that the window's blocks were sketched at."
    )
    rows_accepted: int = Field(description="Rows of the model accepted so far, all panes.")
    rows_rejected: dict[str, int] = Field(description="Rows of the model rejected, by reason.")
    rows_late: int = Field(description="Rows too late for any window: in the lifetime view only.")
    offsets: dict[str, tuple[int, int]] = Field(
        description="Per source partition: offsets [from, to) that this owner's view covers."
    )
    duplicates: int = Field(description="Sketches received again and superseded.")
    gaps: int = Field(description="Offsets that no manifest covers; anything above 0 is a loss.")


class LightAgreement(_Part):
    """Agreement of light scores with full ones, over the window's calibration blocks, which are sketched
    both ways; null where it is undefined."""

    rows: int = Field(description="Rows of the calibration blocks: the full scores rest on them.")
    rows_light: int = Field(description="Of these, the rows that the light scores rest on.")
    fractions: list[float] = Field(description="Shares of the rows that were sketched lightly.")
    jaccard_at_8: float | None
    kendall: float | None
    spearman: float | None
    procrustes: float | None
    symmetric_kl: float | None


class WindowAttribution(Message):
    """One window and output of one model. ``revision`` is the number of rows that it counts, or more where
    some were taken back, so that it never goes down: of two messages for one window and output the higher
    replaces the lower, of equals the later the earlier.
    """

    SCHEMA: ClassVar[str] = "attributary.attribution/1"

    model: ModelName
    output: str
    window: Window
    revision: int
    final: bool = Field(description="The watermark has passed the window's end.")
    watermark: int | None
    computed_at: int = Field(description="When this was computed, milliseconds since the epoch.")
    epochs: list[int] = Field(description="Grid epochs that the window's rows were counted on.")
    output_quartiles: tuple[float, float, float] | None
    features: list[FeatureScore]
    groups: list[FeatureScore]
    accounting: Accounting
    light_agreement: LightAgreement | None = Field(
        default=None, description="Null without calibration blocks: the lightweight mode is off."
    )


class ColumnDrift(_Part):
    """Drift of one column or output against a reference; null where it is undefined.

    A ``critical`` value is exceeded in 5 % of windows although nothing changed (independent rows).
    """

    name: str
    psi: float | None = Field(description="Population-stability index over the grid's cells.")
    psi_critical: float | None
    ks: float | None = Field(description="Kolmogorov–Smirnov distance.")
    ks_critical: float | None
    wasserstein: float | None = Field(description="Wasserstein-1 distance, in the column's units.")
    wasserstein_error: float | None = Field(description="Resolution of the digests, same units.")
    missing_change: float | None = Field(description="Change of the missing-value rate.")
    missing_change_interval: tuple[float, float] | None = Field(description="Its 95 % limits.")


class AttributionDrift(_Part):
    """Agreement of the window's scores with the reference's; null where it is undefined."""

    kendall: float | None
    spearman: float | None
    jaccard_at_8: float | None
    ndcg_at_8: float | None
    procrustes: float | None
    symmetric_kl: float | None
    change_low: float | None = Field(
        default=None,
        description="The surest change of a signed strength 2·CIR − 1 is at least this (95 %, over all "
        "columns together); 0 where chance explains every change.",
    )
    changed: str | None = Field(
        default=None, description="The column that it is of, where above 0."
    )


class WindowDrift(Message):
    """Drift of one window against a reference window, for one output of one model."""

    SCHEMA: ClassVar[str] = "attributary.drift/1"

    model: ModelName
    output: str
    window: Window
    revision: int
    reference: Literal["baseline", "preceding"]
    reference_window: Window | None
    computed_at: int
    rows: int
    reference_rows: int
    rows_thinned: int = Field(default=0, description="Of ``rows``, those that no sketch holds.")
    fractions: list[float] = Field(default=[1.0])
    reference_rows_thinned: int = 0
    reference_fractions: list[float] = Field(default=[1.0])
    features: list[ColumnDrift]
    output_drift: ColumnDrift
    attributions: AttributionDrift
