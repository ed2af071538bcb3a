"""A model server that speaks the Open Inference Protocol, and does what a test tells it to."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

Row = list[float]


class ModelServer:
    """Serves any model name on the loopback address. ``answer`` maps rows to the output's data, or raises
    ConnectionAbortedError for an answer of HTTP 500."""

    def __init__(self, answer: Callable[[list[Row]], list[Any]], width: int = 2) -> None:
        self.answer = answer
        self.asked = threading.Event()
        self.let_go = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                tensor = {"name": "x", "datatype": "FP64", "shape": [-1, width]}
                self._say({"inputs": [tensor], "outputs": [{**tensor, "name": "y"}]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                given = body["inputs"][0]
                rows, width = given["shape"]
                data = given["data"]
                server.asked.set()
                try:
                    found = server.answer([data[i * width : (i + 1) * width] for i in range(rows)])
                except ConnectionAbortedError:
                    self.send_error(500)
                    return
                output = {"name": "y", "datatype": "FP64", "shape": [len(found)], "data": found}
                self._say({"outputs": [output]})

            def _say(self, content: dict[str, Any]) -> None:
                data = json.dumps(content).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                with contextlib.suppress(OSError):  # whoever asked was killed
                    self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.let_go.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
