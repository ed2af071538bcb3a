"""A scheduled run of ``mcir-m``, as the attributions topic has it beside the windows' messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from pydantic import Field

from attributary.schemas.card import ModelName
from attributary.schemas.explanation import KIND_HEADER, McirResult
from attributary.schemas.message import Message
from attributary.schemas.request import RequestId

#: Value of the header ``attributary-kind`` of such a record; a window's message has no such header.
UNIQUE_INFORMATION = b"unique-information"


def is_run(headers: Iterable[tuple[str, bytes]]) -> bool:
    """Whether a record of the attributions topic holds such a run, by its headers."""
    return any(pair == (KIND_HEADER, UNIQUE_INFORMATION) for pair in headers)


class UniqueInformationRun(Message):
    """One run. There is one for each (model, tick): of two the first in log order holds."""

    SCHEMA: ClassVar[str] = "attributary.unique-information/1"

    id: RequestId = Field(description="Of the request that it answers.")
    model: ModelName
    tick: int = Field(description="When it was due, milliseconds since the epoch.")
    every_seconds: float
    computed_at: int
    seconds: float = Field(description="Time to compute it.")
    result: McirResult
