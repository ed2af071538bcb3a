"""Options of the stream workers. The service builds them once, from environment and file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]

LIGHT_FRACTIONS = (0.2, 0.25, 0.3, 0.4, 0.5, 0.75)


def _light(fraction: float) -> float:
    if fraction not in LIGHT_FRACTIONS:
        raise ValueError(f"expected one of {', '.join(map(str, LIGHT_FRACTIONS))}")
    return fraction


LightFraction = Annotated[float, AfterValidator(_light)]


class GroupOptions(BaseModel):
    """What every worker in a consumer group has."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    session_seconds: Annotated[float, Field(ge=6, le=300)] = Field(
        default=10.0, description="A worker that is silent this long loses its partitions."
    )


class IngestOptions(GroupOptions):
    """Rows to sketches. The first five decide what a block and its sketches are: set them alike
    on every worker that reads one topic, or replays differ."""

    block_offsets: Count = Field(default=8192, description="A block starts at every multiple.")
    block_seconds: Seconds = Field(
        default=600.0, description="A block also starts where the broker's clock enters a new one."
    )
    block_bytes: Count = Field(
        default=8 * 2**20, description="A block also ends once its messages hold this much."
    )
    max_future_seconds: Seconds = Field(
        default=3600.0, description="Rows further ahead of the broker's clock are dead letters."
    )
    compression: Annotated[int, Field(ge=200, le=2000)] = Field(
        default=200, description="Size of the t-digests: at most about this many centroids."
    )
    lightweight: Literal["never", "behind", "always"] = Field(
        default="never",
        description="Sketch a fraction of the rows, the same ones whenever they are read; all are still "
        "checked and counted. behind: where a partition's lag asks for it.",
    )
    lightweight_fraction: LightFraction = Field(
        default=0.25, description="That fraction: 0.2, 0.25, 0.3, 0.4, 0.5 or 0.75."
    )
    lightweight_above_lag: Count = Field(
        default=100_000,
        description="'behind': blocks that begin more messages than this before the end are sketched so.",
    )
    calibration_every: Annotated[int, Field(ge=0)] = Field(
        default=16,
        description="Unless the mode is never, every so many'th block is sketched in full and lightly, and "
        "results say how far the scores agree; 0: none.",
    )
    flush_seconds: Seconds = Field(default=1.0, description="How often changed sketches are sent.")
    grid_rows: Count = Field(
        default=1024, description="Rows that a grid without baseline waits for."
    )
    grid_wait_seconds: Seconds = Field(
        default=3.0, description="A slower stream's grid is taken from the rows of this time."
    )
    max_columns: Count = Field(default=2000, description="Columns of a model, levels counted.")
    max_levels: Count = Field(
        default=200, description="Levels of a categorical; more are '(other)'."
    )
    max_outputs: Count = 100
    max_models: Count = Field(default=1000, description="Models of one worker; more are rejected.")
    max_panes: Count = Field(
        default=2000, description="Panes of one model in one block; rows of more are rejected."
    )
    max_message_bytes: Count = Field(default=8 * 2**20, description="Larger messages are rejected.")
    max_message_rows: Count = 100_000


class MergeOptions(GroupOptions):
    """Sketches to attributions."""

    publish_seconds: Seconds = Field(
        default=0.8,
        description="How often results are published; a little less than ingest.flush_seconds, so that a "
        "flush is published when it comes.",
    )
    idle_seconds: Seconds = Field(
        default=30.0, description="A partition without new rows this long no longer holds back."
    )
    snapshot_seconds: Seconds = Field(
        default=60.0, description="How often what has changed is written to the snapshots topic."
    )
    max_models: Count = Field(
        default=1000, description="Models of one partition of sketches; more are left out."
    )
    max_windows: Count = Field(
        default=2000,
        description="Windows of one model that can still change; of more, the oldest are settled early.",
    )
    max_windows_in_all: Count = Field(
        default=20_000, description="The same for all models of one partition of sketches."
    )
    exported_features: Count = Field(
        default=50, description="Features per output and window that Prometheus sees; the top ones."
    )
    series_per_model: Annotated[int, Field(ge=100)] = Field(
        default=4000, description="Series of scores and drift per model that Prometheus sees."
    )
    profile_features: Annotated[int, Field(ge=0)] = Field(
        default=50, description="Dependence profiles are published for this many top features."
    )
