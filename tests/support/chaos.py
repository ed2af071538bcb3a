"""The fault run: rows at full speed, workers and broker that die, and books that close exactly.

``python tests/support/chaos.py --seed 1 2 3 --broker kafka`` (or ``make chaos``) prints what happens, a
verdict for each seed, and exits with 1 where one fails.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from broker_embedded import EmbeddedTestBroker
from broker_kafka import KafkaBroker
from chaos_check import Finding, Watch, closed, findings, lifetimes, published, records
from chaos_faults import ROLES, SESSION_SECONDS, Fault, Slot, plan, write_outputs
from chaos_rows import MODEL, Workload, card, read_log
from command import Running

from attributary import Publisher
from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics
from attributary.service.topics import create_topics

_SETTLE_SECONDS = 180.0
# How long after a broker's return a worker may still end because of its absence.
_GRACE_SECONDS = 15.0
# A worker that comes back after this has something new to say only if it counts anew.
_QUIET_SECONDS = 4.0


@dataclass(frozen=True)
class Options:
    """How large the run is; ``gap``: least and most seconds between the beginnings of two faults."""

    seed: int
    rows: int = 200_000
    faults: int = 24
    gap: tuple[float, float] = (1.0, 4.0)
    block_offsets: int = 2048
    logs: Path | None = None


@dataclass
class Chaos:
    """One run on a running broker, with topics of its own. ``say`` takes the lines of the run's log."""

    broker: EmbeddedTestBroker | KafkaBroker
    options: Options
    say: Callable[[str], None] = print
    slots: dict[str, Slot] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _broker_back: float = -1e9
    _trouble: list[str] = field(default_factory=list)

    def run(self) -> list[Finding]:
        """Return what holds and what does not; all workers are gone afterwards."""
        options = self.options
        connection = Connection(bootstrap=self.broker.bootstrap)
        topics = Topics.with_prefix(f"chaos{uuid.uuid4().hex[:8]}.")
        workload = Workload.draw(options.rows, options.seed)
        faults = plan(
            options.faults, options.seed, broker=self.broker.kind == "kafka", gap=options.gap
        )
        asyncio.run(create_topics(connection, topics))
        asyncio.run(_register(connection, topics))
        self._note(
            f"seed {options.seed}: {workload.total:,} rows ({workload.rejected} malformed), "
            f"{len(faults)} faults over {faults[-1].at:.0f} s, on {self.broker.kind}"
        )
        watch = Watch(connection, topics)
        publisher = Publisher(connection, model=MODEL, topic=topics.rows, max_rows=20_000)
        try:
            self._start(connection, topics)
            self._storm(workload, faults, publisher, watch)
            return self._settle(workload, publisher, watch, connection, topics)
        finally:
            watch.close()
            publisher.close(5.0)
            for slot in self.slots.values():
                slot.close()
            if options.logs is not None:
                write_outputs(self.slots, options.logs / f"seed-{options.seed}")

    def _start(self, connection: Connection, topics: Topics) -> None:
        variables = {
            "ATTRIBUTARY_CONNECTION__BOOTSTRAP": connection.bootstrap,
            "ATTRIBUTARY_TOPIC_PREFIX": topics.rows.removesuffix("rows"),
            "ATTRIBUTARY_INGEST__SESSION_SECONDS": str(SESSION_SECONDS),
            "ATTRIBUTARY_MERGE__SESSION_SECONDS": str(SESSION_SECONDS),
            "ATTRIBUTARY_INGEST__BLOCK_OFFSETS": str(self.options.block_offsets),
        }

        def starter(role: str) -> Callable[[], Running]:
            return lambda: Running("stream", "--role", role, **variables)

        for role in ROLES:
            for number in range(3):  # the third one for a while, when a fault scales out
                slot = Slot(role, number, starter(role), self._note)
                self.slots[slot.name] = slot
                if number < 2:
                    slot.up()
        # The storm begins with workers that have work to do.
        while not all(slot.ready for slot in self.slots.values() if slot.number < 2):
            self._tend()
            time.sleep(0.1)

    def _storm(
        self, workload: Workload, faults: list[Fault], publisher: Publisher, watch: Watch
    ) -> None:
        """Publish a share of the rows with each fault, at full speed, until all is published and over."""
        began = time.monotonic()
        threads = [
            threading.Thread(target=self._guard, args=(work, *arguments), daemon=True)
            for work, arguments in [
                *((self._suffer, (slot, faults, began)) for slot in self.slots.values()),
                (self._publish, (workload, faults, publisher, began)),
            ]
        ]
        for thread in threads:
            thread.start()
        # In this thread, because a broker dies with the thread that started it.
        pending = [fault for fault in faults if fault.role == "broker"]
        told = 0.0
        while any(thread.is_alive() for thread in threads) or pending:
            self._tend()
            if pending and time.monotonic() - began >= pending[0].at:
                self._restart_broker(pending.pop(0))
            if time.monotonic() - told >= 5.0:
                told = time.monotonic()
                self._progress(publisher, watch)
            time.sleep(0.1)

    def _guard(self, work: Callable[..., None], *arguments: Any) -> None:
        """Do the work; what goes wrong with it is a finding."""
        try:
            work(*arguments)
        except Exception as error:
            self._trouble.append(f"{work.__name__}: {error!r}")

    def _publish(
        self, workload: Workload, faults: list[Fault], publisher: Publisher, began: float
    ) -> None:
        starts = [0.0, *(fault.at - 0.3 for fault in faults)]
        for at, share in zip(starts, workload.shares(len(starts)), strict=True):
            time.sleep(max(0.0, began + at - time.monotonic()))
            workload.publish(publisher, share)

    def _suffer(self, slot: Slot, faults: list[Fault], began: float) -> None:
        for fault in faults:
            if (fault.role, fault.slot) == (slot.role, slot.number):
                time.sleep(max(0.0, began + fault.at - time.monotonic()))
                self._note(str(fault))
                slot.suffer(fault)

    def _restart_broker(self, fault: Fault) -> None:
        self._note(str(fault))
        assert isinstance(self.broker, KafkaBroker)
        self._broker_back = float("inf")
        (self.broker.kill if fault.kind == "broker-kill" else self.broker.stop)()
        until = time.monotonic() + fault.seconds
        while time.monotonic() < until:
            self._tend()
            time.sleep(0.1)
        self.broker.start()
        self._broker_back = time.monotonic()
        self._note("broker: answers again")

    def _settle(
        self,
        workload: Workload,
        publisher: Publisher,
        watch: Watch,
        connection: Connection,
        topics: Topics,
    ) -> list[Finding]:
        self._note("all faults are over")
        flushed = publisher.flush(60.0)
        log = read_log(connection, topics, workload)
        deadline = time.monotonic() + _SETTLE_SECONDS
        messages = lifetimes(connection, topics)
        told = time.monotonic()
        while not (closed(watch.latest, log) and published(messages, log)):
            if time.monotonic() > deadline:
                self._trouble.append(f"not settled {_SETTLE_SECONDS:.0f} s after the last fault")
                break
            if time.monotonic() - told >= 5.0:
                told = time.monotonic()
                self._progress(publisher, watch)
            self._tend()
            time.sleep(0.5)
            messages = lifetimes(connection, topics)
        else:
            self._note("settled")
        time.sleep(_QUIET_SECONDS)
        self._tend()
        account = watch.latest
        assert account is not None
        complaints = [c for slot in self.slots.values() for c in slot.complaints] + self._trouble
        refused = publisher.dropped + publisher.failed + publisher.invalid
        return [
            Finding(
                "the publisher has sent every row",
                flushed and publisher.published == workload.total and not refused,
                f"{publisher.published:,} of {workload.total:,}, {refused} refused",
            ),
            *findings(
                workload,
                log,
                account,
                lifetimes(connection, topics),
                records(connection, topics.dead_letters),
            ),
            Finding(
                "workers ended only when they were told or killed",
                not complaints,
                "; ".join(complaints) or "none by itself",
            ),
        ]

    def _tend(self) -> None:
        away = time.monotonic() - self._broker_back < _GRACE_SECONDS
        for slot in self.slots.values():
            slot.tend(away)

    def _progress(self, publisher: Publisher, watch: Watch) -> None:
        account = watch.latest
        counted = 0 if account is None else account.accepted + account.rejected
        ready = sum(slot.ready for slot in self.slots.values())
        self._note(
            f"{publisher.published:,} rows published, {counted:,} counted, {ready} workers ready"
        )

    def _note(self, text: str) -> None:
        self.say(f"{time.monotonic() - self._began:7.1f} s  {text}")


