"""Options of the request workers. The service builds them once, from environment and file."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from attributary.workers.stream.options import Count, GroupOptions, Seconds


class OnDemandOptions(GroupOptions):
    """How requests are taken in, and what one request may cost."""

    concurrency: Count = Field(
        default=4, description="Requests computed at one time; their model calls are joined."
    )
    queue: Count = Field(
        default=64, description="Requests read ahead, per priority; then partitions pause."
    )
    attempts: Count = Field(
        default=3, description="Workers that may die of one request before it is given up."
    )
    models: Count = Field(default=4, description="Models held open; the least recent one closes.")
    batch_rows: Count = Field(
        default=256,
        description="Rows per call of a smooth model: always so many, whoever asks, so that an answer "
        "does not depend on who asked besides; fewer where free memory is short.",
    )
    device_batch_rows: Count = Field(
        default=4096,
        description="On a GPU, rows per call of a smooth model as long as one request has so many; fewer "
        "where its free memory is short.",
    )
    tree_batch_rows: Count = Field(
        default=16_384,
        description="Rows per call of a piecewise constant model, at most; fewer where free memory is short.",
    )
    max_request_bytes: Count = Field(default=2**20, description="Larger requests are refused.")
    max_instances: Count = Field(default=1000, description="Instances of one request.")
    max_window: Count = Field(
        default=20_000, description="Rows of the stream in a request that looks at all of a window."
    )
    max_background: Count = Field(default=1000, description="Background rows of one request.")
    max_features: Count = Field(default=2000, description="Columns of a model, levels counted.")
    max_model_rows: Count = Field(
        default=5_000_000, description="Rows that one request may ask of the model."
    )
    max_seconds: Annotated[float, Field(gt=0, le=86_400)] = Field(
        default=300.0, description="Time that one request may be computed."
    )
    progress_seconds: Seconds = Field(default=0.5, description="How often progress is told.")
    sample_rows: Count = Field(
        default=200_000, description="Sampled rows of the stream held per model, the newest panes."
    )
    schedule_seconds: Annotated[float, Field(ge=1, le=366 * 86_400)] = Field(
        default=60.0,
        description="Shortest period of a card's unique_information; alike on every worker.",
    )
    exported_features: Count = Field(
        default=50, description="Features of a scheduled run that Prometheus sees; the first ones."
    )
    series_per_model: Annotated[int, Field(ge=100)] = Field(
        default=500, description="Series of scheduled runs per model that Prometheus sees."
    )
    drain_seconds: Seconds = Field(
        default=2.0, description="Time that requests at hand are given when the worker stops."
    )
