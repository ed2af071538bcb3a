"""Is there a broker, and what runs here?"""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from attributary.schemas.connection import Connection
from attributary.service.address import addresses
from attributary.service.doctor.finding import Finding, fail, ok, warn
from attributary.service.reach import answers, is_foreign, is_refusal, is_taken

_SECONDS = 3.0
_THIS_MACHINE = {"localhost", "127.0.0.1", "::1"}
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
    failures: list[str] = []
    fixes: dict[str, None] = {}
    for host, port in addresses(connection.bootstrap):
        failure = answers(host, port, _SECONDS, connection)
        address = f"{host}:{port}"
        if failure is None:
            answered.append(address)
        else:
            failures.append(f"{address} ({failure})")
            fixes[_fix(host, port, failure)] = None
    todo = "; ".join(fixes)
    if not answered:
        name = "name yours with `attributary --bootstrap HOST:PORT`"
        return [fail("broker", f"none answers: {', '.join(failures)}", f"{todo}; or {name}")]
    how = connection.security_protocol
    found = [ok("broker", f"{', '.join(answered)} answers, {how}")]
    if failures:
        found.append(
            warn(
                "broker",
                f"of the addresses given, some do not answer: {', '.join(failures)}",
                f"{todo}; or take them out of the bootstrap list",
            )
        )
    return found


def _fix(host: str, port: int, failure: str) -> str:
    if is_refusal(failure):
        return "there is a broker: correct the settings of the connection"
    if is_foreign(failure):
        return f"find out which port the broker has: {port} is another program's"
    if is_taken(failure):
        return (
            f"something has port {port} and keeps silent, or a firewall drops what is sent: see what runs "
            "there, and restart a broker that hangs"
        )
    if host in _THIS_MACHINE:
        return f"start it (`attributary up --port {port}` for one in memory)"
    return f"start it, or correct its address: {host}"