async def _register(connection: Connection, topics: Topics) -> None:
    producer = AIOKafkaProducer(**connection.client_arguments(), acks="all")
    await producer.start()
    try:
        declared = card()
        await producer.send_and_wait(
            topics.models, declared.to_bytes(), key=declared.model.encode()
        )
    finally:
        await producer.stop()


def main() -> int:
    """Run every seed on a fresh broker; return 1 where one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, nargs="+", default=[1])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--faults", type=int, default=24)
    parser.add_argument("--broker", choices=["embedded", "kafka"], default="embedded")
    parser.add_argument("--logs", type=Path, help="folder for what the workers print")
    given = parser.parse_args()
    # A broker that is away is part of the run; aiokafka tells of every attempt to reach it.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    failed = []
    for seed in given.seed:
        broker = KafkaBroker() if given.broker == "kafka" else EmbeddedTestBroker()
        began = time.monotonic()
        try:
            broker.start()
            options = Options(seed, given.rows, given.faults, logs=given.logs)
            found = Chaos(broker, options, lambda line: print(line, flush=True)).run()
        finally:
            broker.close()
        for finding in found:
            print(finding)
        holds = all(finding.holds for finding in found)
        failed += [] if holds else [seed]
        verdict = "passed" if holds else "FAILED"
        print(
            f"seed {seed} {verdict} on {given.broker} in {time.monotonic() - began:.0f} s\n",
            flush=True,
        )
    print(
        f"{len(given.seed) - len(failed)} of {len(given.seed)} seeds passed"
        + (f"; failed: {failed}" if failed else "")
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
