"""What a process shows over HTTP: ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz``."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Gauge, make_wsgi_app

from attributary.schemas.errors import ConfigurationError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

#: An event loop that has not come round for so long hangs.
STALLED_SECONDS = 60.0

_REQUESTS_AT_ONCE = 8
_REQUEST_SECONDS = 5.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class ProcessMetrics:
    """What every process says of itself."""

    heartbeat: Gauge

    @classmethod
    def build(cls, registry: CollectorRegistry) -> ProcessMetrics:
        """Register the metrics."""
        return cls(
            heartbeat=Gauge(
                "attributary_heartbeat_timestamp_seconds",
                "When the process's event loop last came round, seconds since 1970.",
                registry=registry,
            )
        )


class Exposition:
    """Serves one process's registry; ``/readyz`` answers 503 until ``ready`` was called, and ``/healthz``
    where ``beat`` was called once and then not for ``STALLED_SECONDS``.

    ``port`` 0 takes a free one. ConfigurationError: the address cannot be served.
    """

    def __init__(self, registry: CollectorRegistry, host: str = "127.0.0.1", port: int = 0) -> None:
        self._metrics: Callable[..., Iterable[bytes]] = make_wsgi_app(registry)
        self._ready = threading.Event()
        self._beats = 0.0
        self._process = ProcessMetrics.build(registry)
        server_class = _ServerIPv6 if ":" in host else _Server
        try:
            self._server = make_server(host, port, self._answer, server_class, _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigurationError(
                f"cannot serve metrics on {host}:{port} ({reason.lower()}): choose another "
                "--metrics-port (0 takes a free one) or --metrics-host"
            ) from None
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(_POLL_SECONDS,),
            name="exposition",
            daemon=True,
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is served."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """The address of the metrics."""
        host = str(self._server.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/metrics"

    def ready(self) -> None:
        """Say from now on that the process is ready."""
        self._ready.set()

    def beat(self) -> None:
        """Say that the event loop has come round."""
        self._beats = time.monotonic()
        self._process.heartbeat.set_to_current_time()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Exposition:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _answer(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            return self._metrics(environ, start)
        if path == "/healthz":
            silent = time.monotonic() - self._beats if self._beats else 0.0
            stalled = silent > STALLED_SECONDS
            status = HTTPStatus.SERVICE_UNAVAILABLE if stalled else HTTPStatus.OK
            text = f"stalled for {silent:.0f} s" if stalled else "ok"
        elif path == "/readyz":
            ready = self._ready.is_set()
            status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
            text = "ready" if ready else "starting"
        else:
            status, text = HTTPStatus.NOT_FOUND, "there are /metrics, /healthz and /readyz"
        start(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
        return [text.encode() + b"\n"]


class _Handler(WSGIRequestHandler):
    timeout = _REQUEST_SECONDS

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """A scrape every few seconds is no news."""


class _Server(ThreadingMixIn, WSGIServer):
    """One thread a request, and a bounded number of them: more are hung up on."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, *arguments: Any) -> None:
        self._slots = threading.BoundedSemaphore(_REQUESTS_AT_ONCE)
        super().__init__(*arguments)

    def server_bind(self) -> None:
        """Bind without the base's look-up of the host's name, which can take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name = str(self.server_address[0])
        self.server_port = int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no error of ours."""


class _ServerIPv6(_Server):
    address_family = socket.AF_INET6
