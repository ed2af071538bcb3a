"""One request on its way through a worker."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Literal

from aiokafka import ConsumerRecord
from pydantic import TypeAdapter, ValidationError

from attributary.schemas.dead_letter import Origin
from attributary.schemas.errors import RejectedError
from attributary.schemas.explanation import ErrorCode, Explanation
from attributary.schemas.request import DEADLINE_HEADER, ExplanationRequest, RequestId
from attributary.workers.ondemand.errors import (
    CancelledRequestError,
    ExpiredError,
    LostError,
    RequestError,
)
from attributary.workers.ondemand.schedule import Due, tick_of
from attributary.workers.stream.decode import Record, record_of

Priority = Literal["high", "normal"]
_request_id: TypeAdapter[str] = TypeAdapter(RequestId)


@dataclass(eq=False)
class Job:
    """A request that was read. The event loop and the thread that computes it both hold it.

    ``id`` is the record's key, None where that is no request's id; ``deadline`` in milliseconds.
    """

    origin: Origin
    record: Record
    priority: Priority
    id: str | None
    deadline: int | None
    attempt: int = 1
    begun: bool = False
    working: bool = False
    done: int = 0
    total: int = 0
    model_calls: int = 0
    model_rows: int = 0
    background_rows: int = 0
    artefact_sha256: str | None = None
    #: Of a scheduled request.
    due: Due | None = None
    answer: Explanation | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    #: Its partition went to another worker, or this one stops: nobody wants its answer from here.
    lost: threading.Event = field(default_factory=threading.Event)
    _limit: float | None = None
    _limit_seconds: float = 0.0

    @classmethod
    def of(cls, record: ConsumerRecord, priority: Priority) -> Job:
        """Return the job of a record, which is not read yet."""
        headers = dict(record.headers)
        return cls(
            Origin(record.topic, record.partition, record.offset),
            record_of(record),
            priority,
            _id_of(record.key),
            _deadline_of(headers.get(DEADLINE_HEADER)),
        )

    def request(self, most_bytes: int) -> ExplanationRequest:
        """Return the request; RequestError where it cannot be read."""
        size = len(self.record.value or b"")
        if size > most_bytes:
            raise RequestError(
                ErrorCode.LIMIT_EXCEEDED,
                f"the request has {size:,} bytes; this worker reads at most {most_bytes:,}: ask for fewer "
                "rows at a time, give fewer of background, or raise ondemand.max_request_bytes",
            )
        try:
            request = ExplanationRequest.from_bytes(self.record.value)
        except RejectedError as error:
            raise RequestError(ErrorCode.BAD_REQUEST, str(error)) from None
        if self.id is None:
            self.id = request.id
        if (self.record.key or b"") != request.id.encode():
            raise RequestError(
                ErrorCode.BAD_REQUEST,
                f"the record's key is {self.record.key!r:.80}; it must be the request's id {request.id!r}",
            )
        return request

    @property
    def since(self) -> int:
        """From which broker's time on its answer may be in the log, milliseconds.

        A scheduled request may be sent again until the tick after, by a worker whose clock goes otherwise.
        """
        tick = tick_of(self.id or "")
        if tick is None:
            return self.record.timestamp
        return min(self.record.timestamp, tick - max(0, (self.deadline or tick) - tick))

    def limit(self, seconds: float) -> None:
        """Begin to count the time that it may be computed."""
        self._limit_seconds = seconds
        self._limit = time.monotonic() + seconds

    @property
    def expired(self) -> bool:
        """Whether its deadline has passed."""
        return self.deadline is not None and time.time() * 1000 >= self.deadline

    def check(self) -> None:
        """Raise what ends the request: it is lost, cancelled, expired, or takes too long."""
        if self.lost.is_set():
            raise LostError("the request is another worker's now")
        if self.cancelled.is_set():
            raise CancelledRequestError("the request was taken back")
        if self.expired:
            raise ExpiredError("the request's deadline has passed")
        if self._limit is not None and time.monotonic() >= self._limit:
            raise RequestError(
                ErrorCode.LIMIT_EXCEEDED,
                f"not done after {self._limit_seconds:g} s, the most that a request is computed; ask for "
                "fewer instances or less precision",
            )


def _id_of(key: bytes | None) -> str | None:
    try:
        return _request_id.validate_python((key or b"").decode("ascii"))
    except (ValidationError, UnicodeDecodeError):
        return None


def _deadline_of(value: bytes | None) -> int | None:
    """Return the deadline; a header that cannot be read is none."""
    text = (value or b"").decode("ascii", "replace").strip()
    return int(text) if text.isdecimal() and len(text) < 16 else None
