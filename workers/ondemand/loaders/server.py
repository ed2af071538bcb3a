"""A running model server that speaks the Open Inference Protocol, version 2, over HTTP and JSON."""

from __future__ import annotations

import http.client
import math
import time
from typing import Any
from urllib.parse import urlsplit

import msgspec
import numpy as np
import numpy.typing as npt

from attributary.schemas.explanation import ErrorCode
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.loaders.links import log_odds
from attributary.workers.ondemand.loaders.loaded import Floats, LoadedModel, Source, not_loadable

_CHUNK = 2**16
_SAID = 200
_INPUTS = {"FP64": "float64", "FP32": "float32"}
_OUTPUTS = {
    *("FP64", "FP32", "FP16", "BOOL"),
    *("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"),
}


class _Tensor(msgspec.Struct):
    """A tensor's description: -1 in a shape stands for any length."""

    name: str
    datatype: str
    shape: list[int]


class _Metadata(msgspec.Struct):
    inputs: list[_Tensor] = []
    outputs: list[_Tensor] = []


class _Output(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int]
    data: list[Any] | None = None


class _Answer(msgspec.Struct):
    outputs: list[_Output]


def load(source: Source) -> LoadedModel:
    """Ask the server for the model's readiness and metadata, and return what evaluates batches there."""
    client = _Client(source)
    status, _ = client.ask("GET", client.path + "/ready", None, source.load_seconds)
    if status != 200:
        raise not_loadable(f"the model server says that {source.uri} is not ready (HTTP {status})")
    metadata = client.decode(client.get("", source.load_seconds), _Metadata, loading=True)
    given = metadata.inputs
    if len(given) != 1 or len(given[0].shape) != 2 or given[0].datatype not in _INPUTS:
        described = ", ".join(f"{i.name} {i.datatype}{i.shape}" for i in given[:5]) or "none"
        raise not_loadable(
            f"{source.uri} has the inputs: {described}; expected one FP32 or FP64 tensor with the axes "
            "batch and features"
        )
    names = [output.name for output in metadata.outputs]
    if source.head is not None and names and source.head not in names:
        raise not_loadable(
            f"the artefact's head {source.head!r} is not an output: the model has {', '.join(names)}"
        )
    if source.head is None and len(names) > 1:
        raise not_loadable(
            f"{source.uri} has the outputs {', '.join(names)}: name one in the artefact's 'head'"
        )
    name, datatype, width = given[0].name, given[0].datatype, given[0].shape[1]

    def predict(X: Floats) -> npt.NDArray[Any]:
        body = {
            "inputs": [
                {
                    "name": name,
                    "shape": list(X.shape),
                    "datatype": datatype,
                    "data": _values(X, datatype),
                }
            ]
        }
        if source.head is not None:
            body["outputs"] = [{"name": source.head}]
        answered = client.post("/infer", msgspec.json.encode(body), source.call_seconds)
        Y = _output(client.decode(answered, _Answer, loading=False), source.head)
        return log_odds(Y) if source.link == "log-odds" else Y

    return LoadedModel(
        predict=predict,
        precision="float64" if datatype == "FP64" else "float32",
        piecewise_constant=bool(source.piecewise_constant),
        features=width if width > 0 else None,
        device="server",
    )


def _values(X: Floats, datatype: str) -> list[float]:
    if not np.isfinite(X).all():
        raise RequestError(
            ErrorCode.BAD_REQUEST,
            "the features hold NaN or infinite values, which the protocol's JSON cannot carry",
        )
    # The nearest float32, spelt in full: what the server reads is what a float32 model computes with.
    values: list[float] = X.astype(_INPUTS[datatype]).astype(np.float64).ravel().tolist()
    return values


