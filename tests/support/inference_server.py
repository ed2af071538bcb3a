"""A model server of its own process that speaks the Open Inference Protocol over HTTP, well and badly.

Its models add columns up; their names say what else they do. Run it with no argument: it prints its port.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

_MODELS = {
    # name: datatype, features, outputs {name: shape after the batch}
    "sum": ("FP64", 3, {"y": []}),
    "sum32": ("FP32", 3, {"y": [1]}),
    "nested": ("FP64", -1, {"y": [2]}),
    "two": ("FP64", 3, {"y": [], "twice": []}),
    "text": ("BYTES", 3, {"y": []}),
}
_BROKEN = ("closes", "error", "junk", "huge", "endless", "slow", "drip", "nan", "short", "shape",
           "strings", "no_outputs", "redirect", "truncated", "drops")  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        name, action = self._parts()
        if name == "junk_metadata" and not action:
            self._send(200, b"<html>")
        elif name not in (*_MODELS, *_BROKEN, "junk_metadata"):
            self._send(503 if name == "loading" else 404, b'{"error": "not here"}')
        elif action == "ready":
            self._send(200, b"{}")
        else:
            datatype, features, outputs = _MODELS.get(name, _MODELS["sum"])
            described = {
                "name": name,
                "platform": "test",
                "inputs": [{"name": "x", "datatype": datatype, "shape": [-1, features]}],
                "outputs": [
                    {"name": key, "datatype": datatype, "shape": [-1, *shape]}
                    for key, shape in outputs.items()
                ],
            }
            self._send(200, json.dumps(described).encode())

    def do_POST(self) -> None:
        name, action = self._parts()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert action == "infer"
        (given,) = body["inputs"]
        assert given["name"] == "x"
        rows, columns = given["shape"]
        assert len(given["data"]) == rows * columns
        sums = [sum(given["data"][row * columns : (row + 1) * columns]) for row in range(rows)]
        if name in _BROKEN:
            getattr(self, f"_{name}")(sums)
            return
        answers = {
            "sum": [("y", [rows], sums)],
            "sum32": [("y", [rows, 1], sums)],
            "nested": [("y", [rows, 2], [[s, -s] for s in sums])],
            "two": [("y", [rows], sums), ("twice", [rows], [2 * s for s in sums])],
        }[name]
        self._answer(answers)

    def _answer(self, outputs: list[tuple[str, list[int], list[object]]]) -> None:
        answer = {
            "model_name": "m",
            "outputs": [
                {"name": name, "datatype": "FP64", "shape": shape, "data": data}
                for name, shape, data in outputs
            ],
        }
        self._send(200, json.dumps(answer).encode())

    def _parts(self) -> tuple[str, str]:
        name, _, action = self.path.removeprefix("/v2/models/").partition("/")
        return name, action

    def _send(self, status: int, body: bytes, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def _closes(self, sums: list[float]) -> None:
        """Answer well, then close the connection without a word about it."""
        self._answer([("y", [len(sums)], sums)])
        self.close_connection = True

    def _drops(self, _sums: list[float]) -> None:
        self.close_connection = True

    def _error(self, _sums: list[float]) -> None:
        self._send(500, b'{"error": "out of \x1b[31mmemory"}')

    def _junk(self, _sums: list[float]) -> None:
        self._send(200, b"\xff\xfe<html>")

    def _huge(self, _sums: list[float]) -> None:
        self._send(200, b"[" * (3 * 2**20))

    def _endless(self, _sums: list[float]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while True:
            self.wfile.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")

    def _slow(self, _sums: list[float]) -> None:
        time.sleep(60)

    def _drip(self, _sums: list[float]) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        for _ in range(1000):
            self.wfile.write(b" ")
            self.wfile.flush()
            time.sleep(0.1)

    def _nan(self, sums: list[float]) -> None:
        self._answer([("y", [len(sums)], [float("nan")] * len(sums))])

    def _short(self, sums: list[float]) -> None:
        self._answer([("y", [len(sums)], sums[1:])])

    def _shape(self, sums: list[float]) -> None:
        self._answer([("y", [-1, -len(sums)], sums)])

    def _strings(self, sums: list[float]) -> None:
        self._answer([("y", [len(sums)], ["one"] * len(sums))])

    def _no_outputs(self, _sums: list[float]) -> None:
        self._answer([])

    def _redirect(self, _sums: list[float]) -> None:
        self.send_response(302)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _truncated(self, _sums: list[float]) -> None:
        self._send(200, b'{"outputs": [', length=500)
        self.close_connection = True


class InferenceServer:
    """The server in its own process; a context manager."""

    def __enter__(self) -> InferenceServer:
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        self.host = f"127.0.0.1:{int(self._process.stdout.readline())}"
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def stop(self) -> None:
        """Let it end, as a server that crashes."""
        self._process.kill()
        self._process.wait()


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
