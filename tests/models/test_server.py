"""Models behind a server that speaks the Open Inference Protocol: a real one, and one that misbehaves."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator

import numpy as np
import pytest
from command import wait_until
from inference_server import InferenceServer
from models import raises

from attributary.schemas.card import Artefact, ModelCard
from attributary.schemas.explanation import ErrorCode
from attributary.workers.ondemand.models import OpenModel, open_model
from attributary.workers.ondemand.policy import LoadPolicy

pytestmark = pytest.mark.timeout(120)

X = np.random.default_rng(0).normal(size=(20, 3))


@pytest.fixture(scope="module")
def server() -> Iterator[InferenceServer]:
    with InferenceServer() as server:
        yield server


def _open(host: str, name: str, policy: dict | None = None, **artefact) -> OpenModel:
    uri = f"http://{host}/v2/models/{name}"
    card = ModelCard(model="m", artefact=Artefact(uri=uri, **artefact))
    return open_model(card, LoadPolicy(server_hosts=(host,), **(policy or {})))


def test_outputs_and_precision_are_the_servers(server):
    with _open(server.host, "sum") as model:
        np.testing.assert_allclose(model(X), X.sum(1), rtol=1e-14)
        np.testing.assert_allclose(model(2 * X), 2 * X.sum(1), rtol=1e-14)
        assert (model.precision, model.features, model.outputs) == ("float64", 3, 1)
        assert (model.piecewise_constant, model.gradient) == (False, None)
        with raises(ErrorCode.BAD_REQUEST, "NaN"):
            model(np.full((2, 3), np.nan))
        assert model.alive


def test_a_float32_server_gets_float32_values(server):
    with _open(server.host, "sum32", piecewise_constant=True) as model:
        assert (model(X) == X.astype(np.float32).astype(float).sum(1)).all()
        assert (model.precision, model.piecewise_constant) == ("float32", True)


def test_nested_data_and_several_outputs(server):
    with _open(server.host, "nested") as model:
        np.testing.assert_allclose(model(X), np.stack([X.sum(1), -X.sum(1)], 1), rtol=1e-14)
        assert model.features is None
    with raises(ErrorCode.MODEL_NOT_LOADABLE, "y, twice", "'head'"):
        _open(server.host, "two")
    with raises(ErrorCode.MODEL_NOT_LOADABLE, "'thrice'"):
        _open(server.host, "two", head="thrice")
    with _open(server.host, "two", head="twice") as model:
        np.testing.assert_allclose(model(X), 2 * X.sum(1), rtol=1e-14)


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("loading", ErrorCode.MODEL_NOT_LOADABLE, "not ready (HTTP 503)"),
        ("absent", ErrorCode.MODEL_NOT_LOADABLE, "not ready (HTTP 404)"),
        ("text", ErrorCode.MODEL_NOT_LOADABLE, "BYTES"),
        ("junk_metadata", ErrorCode.MODEL_NOT_LOADABLE, "the protocol does not know"),
    ],
)
def test_a_model_that_cannot_be_used_is_not_opened(server, name, code, said):
    with raises(code, said):
        _open(server.host, name)


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("error", ErrorCode.MODEL_FAILED, 'HTTP 500: {"error": "out of  [31mmemory'),
        ("redirect", ErrorCode.MODEL_FAILED, "HTTP 302"),
        ("drops", ErrorCode.MODEL_FAILED, "RemoteDisconnected"),
        ("truncated", ErrorCode.MODEL_FAILED, "IncompleteRead"),
        ("junk", ErrorCode.BAD_OUTPUT, "the protocol does not know"),
        ("nan", ErrorCode.BAD_OUTPUT, "the protocol does not know"),
        ("huge", ErrorCode.LIMIT_EXCEEDED, "response_bytes"),
        ("endless", ErrorCode.LIMIT_EXCEEDED, "response_bytes"),
        ("slow", ErrorCode.LIMIT_EXCEEDED, "1 s"),
        ("drip", ErrorCode.LIMIT_EXCEEDED, "1 s"),
        ("short", ErrorCode.BAD_OUTPUT, "19 values for the shape [20]"),
        ("shape", ErrorCode.BAD_OUTPUT, "the shape [-1, -20]"),
        ("strings", ErrorCode.BAD_OUTPUT, "no numbers"),
        ("no_outputs", ErrorCode.BAD_OUTPUT, "the outputs none"),
    ],
)
def test_answers_that_cannot_be_used_are_errors(server, name, code, said):
    started = time.monotonic()
    with (
        _open(server.host, name, {"response_bytes": 2**20, "call_seconds": 1.0}) as model,
        raises(code, said),
    ):
        model(X)
    assert time.monotonic() - started < 30


def test_a_connection_that_the_server_has_closed_is_made_again(server):
    with _open(server.host, "closes") as model:
        for _ in range(3):
            np.testing.assert_allclose(model(X), X.sum(1), rtol=1e-14)


def test_a_server_that_goes_away_is_an_error_and_nobody_there_is_one_too():
    with InferenceServer() as own:
        with _open(own.host, "sum") as model:
            own.stop()
            with raises(ErrorCode.MODEL_FAILED, "cannot be asked"):
                model(X)
        with raises(ErrorCode.MODEL_FAILED, "cannot be asked"):
            _open(own.host, "sum")


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("http://elsewhere/v2/models/m", "elsewhere:80 is not in"),
        ("http://host:81/v2/models/m", "host:81 is not in"),
        ("https://host/v2/models/m", "host:443 is not in"),
        ("http://user:password@host:80/v2/models/m", "user or password"),
        ("http://host:99999/v2/models/m", "ort"),
        ("http:///v2/models/m", "is not in"),
    ],
)
def test_only_servers_that_the_operator_names_are_asked(uri, said):
    card = ModelCard(model="m", artefact=Artefact(uri=uri))
    with raises(ErrorCode.ARTEFACT_REFUSED, said):
        open_model(card, LoadPolicy(server_hosts=("host:80", "other")))


def test_an_address_that_names_no_model_is_refused(server):
    card = ModelCard(model="m", artefact=Artefact(uri=f"http://{server.host}/admin?x=1"))
    with raises(ErrorCode.MODEL_NOT_LOADABLE, "/v2/models/NAME"):
        open_model(card, LoadPolicy(server_hosts=(server.host,)))


_MLSERVER = os.environ.get("MLSERVER") or shutil.which("mlserver")
_MLSERVER_MODEL = """
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse

