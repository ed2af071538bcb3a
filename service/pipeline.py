"""The whole pipeline on one machine: topics, stream workers, and an embedded broker or another."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from attributary.schemas.errors import AttributaryError, BrokerError
from attributary.service.accounting import Accounting, AccountingReader
from attributary.service.embedded import EmbeddedBroker
from attributary.service.settings import Settings
from attributary.service.supervisor import Supervisor
from attributary.service.topics import create_topics
from attributary.service.words import left_out

_READY_SECONDS = 60.0
# A stop takes at most ten seconds: the drain, the workers, the account, and the broker's own second.
_DRAIN_SECONDS = 3.0
_WORKERS_STOPPED_SECONDS = 7.5
_ACCOUNT_SECONDS = 1.0


class Pipeline:
    """Runs the workers against the broker of ``settings`` until SIGINT or SIGTERM.

    ``broker``: the embedded one, where it was started for this pipeline. Its records end with it, so a
    stop first lets the workers count what is published. ``say`` gets (who, what) for a person.
    """

    def __init__(
        self,
        settings: Settings,
        config: Path | None,
        workers: int,
        broker: EmbeddedBroker | None,
        say: Callable[[str, str], None],
    ) -> None:
        self._settings = settings
        self._config = config
        self._workers = workers
        self._broker = broker
        self._say = say
        self._supervisor = Supervisor(self._output)

    def run(self) -> None:
        """Start, wait, stop. BrokerError where a part does not start, or ends by itself."""
        settings = self._settings
        bootstrap = settings.connection.bootstrap
        kept = "in memory: its records end with it" if self._broker else "not stopped at the end"
        self._say("broker", f"{bootstrap} ({kept})")
        report = asyncio.run(create_topics(settings.connection, settings.topics, settings.layout))
        self._say("topics", f"{len(report.created)} created, {len(report.existing)} existed")
        for difference in report.differences:
            self._say("topics", difference)
        with self._supervisor as supervisor:
            for index in range(self._workers):
                supervisor.start(f"stream-{index + 1}", self._arguments("stream", index))
            if settings.models.roots or settings.models.server_hosts:
                supervisor.start("requests", self._arguments("ondemand", self._workers))
            if supervisor.wait_ready(_READY_SECONDS):
                self._say("ready", "publish and tail from another shell; Ctrl-C stops everything")
                while not supervisor.stopping.wait(0.2) and self._failure() is None:
                    pass
            failure = None if supervisor.stopping.is_set() else self._failure()
            if failure is None and not supervisor.stopping.is_set():
                failure = f"the workers are not ready after {_READY_SECONDS:g} s"
            self._stop(supervisor)
        if failure is not None:
            raise BrokerError(failure)

    def _arguments(self, command: str, index: int) -> list[str]:
        settings = self._settings
        port = settings.metrics_port + index if settings.metrics_port else 0
        roots = settings.models.roots if command == "ondemand" else ()
        config = [] if self._config is None else ["--config", str(self._config)]
        return [
            "attributary.service", *config,
            "--bootstrap", settings.connection.bootstrap,
            "--prefix", settings.topic_prefix,
            command, "--metrics-host", settings.metrics_host, "--metrics-port", str(port),
            *(part for root in roots for part in ("--model-root", str(root))),
        ]  # fmt: skip

    def _output(self, name: str, line: str) -> None:
        try:
            self._say(name, line)
        except OSError:  # nobody reads the output any more
            self._supervisor.stopping.set()

    def _failure(self) -> str | None:
        if self._broker is not None and (code := self._broker.poll()) is not None:
            return f"the embedded broker ended by itself (exit code {code})"
        if (child := self._supervisor.dead()) is not None:
            code = child.process.returncode
            return f"{child.name} ended by itself (exit code {code}); its last lines are above"
        return None

    def _stop(self, supervisor: Supervisor) -> None:
        deadline = time.monotonic() + _WORKERS_STOPPED_SECONDS
        drains = self._broker is not None and self._failure() is None
        if drains:
            self._say("stopping", f"counting what is published, for at most {_DRAIN_SECONDS:g} s")
            asyncio.run(self._accounting(_DRAIN_SECONDS, lambda rows: rows.settled))
        for name in supervisor.stop(deadline - time.monotonic()):
            self._say("stopping", f"{name} did not stop in time and was killed")
        if drains and not supervisor.hurried.is_set():
            rows = asyncio.run(self._accounting(_ACCOUNT_SECONDS, lambda rows: True))
            self._say("rows", _account(rows))
        self._say("stopped", "")

    async def _accounting(
        self, seconds: float, enough: Callable[[Accounting], bool]
    ) -> Accounting | None:
        """Return the accounting once it is ``enough``, or the last one in ``seconds``, if any."""
        last: Accounting | None = None

        async def follow() -> None:
            nonlocal last
            connection, topics = self._settings.connection, self._settings.topics
            async with AccountingReader(connection, topics) as reader:
                while not self._supervisor.hurried.is_set():
                    last = await reader.refresh()
                    if enough(last):
                        return
                    await asyncio.sleep(0.1)

        with contextlib.suppress(asyncio.TimeoutError, AttributaryError):
            await asyncio.wait_for(follow(), seconds)
        return last


def _account(rows: Accounting | None) -> str:
    if rows is None:
        return "the accounting could not be read"
    text = f"{rows.accepted:,} accepted{left_out(rows.thinned)}, {rows.rejected:,} rejected"
    if rows.settled:
        return f"{text}, all that was published"
    return f"{text}, {rows.waiting:,} waiting, {rows.lag:,} messages not read"
