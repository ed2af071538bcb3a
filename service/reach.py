"""Whether a broker answers and lets this client in, told by a few small requests over a socket of its own.

A Kafka client that cannot connect retries, logs and leaves tasks behind; asking first keeps a broker
that is away, or that refuses, at one line which says why.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator

from aiokafka.errors import AuthenticationFailedError

from attributary.schemas.connection import Connection
from attributary.schemas.errors import BrokerError
from attributary.service.address import addresses
from attributary.service.handshake import authenticate
from attributary.service.printable import printable

_API_METADATA, _API_VERSIONS = 3, 18
_CORRELATION = 0x41545452
_NO_TOPICS = b"\x00\x00\x00\x00"
_LARGEST_ANSWER = 2**24
_CLIENT = b"attributary"

_SILENT = "no answer within"
_NOT_KAFKA = "what listens there is not a Kafka broker"
_SPEAKS_TLS = "it speaks TLS, and this connection does not: set connection.tls.enabled = true"
_SPEAKS_PLAINTEXT = (
    "it does not speak TLS, and connection.tls is on: take the broker's TLS port, or turn it off"
)
_WANTS_SASL = "it closes the connection of a client that does not authenticate: set connection.sasl"
_WANTS_CERTIFICATE = (
    "it asks for a client certificate: set connection.tls.cert_file and connection.tls.key_file"
)


class _NotKafkaError(Exception):
    """The answer is none of a Kafka broker's."""


def answers(
    host: str, port: int, seconds: float, connection: Connection | None = None
) -> str | None:
    """Return None when a Kafka broker there serves this client, else what went wrong.

    ``connection``: with its TLS and SASL; None: with neither.
    """
    connection = connection or Connection()
    tls = connection.tls.context() if connection.tls.enabled else None
    try:
        with _connected(host, port, seconds, tls) as link:
            if connection.sasl.mechanism is not None:
                failure = authenticate(link.ask, connection.sasl)
                if failure is not None:
                    return printable(failure, 500)
            link.ask(_API_METADATA, 1, _NO_TOPICS)
    except AuthenticationFailedError as error:
        return str(error.args[0])
    except ssl.SSLCertVerificationError as error:
        return _untrusted(host, error)
    except TimeoutError:
        return f"{_SILENT} {seconds:g} s"
    except ConnectionRefusedError as error:
        return (error.strerror or str(error)).lower()
    except (OSError, EOFError, _NotKafkaError, struct.error) as error:
        return _diagnosis(host, port, seconds, connection, error)
    return None


def require_broker(connection: Connection, seconds: float = 3.0) -> None:
    """Raise BrokerError, one line with the fix, unless one of the addresses answers. Blocking."""
    failures = _failures(connection, seconds)
    if not failures:
        return
    shown = ", ".join(f"{address} ({failure})" for address, failure in failures)
    if any(is_refusal(failure) for _, failure in failures):
        raise BrokerError(f"cannot connect to the broker at {shown}")
    start = "" if any(is_taken(f) for _, f in failures) else "start one with `attributary up`, or "
    raise BrokerError(
        f"no broker at {shown}: {start}name yours with `attributary --bootstrap HOST:PORT`"
    )


def refusal(connection: Connection, seconds: float) -> str | None:
    """Return why a broker that is there does not let this client in, where that is so. Blocking."""
    return next((why for _, why in _failures(connection, seconds) if is_refusal(why)), None)


def _failures(connection: Connection, seconds: float) -> list[tuple[str, str]]:
    """Return (address, what went wrong) of every address; nothing where one of them answers."""
    failures = []
    for host, port in addresses(connection.bootstrap):
        failure = answers(host, port, seconds, connection)
        if failure is None:
            return []
        failures.append((f"{host}:{port}", failure))
    return failures


def is_refusal(failure: str) -> bool:
    """Whether it tells of a broker, rather than that there is none."""
    return failure.startswith(("it ", "its ", "the token", "connection."))


def is_foreign(failure: str) -> bool:
    """Whether it tells of another program at the address."""
    return failure == _NOT_KAFKA


def is_taken(failure: str) -> bool:
    """Whether something may have the address already: another program, or one that keeps silent."""
    return is_foreign(failure) or failure.startswith(_SILENT)


class _Link:
    """Kafka's framing on a connected socket."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def ask(self, api: int, version: int, body: bytes) -> bytes:
        """Send a request and return the answer's body; EOFError where the connection ends."""
        head = struct.pack(
            f">hhih{len(_CLIENT)}s", api, version, _CORRELATION, len(_CLIENT), _CLIENT
        )
        request = head + body
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        length, correlation = struct.unpack(">ii", self._receive(8))
        if correlation != _CORRELATION or not 4 <= length <= _LARGEST_ANSWER:
            raise _NotKafkaError
        return self._receive(length - 4)

    def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self._socket.recv(min(count - len(data), 2**16))
            if not part:
                raise EOFError
            data += part
        return data


@contextlib.contextmanager
def _connected(host: str, port: int, seconds: float, tls: ssl.SSLContext | None) -> Iterator[_Link]:
    with socket.create_connection((host, port), timeout=seconds) as plain:
        if tls is None:
            yield _Link(plain)
        else:
            with tls.wrap_socket(plain, server_hostname=host) as wrapped:
                yield _Link(wrapped)


def _untrusted(host: str, error: ssl.SSLCertVerificationError) -> str:
    if "mismatch" in error.verify_message.lower() or "not valid for" in error.verify_message:
        return (
            f"its certificate is not for {host!r}: connect to a name that it is for, "
            "or set connection.tls.check_hostname = false"
        )
    return (
        f"its certificate is not trusted ({error.verify_message}): "
        "name the CA that signed it in connection.tls.ca_file"
    )


def _diagnosis(
    host: str, port: int, seconds: float, connection: Connection, error: Exception
) -> str:
    """Say why a connection ended, by what the listener answers to the other ways of asking."""
    if connection.tls.enabled:
        if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
            return _refused(connection, (error.reason or "").lower().rpartition("alert_")[2])
        if _is_kafka(host, port, seconds, None):
            return _SPEAKS_PLAINTEXT
    elif _speaks_tls(host, port, seconds):
        return _SPEAKS_TLS
    if isinstance(error, _NotKafkaError):
        return _NOT_KAFKA
    tls = connection.tls.context() if connection.tls.enabled else None
    if not _is_kafka(host, port, seconds, tls):
        if isinstance(error, OSError):
            return (error.strerror or str(error)).lower()
        return _NOT_KAFKA
    if connection.sasl.mechanism is None:
        return _WANTS_SASL
    return "it closes the connection after the authentication: is this a SASL listener?"


def _is_kafka(host: str, port: int, seconds: float, tls: ssl.SSLContext | None) -> bool:
    """Whether the request that any Kafka listener answers, authenticated or not, is answered."""
    with contextlib.suppress(OSError, EOFError, _NotKafkaError):
        with _connected(host, port, seconds, tls) as link:
            link.ask(_API_VERSIONS, 0, b"")
        return True
    return False


def _speaks_tls(host: str, port: int, seconds: float) -> bool:
    """Whether a TLS handshake gets anywhere; nothing is sent over it, so nobody is trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with _connected(host, port, seconds, context):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def _refused(connection: Connection, alert: str) -> str:
    words = alert.replace("_", " ")
    if "certificate" not in words and "ca" not in words.split():
        return f"its side of the TLS handshake fails: {words}"
    if connection.tls.cert_file is None:
        return _WANTS_CERTIFICATE
    return f"it refuses the client certificate {connection.tls.cert_file}: {words}"
