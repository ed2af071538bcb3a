"""The manifest of a block: what a source partition's rows became. Also its heartbeat while open."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from attributary.schemas.message import Message

#: What the keys of manifests begin with: they share their topic with sketches.
MANIFEST_KEY = b"m|"


class ModelCount(BaseModel):
    """Rows of one model in one block. Times are milliseconds since the epoch."""

    model_config = ConfigDict(frozen=True)

    accepted: dict[int, int] = Field(
        default={}, description="Rows counted, by the start of their pane (milliseconds)."
    )
    rejected: dict[str, int] = Field(default={}, description="Rows rejected, by reason.")
    waiting: int = Field(default=0, description="Rows read whose grid is not known yet.")
    event_time: int | None = Field(default=None, description="Highest event time accepted.")
    epoch: int | None = Field(default=None, description="Grid epoch that the rows are counted on.")
    fraction: float = Field(
        default=1.0, gt=0, le=1, description="Share of the accepted rows that the sketches hold."
    )
    thinned: int = Field(
        default=0,
        description="Rows accepted that the sketches leave out, by the hash of their ids.",
    )
    calibration: float | None = Field(
        default=None,
        description="Share of the rows that is sketched besides, to compare light scores with full ones.",
    )

    @property
    def rows_accepted(self) -> int:
        """Rows accepted over all panes."""
        return sum(self.accepted.values())

    @property
    def rows_rejected(self) -> int:
        """Rows rejected for any reason."""
        return sum(self.rejected.values())


class Manifest(Message):
    """Rows of one block, cumulative; of two for one (topic, partition, block), the one that
    covers more offsets holds. Rows whose model cannot be read are counted under ''.

    A partition that has no open block sends one that covers nothing, as its heartbeat.
    """

    SCHEMA: ClassVar[str] = "attributary.manifest/1"

    topic: str
    partition: int
    partitions: int = Field(description="How many partitions the topic has.")
    block: int = Field(description="First offset of the block: its name.")
    upto: int = Field(description="Offset after the last one counted.")
    previous: int | None = Field(description="Block before this one, when this owner sealed it.")
    lost: int = Field(
        default=0,
        description="Offsets right before the block that the log dropped before they were read.",
    )
    sealed: bool = Field(description="No later offset belongs to this block.")
    acknowledged: int = Field(
        default=0,
        description="Every block before this offset was in the log before this was written.",
    )
    end_offset: int = Field(description="The partition's end offset when this was written.")
    models: dict[str, ModelCount] = Field(default={})

    @property
    def key(self) -> bytes:
        """Kafka key: one record per block survives compaction, and the one that seals it besides:
        an old owner's later, unfinished one must not take its place. Nor must one of an owner that
        sketches another fraction of the rows, nor a heartbeat, which counts nothing."""
        kind = "|sealed" if self.sealed else "" if self.upto > self.block else "|heartbeat"
        fraction = min((count.fraction for count in self.models.values()), default=1.0)
        light = f"|{fraction:g}" if fraction < 1 else ""
        return MANIFEST_KEY + f"{self.topic}|{self.partition}|{self.block}{kind}{light}".encode()
