"""One thread per open model: calls that wait while the model is busy are answered by one batch."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from attributary.schemas.explanation import ErrorCode
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.model_handle import Floats, ModelHandle

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.05
# A batch that nobody waits for any more may hold up others so long; then its model is ended.
_ABANDONED_SECONDS = 5.0


class _Call:
    """Rows that a request waits for."""

    def __init__(self, X: Floats) -> None:
        self.X = X
        self.done = threading.Event()
        self.outputs: Floats | None = None
        self.error: Exception | None = None
        self.abandoned_at: float | None = None


class Gateway:
    """Evaluates a model for many threads.

    A smooth model is always given ``batch_rows`` rows, the last ones repeated to fill up: sums in a matrix
    product depend on its shape, and an answer must not depend on who else asks. A tree's rows are
    independent: batches are as long as there is work, at most ``tree_batch_rows``.

    Where a joint batch fails, every call is tried alone, so that the one to blame fails alone.
    ``evaluated`` is told of every batch: its rows, and how many calls it served.
    """

    def __init__(
        self,
        open_model: Callable[[], ModelHandle],
        *,
        batch_rows: int,
        tree_batch_rows: int,
        evaluated: Callable[[int, int], None] = lambda rows, calls: None,
    ) -> None:
        self._open = open_model
        self._handle = open_model()
        self._rows = tree_batch_rows if self._handle.piecewise_constant else batch_rows
        self._fill = not self._handle.piecewise_constant
        self._evaluated = evaluated
        self._waiting: deque[_Call] = deque()
        self._running: list[_Call] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    @property
    def handle(self) -> ModelHandle:
        """The model as it is open now."""
        return self._handle

    def evaluate(self, X: Floats, check: Callable[[], None]) -> Floats:
        """Return the outputs (n, c) of X (n, d). ``check`` is asked while it waits, and may raise.

        RequestError: the model failed on these rows.
        """
        call = _Call(X)
        with self._changed:
            if self._closed:
                raise RequestError(ErrorCode.INTERNAL, "the model was closed meanwhile")
            self._waiting.append(call)
            self._changed.notify()
        try:
            while not call.done.wait(_LOOK_SECONDS):
                check()
                self._free()
        except BaseException:
            call.abandoned_at = time.monotonic()
            raise
        if call.error is not None:
            raise call.error
        assert call.outputs is not None  # noqa: S101
        return call.outputs

    def close(self) -> None:
        """End the model and fail what waits for it."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._handle.close()
        self._thread.join()
        # It may have opened the model once more meanwhile.
        self._handle.close()

    def _free(self) -> None:
        """End a model that hangs on rows that nobody waits for any more, while others do wait."""
        running = self._running
        ends = [call.abandoned_at for call in running if call.abandoned_at is not None]
        unwanted = running and len(ends) == len(running)
        if unwanted and time.monotonic() - max(ends) > _ABANDONED_SECONDS:
            self._handle.close()

    def _run(self) -> None:
        while (calls := self._take()) is not None:
            try:
                self._running = calls
                self._serve(calls)
                self._running = []
            except BaseException as error:
                _log.exception("a model call ended unexpectedly")
                self._fail(calls, error)
        self._fail(list(self._waiting), None)

    def _take(self) -> list[_Call] | None:
        """Return what waits, as many rows as one batch takes and at least one call; None once closed."""
        with self._changed:
            while True:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return None
                calls: list[_Call] = []
                rows = 0
                while self._waiting:
                    call = self._waiting[0]
                    fits = not calls or (
                        rows + len(call.X) <= self._rows and call.X.shape[1] == calls[0].X.shape[1]
                    )
                    if not fits:
                        break
                    self._waiting.popleft()
                    if call.abandoned_at is None:
                        calls.append(call)
                        rows += len(call.X)
                if calls:
                    return calls

    def _serve(self, calls: list[_Call]) -> None:
        if len(calls) > 1:
            try:
                outputs = self._evaluate(np.concatenate([call.X for call in calls]), calls)
            except RequestError:
                pass
            else:
                ends = np.cumsum([len(call.X) for call in calls])[:-1]
                for call, part in zip(calls, np.split(outputs, ends), strict=True):
                    call.outputs = part
                    call.done.set()
                return
        for call in calls:
            if self._closed:
                self._fail([call], None)
                continue
            try:
                call.outputs = self._evaluate(call.X, [call])
            except RequestError as error:
                call.error = error
            call.done.set()

    def _evaluate(self, X: Floats, calls: list[_Call]) -> Floats:
        if not self._handle.alive:
            self._handle.close()
            self._handle = self._open()
        parts = []
        for start in range(0, len(X), self._rows):
            if all(call.abandoned_at is not None for call in calls):
                raise RequestError(ErrorCode.INTERNAL, "nobody waits for these rows any more")
            rows = X[start : start + self._rows]
            found = self._handle(_filled(rows, self._rows) if self._fill else rows)
            parts.append(found.reshape(len(found), -1)[: len(rows)])
            self._evaluated(len(rows), len(calls))
        return np.concatenate(parts)

    @staticmethod
    def _fail(calls: list[_Call], error: BaseException | None) -> None:
        for call in calls:
            if not call.done.is_set():
                call.error = RequestError(
                    ErrorCode.INTERNAL,
                    f"the model call ended unexpectedly: {error!r}"
                    if error is not None
                    else "the model was closed meanwhile",
                )
                call.done.set()


def _filled(rows: Floats, count: int) -> Floats:
    if len(rows) == count:
        return rows
    return np.concatenate([rows, np.repeat(rows[-1:], count - len(rows), axis=0)])
