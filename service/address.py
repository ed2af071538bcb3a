"""The broker's address as people give it, checked before anything is started."""

from __future__ import annotations

from attributary.schemas.connection import Connection
from attributary.schemas.errors import ConfigurationError
from attributary.service.reach import addresses


def connection_of(bootstrap: str | Connection) -> Connection:
    """Return the connection to ``host:port[,host:port]``; ConfigurationError where it is none, or where
    a file that it names cannot be used."""
    if isinstance(bootstrap, Connection):
        found = bootstrap
    elif isinstance(bootstrap, str) and bootstrap:
        found = Connection(bootstrap=bootstrap)
    else:
        raise ConfigurationError(f"expected the broker's address as host:port, got {bootstrap!r}")
    addresses(found.bootstrap)
    found.client_arguments()
    return found
