"""The one tree of errors. Each message says what was received, what was expected, and the fix."""

from __future__ import annotations

from enum import Enum


class AttributaryError(Exception):
    """Everything this project raises on purpose."""


class ConfigurationError(AttributaryError):
    """A setting, argument or card that cannot work; nothing was started."""


class BrokerError(AttributaryError):
    """The broker cannot be reached, or lacks what is needed."""


class Reason(str, Enum):
    """Why a message or row was rejected: the whole set, because it becomes a metric's label."""

    EMPTY = "empty"
    NOT_DECODABLE = "not_decodable"
    WRONG_TYPE = "wrong_type"
    NO_MODEL = "no_model"
    FEATURES_MISSING = "features_missing"
    FEATURES_UNKNOWN = "features_unknown"
    OUTPUTS_MISSING = "outputs_missing"
    BAD_WEIGHT = "bad_weight"
    BAD_TIME = "bad_time"
    FAR_FUTURE = "far_future"
    TOO_MANY_PANES = "too_many_panes"
    TOO_LARGE = "too_large"
    TOO_MANY_MODELS = "too_many_models"


class RejectedError(AttributaryError):
    """A message or row that cannot be used; it goes to the dead letters with this reason.

    ``rows`` is how many rows are lost with it: 1 where the message is too broken to tell.
    """

    def __init__(self, reason: Reason, message: str, rows: int = 1) -> None:
        super().__init__(message)
        self.reason = reason
        self.rows = rows
