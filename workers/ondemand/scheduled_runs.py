"""The newest scheduled run of every model, as the log of answers tells."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from attributary.schemas.errors import RejectedError
from attributary.schemas.explanation import Explanation, McirResult
from attributary.workers.ondemand.schedule import tick_of

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScheduledRun:
    """A run that has a result; ``tick`` in milliseconds."""

    model: str
    tick: int
    answer: Explanation
    result: McirResult


class ScheduledRuns:
    """Fed with final answers, in any order; of two of one tick the first that is met holds."""

    def __init__(self) -> None:
        self._newest: dict[str, ScheduledRun] = {}

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """Take the record of a final answer; those to other requests are passed over unread."""
        tick = tick_of((key or b"").decode("ascii", "replace"))
        if tick is None:
            return
        try:
            answer = Explanation.from_bytes(value)
        except RejectedError as error:
            _log.warning("a scheduled run cannot be read: %s", error)
            return
        if answer.model is None or not isinstance(answer.result, McirResult):
            return
        known = self._newest.get(answer.model)
        if known is None or known.tick < tick:
            self._newest[answer.model] = ScheduledRun(answer.model, tick, answer, answer.result)

    def newest(self, model: str) -> ScheduledRun | None:
        """Return the model's newest run."""
        return self._newest.get(model)
