"""What ends a request without a result."""

from __future__ import annotations

from attributary.schemas.errors import AttributaryError
from attributary.schemas.explanation import ErrorCode


class RequestError(AttributaryError):
    """The request cannot be answered with a result; its answer says why."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class OutOfMemoryError(RequestError):
    """The model found too little memory for a call; one of fewer rows may do."""


class ExpiredError(AttributaryError):
    """The request's deadline has passed."""


class CancelledRequestError(AttributaryError):
    """Whoever asked wants no answer any more."""


class LostError(AttributaryError):
    """The request is another worker's now: it gets no answer from here."""
