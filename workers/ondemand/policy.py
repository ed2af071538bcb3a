"""What the operator allows of models: where they come from, which may run code, and their limits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class LoadPolicy(BaseModel):
    """How models are loaded. Nothing that a card or an artefact says can widen it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    roots: tuple[Path, ...] = Field(
        default=(), description="Folders that artefacts may lie in; none by default."
    )
    server_hosts: tuple[str, ...] = Field(
        default=(), description="Model servers that may be asked, each as 'host' or 'host:port'."
    )
    skops_trusted: tuple[str, ...] = Field(
        default=(), description="Types that a skops file may build beyond those skops trusts."
    )
    executable_sha256: tuple[Sha256, ...] = Field(
        default=(),
        description="TorchScript and .pt2 files, which can run code, that may be loaded.",
    )
    artefact_bytes: Count = Field(default=2 * 2**30, description="Larger artefacts are refused.")
    memory_bytes: Annotated[int, Field(ge=256 * 2**20)] = Field(
        default=4 * 2**30, description="Memory of a model's process; one that needs more is killed."
    )
    load_seconds: Seconds = Field(default=120.0, description="Time to load a model.")
    call_seconds: Seconds = Field(default=60.0, description="Time to evaluate one batch.")
    batch_rows: Count = Field(default=16_384, description="Rows that a model is given at once.")
    max_outputs: Count = Field(default=1000, description="Columns of a model's answer.")
    response_bytes: Count = Field(
        default=64 * 2**20, description="Longer answers of a model server are refused."
    )
    threads: Count = Field(
        default=1, description="Threads of a model's process; sums depend on their number."
    )
    mixed_precision: Literal["off", "bfloat16", "float16"] = Field(
        default="off", description="Torch's autocast, for speed; costs digits."
    )
