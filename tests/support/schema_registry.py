"""A schema registry in this process, with as much of Confluent's interface as readers use."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


class Registry:
    """Answers by path, such as ``/schemas/ids/1``; ``asked`` are the paths in order. ``failures``: so many
    questions get HTTP 500 first."""

    def __init__(self, answers: dict[str, Any], *, failures: int = 0, user: str = "") -> None:
        self.asked: list[str] = []
        registry = self
        left = [failures]

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                found = answers.get(self.path)
                status = 200 if found is not None else 404
                if left[0]:
                    left[0] -= 1
                    status = 500
                if user and self.headers.get("Authorization") != user:
                    status = 401
                body = json.dumps(found).encode() if status == 200 else b"{}"
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """A question is no news."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Registry:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
