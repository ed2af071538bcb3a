"""Options of the bridge. The service builds them once, from environment and file."""

from __future__ import annotations

from pydantic import Field, SecretStr

from attributary.workers.stream.options import Count, GroupOptions, Seconds


class AdaptOptions(GroupOptions):
    """Foreign messages to rows: what may wait for its other half, and how rows are sent."""

    pair_seconds: Seconds = Field(
        default=60.0,
        description="So long a request waits for its response, or the other way round.",
    )
    pair_halves: Count = Field(
        default=100_000, description="So many wait at most; then the oldest are given up."
    )
    pair_bytes: Count = Field(
        default=64 * 2**20,
        description="Bytes of the messages that wait, at most; in memory they take up to four times that.",
    )
    commit_seconds: Seconds = Field(default=1.0, description="How often offsets are committed.")
    batch_rows: Count = Field(
        default=1000, description="Rows in a message, where they come so fast."
    )
    registry: str | None = Field(
        default=None, description="Schema registry of the foreign topics, http(s)://host:port."
    )
    registry_user: str | None = Field(
        default=None, description="User there, where it asks for one."
    )
    registry_password: SecretStr | None = Field(default=None, description="Password there.")
    clock_seconds: Seconds = Field(
        default=60.0,
        description="So far the clocks of those who write the foreign topics may be ahead of this one's.",
    )
