"""The broker's address as people give it, checked before anything is started.

A connection's own module takes pydantic. It is loaded for one that is given as such, and where it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attributary.schemas.errors import ConfigurationError

if TYPE_CHECKING:
    from attributary.schemas.connection import Connection


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


def check_broker(bootstrap: str | Connection) -> None:
    """Raise ConfigurationError where this is no broker's ``host:port[,host:port]`` and no connection to one,
    or where a file that it names cannot be used."""
    if isinstance(bootstrap, str) and bootstrap:
        addresses(bootstrap)  # all that can be wrong with a connection that is given so
    else:
        connection_of(bootstrap)


def connection_of(bootstrap: str | Connection) -> Connection:
    """Return the connection; ConfigurationError as ``check_broker``."""
    from attributary.schemas.connection import Connection

    if isinstance(bootstrap, Connection):
        found = bootstrap
    elif isinstance(bootstrap, str) and bootstrap:
        found = Connection(bootstrap=bootstrap)
    else:
        raise ConfigurationError(f"expected the broker's address as host:port, got {bootstrap!r}")
    addresses(found.bootstrap)
    found.client_arguments()
    return found