class Model(MLModel):
    async def load(self):
        return True

    async def predict(self, request):
        X = NumpyCodec.decode_input(request.inputs[0])
        return InferenceResponse(
            model_name=self.name,
            outputs=[
                NumpyCodec.encode_output("plain", X @ [1.0, -2.0, 0.5]),
                NumpyCodec.encode_output("both", (X @ [[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]])),
            ],
        )
"""


@pytest.mark.skipif(
    _MLSERVER is None,
    reason="needs MLServer: python3 -m venv DIR && DIR/bin/pip install mlserver==1.7.1, and "
    "MLSERVER=DIR/bin/mlserver",
)
def test_mlserver(tmp_path):
    """A server of somebody else's: MLServer, in an environment of its own."""
    with socket.socket() as free, socket.socket() as free_grpc, socket.socket() as free_metrics:
        ports = []
        for sock in (free, free_grpc, free_metrics):
            sock.bind(("127.0.0.1", 0))
            ports.append(sock.getsockname()[1])
    (tmp_path / "model.py").write_text(_MLSERVER_MODEL)
    (tmp_path / "settings.json").write_text(
        f'{{"host": "127.0.0.1", "http_port": {ports[0]}, "grpc_port": {ports[1]}, '
        f'"metrics_port": {ports[2]}, "parallel_workers": 0, "debug": false}}'
    )
    (tmp_path / "model-settings.json").write_text(
        '{"name": "linear", "implementation": "model.Model", '
        '"inputs": [{"name": "x", "datatype": "FP64", "shape": [-1, 3]}], '
        '"outputs": [{"name": "plain", "datatype": "FP64", "shape": [-1]},'
        ' {"name": "both", "datatype": "FP64", "shape": [-1, 2]}]}'
    )
    host = f"127.0.0.1:{ports[0]}"
    with open(tmp_path / "log", "wb") as log:
        running = subprocess.Popen([_MLSERVER, "start", "."], cwd=tmp_path, stdout=log, stderr=log)

    def ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://{host}/v2/models/linear/ready", timeout=1) as said:
                return said.status == 200
        except OSError:
            return False

    try:
        wait_until(ready, 60.0)
        with _open(host, "linear", head="plain") as model:
            np.testing.assert_allclose(model(X), X @ [1.0, -2.0, 0.5], rtol=1e-12)
            assert model.precision == "float64"
        with _open(host, "linear", head="both") as model:
            W = [[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]]
            np.testing.assert_allclose(model(X), X @ W, rtol=1e-12)
    finally:
        running.terminate()
        running.wait(20)
