"""Faults: a seeded plan of what happens to which worker when, and the workers that it happens to."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from command import Running

from attributary.service.supervisor import READY

ROLES = ("ingest", "merge")
SESSION_SECONDS = 6.0
# At most so long may a worker take to be ready, or to stop, on a busy machine.
_READY_SECONDS = 60.0
_STOP_SECONDS = 20.0
# The exit code of a command that says in one line what is wrong.
_FAILED = 2
# As whoever supervises processes would wait before it starts one again.
_PATIENCE_SECONDS = 1.0
#: Kinds and how often they come, of 20.
_MIX = {"kill": 8, "pause": 4, "restart": 4, "scale": 3, "broker": 1}
_SECONDS = {
    "kill": (0.0, 3.0),
    "pause": (SESSION_SECONDS + 1, SESSION_SECONDS + 4),
    "restart": (0.0, 3.0),
    "scale": (5.0, 10.0),
    "broker": (1.0, 5.0),
}
_WORDS = {
    "kill": "kill -9, started again after {:.1f} s",
    "pause": "SIGSTOP for {:.1f} s",
    "restart": "SIGTERM, started again after {:.1f} s",
    "scale": "one worker more for {:.1f} s",
    "broker": "broker stopped for {:.1f} s",
    "broker-kill": "broker killed for {:.1f} s",
}


@dataclass(frozen=True)
class Fault:
    """``kind`` happens to worker ``slot`` of ``role`` at ``at`` seconds and is over ``seconds`` later."""

    at: float
    kind: str
    role: str
    slot: int
    seconds: float

    def __str__(self) -> str:
        where = "broker" if self.role == "broker" else f"{self.role}-{self.slot}"
        return f"{where}: {_WORDS[self.kind].format(self.seconds)}"


def plan(count: int, seed: int, *, broker: bool, gap: tuple[float, float]) -> list[Fault]:
    """Return ``count`` faults in order, a function of the arguments alone.

    ``gap``: the least and the most seconds between the beginnings of two. ``broker``: it is restarted once,
    or killed and restarted, in the middle third. Faults overlap: nobody waits for one to be over.
    """
    rng = np.random.default_rng([seed, 2])
    counts = {kind: max(1, round(count * share / 20)) for kind, share in _MIX.items()}
    counts["broker"] = int(broker)
    counts["kill"] += count - sum(counts.values())
    kinds = [kind for kind, times in counts.items() if kind != "broker" for _ in range(times)]
    rng.shuffle(kinds)
    if broker:
        kinds.insert(int(rng.integers(len(kinds) // 3, 2 * len(kinds) // 3 + 1)), "broker")
    found = []
    at = 0.0
    for kind in kinds:
        at += float(rng.uniform(*gap))
        role = ROLES[int(rng.integers(2))]
        slot = 2 if kind == "scale" else int(rng.integers(2))
        seconds = float(rng.uniform(*_SECONDS[kind]))
        if kind == "broker":
            kind, role, slot = ("broker", "broker-kill")[int(rng.integers(2))], "broker", 0
        found.append(Fault(at, kind, role, slot, seconds))
    return found


@dataclass
class Slot:
    """One place for a worker, and its faults, one after the other. ``start`` makes the worker."""

    role: str
    number: int
    start: Callable[[], Running]
    note: Callable[[str], None]
    worker: Running | None = None
    #: Outputs of earlier workers here.
    outputs: list[str] = field(default_factory=list)
    #: What should not have happened.
    complaints: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    ready: bool = False
    #: When a worker that ended by itself is started again.
    again_at: float = math.inf

    @property
    def name(self) -> str:
        """How it is called in the log."""
        return f"{self.role}-{self.number}"

    def up(self) -> None:
        """Start a worker here; it is not ready yet."""
        with self.lock:
            self._start()

    def tend(self, broker_away: bool) -> None:
        """See whether the worker has become ready, or has ended by itself; then start another.

        Only one that starts while the broker is away may end by itself, and must say so in order.
        """
        if not self.lock.acquire(blocking=False):
            return  # it is being ended
        try:
            if time.monotonic() >= self.again_at:
                self._start()
            worker = self.worker
            if worker is None:
                return
            self.ready = self.ready or any(line.startswith(READY) for line in worker.lines)
            code = worker.process.poll()
            if code is None:
                return
            said = f"{self.name} ended by itself with {code}: {worker.output.splitlines()[-1:]}"
            if self.ready or not broker_away or code != _FAILED:
                self.complaints.append(said)
            self.note(said)
            self._gone()
            self.again_at = time.monotonic() + _PATIENCE_SECONDS
        finally:
            self.lock.release()

    def suffer(self, fault: Fault) -> None:
        """Do what the fault says, and return once it is over."""
        if fault.kind == "scale":
            self.up()
            time.sleep(fault.seconds)
            if self._await_ready():
                self._terminate()
            return
        if not self._await_ready():
            return
        if fault.kind == "pause":
            worker = self.worker
            assert worker is not None
            worker.process.send_signal(signal.SIGSTOP)
            time.sleep(fault.seconds)
            worker.process.send_signal(signal.SIGCONT)
            return
        if fault.kind == "kill":
            self._end(signal.SIGKILL, -signal.SIGKILL)
        else:
            self._terminate()
        time.sleep(fault.seconds)
        self.up()

    def close(self) -> None:
        """Kill what is left, stopped or not."""
        with self.lock:
            if self.worker is not None:
                self.worker.close()
                self._gone()

    @property
    def output(self) -> str:
        """All that was printed here."""
        now = [] if self.worker is None else [self.worker.output]
        return "\n--- another process ---\n".join([*self.outputs, *now])

    def _await_ready(self) -> bool:
        deadline = time.monotonic() + _READY_SECONDS
        while not self.ready:
            if time.monotonic() > deadline:
                self.complaints.append(f"{self.name} was not ready in {_READY_SECONDS:.0f} s")
                return False
            time.sleep(0.05)
        return True

    def _terminate(self) -> None:
        self._end(signal.SIGTERM, 0)

    def _end(self, signum: int, expected: int) -> None:
        with self.lock:
            worker = self.worker
            if worker is None:
                return
            worker.process.send_signal(signum)
            try:
                code = worker.wait(_STOP_SECONDS)
                if code != expected:
                    self.complaints.append(f"{self.name} ended with {code}, not {expected}")
            except Exception as error:
                self.complaints.append(f"{self.name} did not end on signal {signum}: {error}")
                worker.close()
            self._gone()

    def _start(self) -> None:
        self.ready, self.again_at = False, math.inf
        self.worker = self.start()

    def _gone(self) -> None:
        assert self.worker is not None
        self.outputs.append(self.worker.output)
        self.worker, self.ready = None, False


def write_outputs(slots: Mapping[str, Slot], folder: Path) -> None:
    """Write what every worker printed into files of the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, slot in slots.items():
        (folder / f"{name}.log").write_text(slot.output)
