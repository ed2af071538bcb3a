"""The process that a model lives in, seen from inside: limits first, then the model, then questions."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from attributary.schemas.explanation import ErrorCode
from attributary.workers.ondemand.channel import Area, Ended, Frame, FrameSocket, Kind
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.limits import limit_cpu, limit_process
from attributary.workers.ondemand.loaders.formats import load
from attributary.workers.ondemand.loaders.loaded import LoadedModel, Source
from attributary.workers.ondemand.memory_meter import HostMeter, Meter, is_out_of_memory

_MESSAGE_CHARACTERS = 500


def main(link: int, question: int, answer: int, artefact: int) -> None:
    """Serve one model until the worker closes its end. The arguments are descriptors."""
    channel = FrameSocket(socket.socket(fileno=link))
    with contextlib.suppress(Ended):
        _Child(channel, Area(question), Area(answer), artefact).run()
    # Libraries that fail while the interpreter is taken down have nothing more to say.
    sys.stdout.flush()
    os._exit(0)


class _Child:
    def __init__(self, channel: FrameSocket, question: Area, answer: Area, artefact: int) -> None:
        self._channel = channel
        self._question, self._answer = question, answer
        self._artefact = artefact
        self._model: LoadedModel | None = None
        self._meter: Meter | None = None
        self._cpu_seconds = 0.0
        self._short = False

    def run(self) -> None:
        """Answer one frame after the other."""
        loading = True
        while True:
            frame = self._channel.receive()
            if self._short and self._meter is not None:
                self._meter.release()
            self._short = False
            try:
                if loading:
                    self._load(json.loads(frame.text))
                    loading = False
                else:
                    self._compute(frame)
            except Ended:
                raise
            except RequestError as error:
                self._fail(error.code, str(error))
            except BaseException as error:  # the model's own, SystemExit among them
                if is_out_of_memory(error):
                    self._fail(
                        ErrorCode.LIMIT_EXCEEDED,
                        "the model needs more memory than there is, or than the models' setting "
                        f"'memory_bytes' allows: {error}",
                        out_of_memory=True,
                    )
                    continue
                code = ErrorCode.MODEL_NOT_LOADABLE if loading else ErrorCode.MODEL_FAILED
                self._fail(code, f"the model raised {type(error).__name__}: {error}")

    def _load(self, description: dict[str, Any]) -> None:
        source = Source(descriptor=self._artefact, **description["source"])
        limits = description["limits"]
        meter = HostMeter.where_known(limits["memory_bytes"])
        limit_process(
            limits["memory_bytes"],
            on_cpu=source.device == "cpu",
            network=source.format == "server",
        )
        limit_cpu(limits["load_seconds"] * source.threads)
        self._cpu_seconds = limits["call_seconds"] * source.threads
        model = load(source)
        self._model = model
        self._meter = meter if model.device == "cpu" else model.meter
        about = {
            "precision": model.precision,
            "piecewise_constant": model.piecewise_constant,
            "features": model.features,
            "gradient": model.gradient is not None,
            "device": model.device,
        }
        self._channel.send(Kind.LOADED, text=json.dumps(about).encode())

    def _compute(self, frame: Frame) -> None:
        model = self._model
        assert model is not None  # noqa: S101
        limit_cpu(self._cpu_seconds)
        if frame.kind == Kind.MEMORY:
            self._channel.send(Kind.USED, 0 if model.used is None else model.used())
            return
        rows, columns, _ = frame.numbers
        X = self._question.array(rows, columns)
        if model.features is not None and columns != model.features:
            raise RequestError(
                ErrorCode.BAD_REQUEST,
                f"the model takes {model.features} features, it was given {columns}: compare its card",
            )
        if frame.kind == Kind.MEASURE:
            self._measure(model, X)
            return
        if frame.kind == Kind.CALL:
            Y = _floats(model.predict(X), rows)
            shape = (*Y.shape[1:], 0)[:1] + (0,)
        else:
            if model.gradient is None:
                raise RequestError(ErrorCode.MODEL_FAILED, "the model has no derivatives")
            Y = _floats(model.gradient(X), rows)
            shape = Y.shape[1:]
        if Y.nbytes > self._answer.size():
            self._channel.send(Kind.ROOM, Y.nbytes)
            if self._channel.receive().kind != Kind.FETCH:
                raise Ended("the worker did not fetch an answer")
        self._answer.array(*Y.shape)[...] = Y
        self._channel.send(Kind.ANSWER, rows, *shape)

    def _measure(self, model: LoadedModel, X: npt.NDArray[np.float64]) -> None:
        if self._meter is None:
            self._channel.send(Kind.MEASURED)
            return
        self._meter.reset()
        Y = _floats(model.predict(X), len(X))
        outputs = max(1, Y.size // len(X))
        self._channel.send(Kind.MEASURED, self._meter.peak(), self._meter.free(), outputs)

    def _fail(self, code: ErrorCode, message: str, *, out_of_memory: bool = False) -> None:
        message = message[:_MESSAGE_CHARACTERS]
        said = {"code": code.value, "message": message, "out_of_memory": out_of_memory}
        self._short = out_of_memory
        self._channel.send(Kind.FAILED, text=json.dumps(said).encode())


def _floats(answer: Any, rows: int) -> npt.NDArray[Any]:
    """Return the model's answer as an array of numbers with one entry or row per row of the question.

    A lone column loses its axis. RequestError (bad_output): it is something else.
    """
    Y: npt.NDArray[Any] = np.asarray(answer)
    if Y.dtype.kind not in "fiub":
        raise RequestError(
            ErrorCode.BAD_OUTPUT,
            f"the model answered with values of type {Y.dtype}, expected numbers: explain a margin, "
            "a logit or a probability instead of a label (the artefact's 'head')",
        )
    if Y.ndim == 2 and Y.shape[1] == 1:
        Y = Y[:, 0]
    if Y.ndim not in (1, 2, 3) or Y.shape[0] != rows or 0 in Y.shape[1:]:
        raise RequestError(
            ErrorCode.BAD_OUTPUT,
            f"the model answered with shape {Y.shape} for {rows} rows, expected ({rows},) or "
            f"({rows}, outputs)",
        )
    return Y
