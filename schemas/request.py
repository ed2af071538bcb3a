"""A request for an explanation, and what takes it back."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from attributary.schemas.card import ModelName
from attributary.schemas.message import Message

#: When a request is no longer wanted: milliseconds since the epoch, in a header of its record.
DEADLINE_HEADER = "attributary-deadline"

#: Progress lies in the explanations topic under this and the request's id, the answer under the id.
PROGRESS_PREFIX = "p|"


def _no_progress(request_id: str) -> str:
    if request_id.startswith(PROGRESS_PREFIX):
        raise ValueError(
            f"the id {request_id!r:.80} begins with {PROGRESS_PREFIX!r}, which is kept for progress: "
            "choose another"
        )
    return request_id


RequestId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        json_schema_extra={"not": {"pattern": r"^p\|"}},
    ),
    AfterValidator(_no_progress),
]
MethodName = Literal["t-explainer", "ordshap", "mcir-m"]
# A hundred years.
_MOST_SECONDS = 3_155_760_000
Value = float | bool | str | None


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Instance(_Part):
    """One row as the model's rows name it: numbers, booleans, category names, null where missing."""

    features: dict[str, Value] = Field(min_length=1, max_length=5000)
    id: str | None = Field(default=None, max_length=500)


class StreamWindow(_Part):
    """Rows of the model's stream, from the samples that its sketches keep (a card with ``samples``).

    Event times [start, end) in milliseconds since the epoch, in whole panes; ``seconds`` ends at ``end``, or
    at the newest row. Nothing given: all that the sketches topic holds.
    """

    start: int | None = None
    end: int | None = None
    seconds: Annotated[float, Field(gt=0, le=_MOST_SECONDS)] | None = None
    rows: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=100, description="At most so many, drawn uniformly; the same ones every time."
    )

    @model_validator(mode="after")
    def _consistent(self) -> StreamWindow:
        if self.start is not None and self.seconds is not None:
            raise ValueError("give start or seconds, not both")
        if self.start is not None and self.end is not None and self.start >= self.end:
            raise ValueError(f"the window starts at {self.start}, not before its end {self.end}")
        return self


class ExplanationRequest(Message):
    """What is to be explained. The record's key is ``id``, the deadline is in a header.

    ``output`` is a name or a position in the card's outputs; null: all of them. ``background`` null: the
    stream's samples where the method needs a background. ``parameters`` are the method's own.
    """

    SCHEMA: ClassVar[str] = "attributary.request/1"

    id: RequestId
    model: ModelName
    method: MethodName = "t-explainer"
    output: str | Annotated[int, Field(ge=0)] | None = None
    instances: Annotated[list[Instance], Field(min_length=1)] | StreamWindow
    background: Annotated[list[Instance], Field(min_length=1)] | StreamWindow | None = None
    parameters: dict[str, Any] = Field(default={}, description="By name, the method says which.")
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0


class Cancellation(Message):
    """Takes a request back. A request that is answered already stays so."""

    SCHEMA: ClassVar[str] = "attributary.cancellation/1"

    id: RequestId
