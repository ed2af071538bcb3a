"""A deployment over time, with failures: a discrete-event simulation on a clock of ticks.

Events lie in one queue: ticks, crashes, time-outs, rebalances, restarts, lost brokers, elections. Within a
tick rows are numbers, not objects: each partition has a log end, a position up to which it was read, one up
to which its sketches are acknowledged, and one that is committed, the start of its open block. A process
shares its core among its partitions by their backlog.

What is simplified: a process is one core, evenly fast; a flush or a publication takes its time when its tick
comes; blocks are of so many rows; all sketches partitions get the same work; a lost broker's partitions wait
for new leaders, and replicas that follow again cost nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_EPSILON = 1e-9


@dataclass(frozen=True)
class Cluster:
    """What runs. ``rates`` (p,) rows a second and ``models`` (p,) of each partition of rows; seconds are
    those of one core.

    ``session``: a silent worker loses its partitions after so long. ``rebalance``: how long a group stops
    to share its partitions anew. ``restart``: from a crash until the process joins again. ``election``: until
    the partitions of a lost broker have leaders.
    """

    rates: Floats
    models: Floats
    ingest_processes: int
    merge_processes: int
    sketch_partitions: int
    row_seconds: float
    sketch_seconds: float = 0.0
    ingest_share: float = 0.0
    merge_sketch_seconds: float = 0.0
    merge_share: float = 0.0
    load_seconds: float = 0.0
    block_rows: float = 8192.0
    flush: float = 1.0
    publish: float = 1.0
    snapshot: float = 60.0
    tick: float = 1.0
    session: float = 10.0
    rebalance: float = 5.0
    restart: float = 30.0
    election: float = 10.0
    brokers: int = 3
    poisson: bool = True


@dataclass(frozen=True)
class Trace:
    """What happened, at the end of every tick (t,). Rows of a partition are (t, p)."""

    times: Floats
    published: Floats
    """rows written to the log, or waiting in producers"""
    waiting: Floats
    """rows in the log that were not read yet, before the tick's work"""
    backlog: Floats
    """the same after it"""
    acknowledged: Floats
    """rows whose sketches are acknowledged"""
    held: Floats
    """rows that wait in producers for a leader"""
    replayed: Floats
    """rows read again, (t,)"""
    merge_backlog: Floats
    """seconds of work that merge has not done, (t,)"""
    owned: npt.NDArray[np.int64]
    """most partitions of rows, and of sketches, of one process, (t, 2)"""
    delays: Floats
    """seconds from a row to a message that counts it, by when it came, (t, p); inf: not within the run"""

    def delay(self, shares: Sequence[float], seconds: float) -> tuple[Floats, Floats]:
        """Return quantiles of the delays of the rows of each stretch of so many seconds.

        The ends of the stretches (k,), and (k, shares).
        """
        rows = np.diff(self.published, axis=0, prepend=0.0)
        ticks = max(1, round(seconds / self.times[0]))
        found = []
        for start in range(0, len(rows) - ticks + 1, ticks):
            delays = self.delays[start : start + ticks].ravel()
            order = np.argsort(delays)
            below = np.cumsum(rows[start : start + ticks].ravel()[order])
            at = np.searchsorted(below, np.asarray(shares) * below[-1] - _EPSILON)
            found.append(delays[order[at.clip(max=len(order) - 1)]])
        return self.times[ticks - 1 :: ticks][: len(found)], np.array(found)


class Group:
    """A consumer group: which process owns which partition, and whether it works."""

    def __init__(self, partitions: int, processes: int) -> None:
        self.processes = processes
        self.alive = np.ones(processes, dtype=bool)
        self.owner = np.arange(partitions) % processes
        #: Rebalances under way: one that begins within another makes it longer.
        self.rebalancing = 0

    def share_out(self) -> None:
        """Give the partitions to the members in turn, as the round-robin assignor does."""
        members = np.flatnonzero(self.alive)
        self.owner = members[np.arange(len(self.owner)) % len(members)]

    @property
    def working(self) -> npt.NDArray[np.bool_]:
        """Whether each partition's owner is at work, (p,)."""
        return self.alive[self.owner] & (not self.rebalancing)

    @property
    def most(self) -> int:
        """Partitions of the process that has the most."""
        return int(np.bincount(self.owner, minlength=self.processes).max())


