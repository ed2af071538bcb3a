"""Is there a broker, and what runs here?"""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from attributary.schemas.connection import Connection
from attributary.service.address import addresses
from attributary.service.doctor.finding import Finding, fail, ok, warn
from attributary.service.reach import answers

_SECONDS = 3.0
_PACKAGES = ("attributary", "aiokafka", "faust-streaming", "numpy", "pydantic")


def versions() -> list[Finding]:
    """Return what is installed here."""
    found = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return [ok("versions", f"{', '.join(found)}, Python {platform.python_version()}")]


def check_broker(connection: Connection) -> list[Finding]:
    """Ask every address of the bootstrap list; blocking."""
    answered: list[str] = []
    silent: list[str] = []
    for host, port in addresses(connection.bootstrap):
        failure = answers(host, port, _SECONDS, connection)
        address = f"{host}:{port}"
        if failure is None:
            answered.append(address)
        else:
            silent.append(f"{address} ({failure})")
    if not answered:
        return [
            fail(
                "broker",
                f"none answers: {', '.join(silent)}",
                "start it (`attributary up` on one machine), or name yours with "
                "`attributary --bootstrap HOST:PORT`",
            )
        ]
    how = connection.security_protocol
    found = [ok("broker", f"{', '.join(answered)} answers, {how}")]
    if silent:
        found.append(
            warn(
                "broker",
                f"of the addresses given, some do not answer: {', '.join(silent)}",
                "start these brokers, or take them out of the bootstrap list",
            )
        )
    return found
