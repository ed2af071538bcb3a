"""One thread per open model: calls that wait while the model is busy are answered by one batch."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from attributary.schemas.explanation import ErrorCode
from attributary.workers.ondemand.batch_size import SOME, BatchSize
from attributary.workers.ondemand.errors import OutOfMemoryError, RequestError
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
    product depend on its shape, and an answer must not depend on who else asks. On a GPU, a call of
    ``device_batch_rows`` or more is cut into batches of so many first. A tree's rows are independent: batches
    are as long as there is work, at most ``tree_batch_rows``.

    Batches are no larger than the memory that is free where the model computes: a few rows show what a row
    takes, before the first batch. Where memory runs out all the same, batches are halved for good and the
    call goes on; a single row that does not fit is an error (limit_exceeded).

    Where a joint batch fails, every call is tried alone, so that the one to blame fails alone.
    ``evaluated`` is told of every batch: its rows, and how many calls it served; ``sized`` of the rows
    that a batch has at most, at first and when they have been halved, and whether they were. ``busy`` is
    entered, with the device, while the model computes.
    """

    def __init__(
        self,
        open_model: Callable[[], ModelHandle],
        *,
        batch_rows: int,
        tree_batch_rows: int,
        device_batch_rows: int = 0,
        evaluated: Callable[[int, int], None] = lambda rows, calls: None,
        sized: Callable[[int, bool], None] = lambda rows, halved: None,
        busy: Callable[[str], AbstractContextManager[None]] = lambda device: nullcontext(),
    ) -> None:
        self._open = open_model
        self._handle = open_model()
        self._fill = not self._handle.piecewise_constant
        small = batch_rows if self._fill else tree_batch_rows
        on_device = self._fill and self._handle.device.startswith("cuda")
        self._size = BatchSize(small, max(small, device_batch_rows) if on_device else small)
        # What is not measured yet, or cannot be, does not go beyond the small batches.
        self._measured = False
        self._gradient_rows = small
        self._evaluated, self._sized, self._busy = evaluated, sized, busy
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

    @property
    def rows(self) -> int:
        """Rows that a batch has at most; calls of as many waste none. Final after a first ``evaluate``."""
        return self._size.large

    def differentiate(self, X: Floats) -> Floats:
        """Return the derivatives (n, c, d) at X (n, d), of a model whose handle has them.

        RequestError: the model failed on these rows.
        """
        parts: list[Floats] = []
        start = 0
        while start < len(X):
            gradient = self._handle.gradient
            assert gradient is not None  # noqa: S101
            rows = X[start : start + min(self._gradient_rows, self.rows)]
            try:
                with self._busy(self._handle.device):
                    parts.append(gradient(rows))
            except OutOfMemoryError as error:
                if len(rows) == 1:
                    raise _single_row(error) from error
                self._gradient_rows = len(rows) // 2
                self._tell_halved(self._gradient_rows, error)
                continue
            start += len(rows)
        return np.concatenate(parts)

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
                        rows + len(call.X) <= self.rows and call.X.shape[1] == calls[0].X.shape[1]
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
        self._ready()
        before = self._size.saved()
        if len(X) and not self._measured:
            self._measure(X[:1])
        parts: list[Floats] = []
        start = 0
        while start < len(X):
            if all(call.abandoned_at is not None for call in calls):
                raise RequestError(ErrorCode.INTERNAL, "nobody waits for these rows any more")
            count = self._size.next(len(X) - start, alone=len(calls) == 1)
            rows = X[start : start + count]
            asked = _filled(rows, count) if self._fill else rows
            try:
                with self._busy(self._handle.device):
                    found = self._handle(asked)
            except OutOfMemoryError as error:
                if len(asked) == 1:
                    # It is the row, or the moment, and says nothing about batches of others.
                    self._size.restore(before)
                    self._measured = False
                    raise _single_row(error) from error
                self._size.limit(len(asked) // 2)
                self._tell_halved(self.rows, error)
                self._ready()
                continue
            parts.append(found.reshape(len(found), -1)[: len(rows)])
            start += len(rows)
            self._evaluated(len(rows), len(calls))
        return np.concatenate(parts)

    def _ready(self) -> None:
        """Open the model again where its process has ended."""
        if not self._handle.alive:
            self._handle.close()
            self._handle = self._open()

    def _measure(self, x: Floats) -> None:
        """Fix the size of batches by what rows like x (1, d) take. What else is wrong with x shows later."""
        size = self._size
        try:
            with self._busy(self._handle.device):
                footprint = self._handle.measure(x)
        except OutOfMemoryError as error:
            _log.warning("%d rows do not fit the model's memory: %s", SOME, error)
            size.limit(SOME // 2)
        except RequestError:
            self._ready()
            return
        else:
            if footprint is None:
                size.limit(size.small)
            else:
                size.fit(footprint)
                _log.info(
                    "batches of %d rows: %d bytes a row, %d bytes free",
                    self.rows,
                    footprint.row_bytes,
                    footprint.free_bytes,
                )
        self._measured = True
        self._sized(self.rows, False)
        self._ready()

    def _tell_halved(self, rows: int, error: OutOfMemoryError) -> None:
        _log.warning("batches are halved to %d rows: %s", rows, error)
        self._sized(rows, True)

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


def _single_row(error: OutOfMemoryError) -> RequestError:
    if error.code != ErrorCode.LIMIT_EXCEEDED:  # killed: by whom, nobody says
        return RequestError(error.code, f"{error}, on a single row; the memory may have run out")
    return RequestError(
        ErrorCode.LIMIT_EXCEEDED,
        f"the memory does not hold the model's work on a single row: {error}; raise the models' setting "
        "'memory_bytes', or free memory on the device",
    )


def _filled(rows: Floats, count: int) -> Floats:
    if len(rows) == count:
        return rows
    return np.concatenate([rows, np.repeat(rows[-1:], count - len(rows), axis=0)])