def _output(answer: _Answer, head: str | None) -> npt.NDArray[Any]:
    chosen = [output for output in answer.outputs if head is None or output.name == head]
    if len(chosen) != 1:
        had = ", ".join(output.name for output in answer.outputs[:10]) or "none"
        raise _bad(f"the outputs {had}, expected {'one' if head is None else repr(head)}")
    output = chosen[0]
    if output.datatype not in _OUTPUTS:
        raise _bad(f"a tensor of {output.datatype}, expected numbers")
    try:
        values = np.array(output.data, np.float64)  # flat or nested
    except (TypeError, ValueError) as error:
        raise _bad("data that are no numbers") from error
    if any(axis < 0 for axis in output.shape) or values.size != math.prod(output.shape):
        raise _bad(f"{values.size} values for the shape {output.shape}")
    return values.reshape(output.shape)


def _bad(what: str) -> RequestError:
    return RequestError(ErrorCode.BAD_OUTPUT, f"the model server answered with {what}")


class _Client:
    """One connection, kept open, to the one server of the address; it follows no redirect."""

    def __init__(self, source: Source) -> None:
        parts = urlsplit(source.uri)
        if "/v2/models/" not in parts.path or parts.query or parts.fragment:
            raise not_loadable(
                f"{source.uri!r} is no model's address, expected http(s)://host/v2/models/NAME or "
                "…/NAME/versions/VERSION"
            )
        self.path = parts.path.rstrip("/")
        self._uri = source.uri
        self._limit = source.response_bytes
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        self._connection = kind(parts.hostname or "", parts.port)

    def get(self, path: str, seconds: float) -> bytes:
        return self._expect_ok(*self.ask("GET", self.path + path, None, seconds))

    def post(self, path: str, body: bytes, seconds: float) -> bytes:
        return self._expect_ok(*self.ask("POST", self.path + path, body, seconds))

    def ask(self, method: str, path: str, body: bytes | None, seconds: float) -> tuple[int, bytes]:
        """Return status and body. RequestError: no answer, a late one, or one that is too long."""
        end = time.monotonic() + seconds
        fresh = self._connection.sock is None
        try:
            try:
                return self._exchange(method, path, body, end)
            except (http.client.RemoteDisconnected, ConnectionError):
                # A server may close a kept connection at any time, before it takes a question.
                if fresh:
                    raise
                self._connection.close()
                return self._exchange(method, path, body, end)
        except TimeoutError as error:
            self._connection.close()
            raise RequestError(
                ErrorCode.LIMIT_EXCEEDED, f"{self._uri} gave no whole answer within {seconds:g} s"
            ) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._connection.close()
            raise RequestError(
                ErrorCode.MODEL_FAILED,
                f"{self._uri} cannot be asked: {type(error).__name__}: {str(error)[:_SAID]}",
            ) from error
        except RequestError:
            self._connection.close()
            raise

    def _exchange(
        self, method: str, path: str, body: bytes | None, end: float
    ) -> tuple[int, bytes]:
        connection = self._connection
        connection.timeout = _left(end)
        if connection.sock is not None:
            connection.sock.settimeout(_left(end))
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, path, body, headers)
        connection.sock.settimeout(_left(end))
        sock = connection.sock  # the response drops it where the server closes
        response = connection.getresponse()
        data = bytearray()
        while True:
            sock.settimeout(_left(end))
            chunk = response.read1(_CHUNK)
            if not chunk:
                break
            data += chunk
            if len(data) > self._limit:
                raise RequestError(
                    ErrorCode.LIMIT_EXCEEDED,
                    f"{self._uri} answered with more than {self._limit} bytes, which the models' "
                    "setting 'response_bytes' allows",
                )
        if response.length:
            raise http.client.IncompleteRead(bytes(data[:0]), response.length)
        response.read()  # nothing, but only this frees the connection for the next question
        return response.status, bytes(data)

    def _expect_ok(self, status: int, body: bytes) -> bytes:
        if status != 200:
            said = "".join(
                c if c.isprintable() else " " for c in body[:_SAID].decode(errors="replace")
            )
            raise RequestError(
                ErrorCode.MODEL_FAILED, f"{self._uri} answered with HTTP {status}: {said}"
            )
        return body

    def decode(self, body: bytes, kind: Any, *, loading: bool) -> Any:
        """Return the JSON of an answer as ``kind``."""
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            message = f"{self._uri} answered with what the protocol does not know: {error}"
            raise (not_loadable(message) if loading else _bad(message)) from error


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
