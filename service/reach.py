"""Whether a broker answers, told by one small request over a plain socket.

A Kafka client that cannot connect retries, logs and leaves tasks behind; asking first keeps an
unreachable broker at one line.
"""

from __future__ import annotations

import socket
import struct

from attributary.schemas.connection import Connection
from attributary.schemas.errors import BrokerError, ConfigurationError

_API_METADATA = 3
_CORRELATION = 0x41545452
_NO_TOPICS = b"\x00\x00\x00\x00"
_LARGEST_ANSWER = 2**24


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    """Return the (host, port) pairs of ``host:port,host:port``; ConfigurationError otherwise."""
    found = []
    for part in bootstrap.split(","):
        host, colon, port = part.strip().rpartition(":")
        if not (host and colon and port.isdecimal() and 0 < int(port) < 2**16):
            raise ConfigurationError(
                f"broker address {part.strip()!r}: expected host:port, such as localhost:9092"
            )
        found.append((host.strip("[]"), int(port)))
    return found


def answers(host: str, port: int, seconds: float) -> str | None:
    """Return None when a Kafka broker answers a metadata request there, else what went wrong."""
    client = b"attributary"
    request = struct.pack(
        f">hhih{len(client)}s", _API_METADATA, 1, _CORRELATION, len(client), client
    )
    request += _NO_TOPICS
    try:
        with socket.create_connection((host, port), timeout=seconds) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            head = _receive(connection, 8)
    except TimeoutError:
        return f"no answer within {seconds:g} s"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    length, correlation = struct.unpack(">ii", head) if len(head) == 8 else (0, 0)
    if correlation != _CORRELATION or not 4 <= length <= _LARGEST_ANSWER:
        return "what listens there is not a Kafka broker"
    return None


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (part := connection.recv(count - len(data))):
        data += part
    return data


def require_broker(connection: Connection, seconds: float = 3.0) -> None:
    """Raise BrokerError, one line with the fix, unless one of the addresses answers. Blocking."""
    failures = []
    for host, port in addresses(connection.bootstrap):
        failure = answers(host, port, seconds)
        if failure is None:
            return
        failures.append(f"{host}:{port} ({failure})")
    raise BrokerError(
        f"no broker at {', '.join(failures)}: start one with `attributary up`, "
        "or name yours with `attributary --bootstrap HOST:PORT`"
    )