class Simulation:
    """Runs a cluster; schedule failures before ``run``."""

    def __init__(self, cluster: Cluster, seed: int = 0) -> None:
        self.cluster = cluster
        self._rng = np.random.default_rng(seed)
        self._queue: list[tuple[float, bool, int, Callable[[float], None]]] = []
        self._order = 0
        partitions, sinks = len(cluster.rates), cluster.sketch_partitions
        self.ingest = Group(partitions, cluster.ingest_processes)
        self.merge = Group(sinks, cluster.merge_processes)
        self._end, self._read, self._acknowledged, self._committed, self._held = np.zeros(
            (5, partitions)
        )
        self._replayed = 0.0
        #: Work sent to each sketches partition, done there, and to be done again after a hand-over.
        self._sent, self._done, self._again = np.zeros((3, sinks))
        self._saved = np.zeros(sinks)
        # Workers did not all start at one moment.
        self._flush_turn = self._rng.integers(1 << 30, size=cluster.ingest_processes)
        self._publish_turn = self._rng.integers(1 << 30, size=sinks)
        self._leaderless = np.zeros(partitions, dtype=bool)
        self._sinks_leaderless = 0
        self._history: list[tuple[Any, ...]] = []

    def at(self, time: float, action: Callable[[float], None], *, last: bool = False) -> None:
        """Put an event into the queue; of two at one time the first put in comes first."""
        heapq.heappush(self._queue, (time, last, self._order, action))
        self._order += 1

    def crash(self, time: float, process: int = 0, role: str = "ingest") -> None:
        """Kill a worker; its group learns of it after the session, and again when it is back."""
        group: Group = getattr(self, role)
        cluster = self.cluster

        def kill(now: float) -> None:
            group.alive[process] = False
            self.at(now + cluster.session, missed)
            self.at(now + cluster.restart, back)

        def missed(now: float) -> None:
            if not group.alive[process]:
                self._rebalance(now, role)

        def back(now: float) -> None:
            group.alive[process] = True
            self._rebalance(now, role)

        self.at(time, kill)

    def restart(self, time: float, process: int, away: float = 10.0) -> None:
        """Stop an ingest worker in order, and start it again: it commits and leaves its group at once."""

        def leave(now: float) -> None:
            self._rebalance(now, "ingest")
            self.ingest.alive[process] = False
            self.at(now + away, back)

        def back(now: float) -> None:
            self.ingest.alive[process] = True
            self._rebalance(now, "ingest")

        self.at(time, leave)

    def lose_broker(self, time: float, broker: int = 0) -> None:
        """Take a broker away for good: its partitions wait for new leaders."""

        def lose(now: float) -> None:
            mine = np.arange(len(self._leaderless)) % self.cluster.brokers == broker
            self._leaderless |= mine
            self._sinks_leaderless += 1
            self.at(now + self.cluster.election, lambda _: elect(mine))

        def elect(mine: npt.NDArray[np.bool_]) -> None:
            self._leaderless &= ~mine
            self._sinks_leaderless -= 1

        self.at(time, lose)

    def _rebalance(self, now: float, role: str) -> None:
        """Stop the whole group; at its end every partition begins where it was committed or saved."""
        group: Group = getattr(self, role)
        living = group.working
        group.rebalancing += 1
        if role == "ingest":
            # Those that live flush and commit before they hand over.
            self._flush_now(living)
        else:
            self._saved[living] = self._done[living]
        self.at(now + self.cluster.rebalance, lambda _: self._resume(role))

    def _resume(self, role: str) -> None:
        group: Group = getattr(self, role)
        group.rebalancing -= 1
        if group.rebalancing or not group.alive.any():
            return
        group.share_out()
        if role == "ingest":
            self._replayed += float((self._read - self._committed).sum())
            self._read = self._committed.copy()
        else:
            load = self.cluster.load_seconds
            self._again = self._done - self._saved + load

    def run(self, seconds: float) -> Trace:
        """Run for so long and return what happened."""
        cluster = self.cluster
        ticks = round(seconds / cluster.tick)
        for index in range(1, ticks + 1):
            self.at(index * cluster.tick, self._tick, last=True)
        while self._queue and self._queue[0][0] <= seconds + _EPSILON:
            time, _, _, action = heapq.heappop(self._queue)
            action(time)
        columns = [np.array(column) for column in zip(*self._history, strict=True)]
        times, published, waiting, backlog, acknowledged, held, replayed, sent, done, owned = (
            columns
        )
        return Trace(
            times,
            published,
            waiting,
            backlog,
            acknowledged,
            held,
            replayed,
            (sent - done).sum(axis=1),
            owned,
            self._delays(times, published, acknowledged, sent, done),
        )

    def _tick(self, now: float) -> None:
        cluster = self.cluster
        expected = cluster.rates * cluster.tick
        come = self._rng.poisson(expected).astype(float) if cluster.poisson else expected
        self._held += come
        reached = ~self._leaderless
        self._end[reached] += self._held[reached]
        self._held[reached] = 0.0
        waiting = self._end - self._read
        # A flush sends manifests to every sketches partition: without one of their leaders all wait.
        if not self._sinks_leaderless:
            self._ingest()
            due = (round(now / cluster.tick) + self._flush_turn) % self._steps(cluster.flush) == 0
            self._flush_now(self.ingest.working & due[self.ingest.owner])
        self._merge(now)
        self._history.append(
            (
                now,
                self._end + self._held,
                waiting,
                self._end - self._read,
                self._acknowledged.copy(),
                self._held.copy(),
                self._replayed,
                self._sent.copy(),
                self._done - self._again,
                (self.ingest.most, self.merge.most),
            )
        )

    def _ingest(self) -> None:
        cluster = self.cluster
        open_to = self.ingest.working & ~self._leaderless
        backlog = np.where(open_to, self._end - self._read, 0.0)
        # Sketches of a flush, and one more of each model at the end of every block.
        turns = cluster.tick / cluster.flush
        per_flush = cluster.models * -np.expm1(-backlog / turns / cluster.models)
        per_block = cluster.models * -np.expm1(-cluster.block_rows / cluster.models)
        row = cluster.row_seconds + cluster.sketch_seconds * per_block / cluster.block_rows
        fixed = per_flush * turns * cluster.sketch_seconds
        owner, processes = self.ingest.owner, self.ingest.processes
        room = cluster.tick * (1 - cluster.ingest_share) - np.bincount(owner, fixed, processes)
        wanted = np.bincount(owner, backlog * row, processes)
        # However many sketches there are, some rows are read between two flushes.
        room = np.maximum(room, 0.05 * cluster.tick)
        share = np.minimum(1.0, room / np.maximum(wanted, _EPSILON))
        self._read += backlog * share[owner]

    def _flush_now(self, chosen: npt.NDArray[np.bool_]) -> None:
        cluster = self.cluster
        new = np.where(chosen, np.maximum(self._read - self._acknowledged, 0.0), 0.0)
        sketches = float((cluster.models * -np.expm1(-new / cluster.models)).sum())
        blocks = float(new.sum()) / cluster.block_rows
        sketches += blocks * float(cluster.models.mean())
        self._sent += sketches * cluster.merge_sketch_seconds / len(self._sent)
        self._acknowledged = np.maximum(
            self._acknowledged, np.where(chosen, self._read, self._acknowledged)
        )
        begun = np.floor(self._read / cluster.block_rows + _EPSILON) * cluster.block_rows
        self._committed = np.where(chosen, np.maximum(self._committed, begun), self._committed)

    def _merge(self, now: float) -> None:
        cluster = self.cluster
        if cluster.merge_sketch_seconds == 0 and not self._again.any():
            self._done = self._sent.copy()
            return
        owner, processes = self.merge.owner, self.merge.processes
        working = self.merge.working
        left = np.where(working, self._sent - self._done + self._again, 0.0)
        wanted = np.bincount(owner, left, processes)
        room = cluster.tick * max(0.05, 1 - cluster.merge_share)
        share = np.minimum(1.0, room / np.maximum(wanted, _EPSILON))
        work = left * share[owner]
        repeated = np.minimum(work, self._again)
        self._again -= repeated
        self._done += work - repeated
        if round(now / cluster.tick) % self._steps(cluster.snapshot) == 0:
            self._saved = np.where(working & (self._again == 0), self._done, self._saved)

    def _delays(
        self, times: Floats, published: Floats, acknowledged: Floats, sent: Floats, done: Floats
    ) -> Floats:
        """Return how long rows take, by when they come: to be acknowledged, merged, and published.

        Each partition's rows of a tick are taken to go to one sketches partition, drawn at random.
        """
        cluster = self.cluster
        ticks, partitions = published.shape
        never = ticks
        merged = np.full((ticks + 1, sent.shape[1]), never)
        for sink in range(sent.shape[1]):
            reached = np.maximum.accumulate(done[:, sink])
            merged[:-1, sink] = np.searchsorted(reached, sent[:, sink] - 1e-7)
        ends = np.append(times, np.inf)
        steps = self._steps(cluster.publish)
        turns = self._publish_turn % steps
        found = np.empty((ticks, partitions))
        for partition in range(partitions):
            known = np.searchsorted(acknowledged[:, partition], published[:, partition] - 1e-6)
            sinks = self._rng.integers(sent.shape[1], size=ticks)
            done_at = np.maximum(merged[known, sinks], known)
            # The first round of publishing from then on.
            shown = done_at + (turns[sinks] - done_at) % steps
            shown = np.minimum(shown, never)
            shown = np.where(done_at == never, never, shown)
            found[:, partition] = ends[shown] - times + cluster.tick / 2
        return found

    def _steps(self, seconds: float) -> int:
        return max(1, round(seconds / self.cluster.tick))


def zipf_rates(
    rows_per_second: float, models: int, partitions: int, exponent: float, seed: int = 0
) -> tuple[Floats, Floats]:
    """Return the rates and the numbers of models of partitions that models are hashed to, (p,) each.

    The k-th model has a share of k^-exponent; 0: all alike.
    """
    shares = np.arange(1, models + 1, dtype=float) ** -exponent
    where = np.random.default_rng(seed).integers(partitions, size=models)
    rates = np.bincount(where, shares / shares.sum(), partitions) * rows_per_second
    return rates, np.maximum(np.bincount(where, minlength=partitions), 1).astype(float)
