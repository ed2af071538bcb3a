"""Models behind one callable, whatever their format: found, checked, opened in a process of their own."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from attributary.schemas.card import Artefact, ModelCard
from attributary.schemas.explanation import ErrorCode
from attributary.workers.explainers.precisions import Precision
from attributary.workers.ondemand.artefact import Snapshot, take_snapshot
from attributary.workers.ondemand.batch_size import FEW, SOME, Footprint
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.loaders.formats import EXECUTABLE, format_of
from attributary.workers.ondemand.model_process import ModelProcess
from attributary.workers.ondemand.policy import LoadPolicy

Floats = npt.NDArray[np.float64]

# What one question or answer may take in memory; larger batches go in parts.
_PART_BYTES = 64 * 2**20
_NAMED_ROWS = 5
# Who looks at the metrics waits so long for a model that is at work.
_PATIENCE_SECONDS = 0.2


def open_model(card: ModelCard, policy: LoadPolicy, device: str = "cpu") -> OpenModel:
    """Open the model of a card, in a process of its own.

    ``device``: "cpu" or "cuda:N". RequestError: artefact_missing, artefact_refused, artefact_changed,
    model_not_loadable, limit_exceeded; model_failed where a model server cannot be asked.
    """
    if card.artefact is None:
        raise RequestError(
            ErrorCode.ARTEFACT_MISSING,
            f"the card of model {card.model!r} names no artefact: register it with one",
        )
    artefact = card.artefact
    kind = format_of(artefact)
    snapshot = None
    if kind == "server":
        _check_host(artefact, policy)
    else:
        if kind in EXECUTABLE and artefact.sha256 not in policy.executable_sha256:
            raise RequestError(
                ErrorCode.ARTEFACT_REFUSED,
                f"artefact {artefact.uri!r} is refused: {kind} files can run code; the operator can "
                f"allow this one by adding {artefact.sha256} to the models' setting "
                "'executable_sha256', or save it as ONNX or safetensors (docs/models.md)",
            )
        snapshot = take_snapshot(artefact, policy)
    one_column_each = artefact.categories == "codes" or all(
        feature.kind != "categorical" for feature in card.features
    )
    description = {
        "source": {
            "uri": artefact.uri,
            "format": kind,
            "head": artefact.head,
            "link": artefact.link,
            "piecewise_constant": artefact.piecewise_constant,
            "names": [f.name for f in card.features] if card.features and one_column_each else None,
            "device": device,
            "threads": policy.threads,
            "mixed_precision": policy.mixed_precision,
            "skops_trusted": list(policy.skops_trusted),
            "unpacked_bytes": policy.artefact_bytes,
            "response_bytes": policy.response_bytes,
            "call_seconds": policy.call_seconds,
            "load_seconds": policy.load_seconds,
        },
        "limits": {
            "memory_bytes": policy.memory_bytes,
            "load_seconds": policy.load_seconds,
            "call_seconds": policy.call_seconds,
        },
    }
    return OpenModel(description, snapshot, policy)


class OpenModel:
    """A ``ModelHandle``: a callable from X (n, d) to (n,) or (n, c), both float64.

    ``precision``: what the model computes in. ``piecewise_constant``: built of trees. ``features``: d, where
    the model knows it. ``outputs``: c, 1 for (n,), once it has answered. ``gradient``: X (n, d) to exact
    derivatives (n, c, d), for torch models. ``device``: where it computes.

    A process that has died, or was killed because it hung or grew, is an error of the call that saw it;
    the next call starts another with the same bytes.
    """

    def __init__(
        self, description: dict[str, Any], snapshot: Snapshot | None, policy: LoadPolicy
    ) -> None:
        self._description = description
        self._snapshot = snapshot
        self._policy = policy
        self._calling = threading.Lock()
        self._closed = False
        self._process: ModelProcess | None = None
        try:
            about = self._running().about
        except BaseException:
            self.close()
            raise
        self.precision: Precision = about["precision"]
        self.piecewise_constant: bool = about["piecewise_constant"]
        self.features: int | None = about["features"]
        self.device: str = about["device"]
        self.outputs: int | None = None
        self._flat: bool | None = None
        self.gradient = self._gradient if about["gradient"] else None

    @property
    def alive(self) -> bool:
        """Say whether its process runs."""
        process = self._process
        return not self._closed and process is not None and process.alive

    def __call__(self, X: Floats) -> Floats:
        """Return the outputs (n,) or (n, c) of X (n, d), finite.

        RequestError: model_failed, bad_output (shape, type, NaN and infinities), bad_request (X has another
        width than the model), limit_exceeded (time, memory, outputs).
        """
        X = _matrix(X)
        with self._calling:
            width = max(X.shape[1], self.outputs or 1)
            parts = [
                self._checked(self._running().evaluate(part, self._policy.call_seconds), start)
                for start, part in self._parts(X, width)
            ]
        if not parts:
            return np.empty((0,) if self._flat in (None, True) else (0, self.outputs or 0))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def measure(self, x: Floats) -> Footprint | None:
        """Return what calls take, from a few of rows like x (1, d); None where its process cannot tell.

        RequestError: as for a call. OutOfMemoryError: a few rows are too many.
        """
        x = _matrix(x)
        found = []
        with self._calling:
            # The first call also loads and plans what later ones do not.
            for rows in (FEW, FEW, SOME):
                process, began = self._running(), time.monotonic()
                measured = process.measure(np.repeat(x, rows, axis=0), self._policy.call_seconds)
                if measured is None:
                    return None
                found.append(measured)
            seconds = time.monotonic() - began
        (_, (few, _, _), (some, free, outputs)) = found
        # Question and answer lie in memory, too, twice on the way.
        least = 2 * 8 * (x.shape[1] + outputs)
        return Footprint(
            row_bytes=max(least, -(-(some - few) // (SOME - FEW))),
            free_bytes=free,
            timely_rows=max(1, int(SOME * 0.1 * self._policy.call_seconds / max(seconds, 1e-6))),
        )

    def _gradient(self, X: Floats) -> Floats:
        """Return the derivatives (n, c, d) at X (n, d)."""
        X = _matrix(X)
        with self._calling:
            parts = []
            for start, part in self._parts(X, X.shape[1] * (self.outputs or 1)):
                J = self._running().differentiate(part, self._policy.call_seconds)
                if J.ndim != 3 or J.shape[2] != X.shape[1]:
                    raise _bad_output(f"derivatives of shape {J.shape}")
                _check_finite(J, start)
                parts.append(J)
        if not parts:
            return np.empty((0, self.outputs or 1, X.shape[1]))
        return np.concatenate(parts)

    def resident(self) -> int:
        """Return the bytes of main memory that its process holds. From any thread."""
        process = self._process
        return process.resident() if process is not None and process.alive else 0

    def device_memory(self) -> int | None:
        """Return the bytes in use on its device, by whomever; None where it cannot tell, or has no time.

        From any thread: a call under way is waited for a moment.
        """
        if not self._calling.acquire(timeout=_PATIENCE_SECONDS):
            return None
        try:
            process = self._process
            if process is None or not process.alive:
                return None
            return process.used(self._policy.call_seconds)
        except RequestError:
            return None
        finally:
            self._calling.release()

    def close(self) -> None:
        """End its process. From any thread: a call under way raises RequestError (model_failed)."""
        self._closed = True
        process = self._process
        if process is not None:
            process.close()
        with self._calling:
            if self._process is not None:
                self._process.release()
                self._process = None
            if self._snapshot is not None:
                self._snapshot.close()

    def __enter__(self) -> OpenModel:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def _running(self) -> ModelProcess:
        """Return the process, a new one where the last has died."""
        if self._process is not None and self._process.alive:
            return self._process
        if self._closed:
            raise RequestError(ErrorCode.MODEL_FAILED, "the model is closed")
        if self._process is not None:
            self._process.release()
            self._process = None
        self._process = process = ModelProcess(
            None if self._snapshot is None else self._snapshot.descriptor,
            memory_bytes=self._policy.memory_bytes,
            threads=self._policy.threads,
        )
        self._end_if_closed(process)
        process.open(self._description, self._policy.load_seconds)
        return process

    def _end_if_closed(self, process: ModelProcess) -> None:
        """``close`` in another thread may have come before it could see this process."""
        if self._closed:
            process.close()

    def _parts(self, X: Floats, width: int) -> list[tuple[int, Floats]]:
        rows = max(1, min(self._policy.batch_rows, _PART_BYTES // (8 * width)))
        return [(start, X[start : start + rows]) for start in range(0, X.shape[0], rows)]

    def _checked(self, Y: Floats, start: int) -> Floats:
        if Y.ndim > 2:
            raise _bad_output(f"shape {Y.shape}, expected (rows,) or (rows, outputs)")
        outputs = 1 if Y.ndim == 1 else Y.shape[1]
        if outputs > self._policy.max_outputs:
            raise RequestError(
                ErrorCode.LIMIT_EXCEEDED,
                f"the model has {outputs} outputs, the models' setting 'max_outputs' allows "
                f"{self._policy.max_outputs}",
            )
        if self.outputs is not None and (outputs, Y.ndim == 1) != (self.outputs, self._flat):
            raise _bad_output(f"{outputs} outputs, and with {self.outputs} before")
        _check_finite(Y, start)
        self.outputs, self._flat = outputs, Y.ndim == 1
        return Y


def _check_host(artefact: Artefact, policy: LoadPolicy) -> None:
    try:
        parts = urlsplit(artefact.uri)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise RequestError(
            ErrorCode.ARTEFACT_REFUSED, f"artefact {artefact.uri!r} is refused: {error}"
        ) from error
    port = port or (443 if parts.scheme == "https" else 80)
    if "@" in parts.netloc:
        raise RequestError(
            ErrorCode.ARTEFACT_REFUSED,
            "the artefact's address is refused: it holds a user or password, and cards are read by all",
        )
    if not {host, f"{host}:{port}"} & {allowed.lower() for allowed in policy.server_hosts}:
        raise RequestError(
            ErrorCode.ARTEFACT_REFUSED,
            f"artefact {artefact.uri!r} is refused: {host}:{port} is not in the models' setting "
            "'server_hosts'",
        )


def _matrix(X: Floats) -> Floats:
    X = np.ascontiguousarray(X, np.float64)
    if X.ndim != 2 or X.shape[1] == 0:
        raise RequestError(
            ErrorCode.BAD_REQUEST, f"a model takes (rows, features), it was given shape {X.shape}"
        )
    return X


def _check_finite(Y: Floats, start: int) -> None:
    # A sum is the cheapest look at all of them: it is finite where they are, but for an overflow.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(Y.sum()):
            return
    wrong = ~np.isfinite(Y).reshape(len(Y), -1).all(1)
    if wrong.any():
        rows = ", ".join(str(start + row) for row in np.flatnonzero(wrong)[:_NAMED_ROWS])
        raise _bad_output(f"NaN or infinite values for {wrong.sum()} rows (row {rows})")


def _bad_output(what: str) -> RequestError:
    return RequestError(ErrorCode.BAD_OUTPUT, f"the model answered with {what}")
